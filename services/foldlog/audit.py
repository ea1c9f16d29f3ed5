"""The audit: fold every conversation from its first entry and compare with what was recorded.

What is compared: the chain of predecessors on each lane, the digests that assistant messages
recorded of the context they answered, and the stored view. Where tombstones say that something
was erased, its absence is no difference, and neither is a digest of a context that held it.
"""

from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from foldlog.contexts import decode_state, fold_in
from foldlog.gaps import Gaps
from foldlog.reading import Read
from foldlog.session import Foldlog
from foldlog_events.entries import (
    ForkEntry,
    Lane,
    MessageEntry,
    Recorded,
    Unreadable,
    lane_of,
)
from foldlog_events.messages import Seen
from foldlog_projections.fold import ContextFold, ForkWithoutParent, empty
from foldlog_projections.state import SHAPE_OF_STATE
from foldlog_projections.views import ContextView

Kind = Literal["chain", "unreadable", "erased", "seen", "view", "fork"]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Something recorded that a fold from scratch does not confirm."""

    conversation: str
    version: int
    """Where in the log it shows first."""
    kind: Kind
    """`chain`: the predecessor; `unreadable`: the entry; `erased`: an entry that a tombstone names
    and that is in the log still (erase it again); `seen`: the context an assistant message
    answered; `view`: the stored view; `fork`: what a child inherits."""
    expected: str
    """By the fold from scratch."""
    found: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What an audit found."""

    conversations: int
    entries: int
    differences: tuple[Difference, ...]


async def verify(
    foldlog: Foldlog,
    conversations: Iterable[str] | None = None,
    *,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Verdict:
    """Audit these conversations of the tenant, or all; `progress` is told how many are done.

    Raises what reading raises; a conversation that does not exist has no entries and no
    differences.
    """
    names = list(conversations or ())
    if conversations is None:
        listed = foldlog.log.conversations(foldlog.tenant)
        names = sorted([one.conversation async for one in listed])
    entries = 0
    differences: list[Difference] = []
    for done, name in enumerate(names):
        progress(done, len(names))
        count, found = await verify_conversation(foldlog, name)
        entries += count
        differences += found
    progress(len(names), len(names))
    return Verdict(conversations=len(names), entries=entries, differences=tuple(differences))


async def verify_conversation(foldlog: Foldlog, conversation: str) -> tuple[int, list[Difference]]:
    """How many entries a conversation has, and how they differ from what was recorded."""
    stored = await foldlog.views.get(foldlog.tenant, conversation)
    # Read after the view, so that the view is never ahead of what is read here.
    reads = await foldlog.log.read_all(foldlog.tenant, conversation)
    state = decode_state(stored.data) if stored else None
    view = ContextFold(state).view() if state else None
    gaps = await _gaps(foldlog, reads)
    differences = [
        *_chain(conversation, reads, gaps),
        *_unreadable(conversation, reads),
        *_still_there(conversation, reads, gaps),
    ]
    seen = [
        (version, one) for version, one in _seen(reads) if not gaps.explain_context(one.version)
    ]
    wanted = {one.version for _, one in seen} | ({view.version} if view else set())
    try:
        views = await _views_at(foldlog, conversation, reads, wanted)
    except ForkWithoutParent as error:
        differences.append(_difference(conversation, 0, "fork", "the first entry", str(error)))
        return len(reads), differences
    differences += _compare_seen(conversation, seen, views)
    if stored is not None and state is None and not _is_of_another_release(stored.data):
        differences.append(
            _difference(conversation, 0, "view", "a state", "bytes that are no state of a fold")
        )
    if view is not None:
        differences += _compare_view(conversation, view, views[view.version])
    return len(reads), differences


async def _gaps(foldlog: Foldlog, reads: list[Read]) -> Gaps:
    gaps = Gaps(reads)
    child = reads
    while fork := _fork(child):
        parent = await foldlog.log.read_all(foldlog.tenant, fork.parent)
        gaps.without_parent(reads, parent, reads[0].version)
        child = parent
    return gaps


def _still_there(conversation: str, reads: list[Read], gaps: Gaps) -> list[Difference]:
    return [
        _difference(conversation, read.version, "erased", "nothing", "an entry, to be erased again")
        for read in reads
        if gaps.is_still_there(read)
    ]


def _chain(conversation: str, reads: list[Read], gaps: Gaps) -> list[Difference]:
    last: dict[Lane, int] = {"log": 0, "shape": 0}
    differences = []
    for read in reads:
        lane = read.lane if isinstance(read, Unreadable) else lane_of(read.entry)
        if read.predecessor != last[lane] and not gaps.explain_predecessor(
            read.predecessor, last[lane]
        ):
            found = "not recorded" if read.predecessor is None else f"{read.predecessor}"
            differences.append(
                _difference(conversation, read.version, "chain", f"{last[lane]}", found)
            )
        last[lane] = read.version
    return differences


def _unreadable(conversation: str, reads: list[Read]) -> list[Difference]:
    return [
        _difference(conversation, read.version, "unreadable", "an entry", read.reason)
        for read in reads
        if isinstance(read, Unreadable)
    ]


def _seen(reads: list[Read]) -> list[tuple[int, Seen]]:
    """The recorded contexts, each with the version of the entry that recorded it."""
    return [
        (read.version, message.seen)
        for read in reads
        if isinstance(read, Recorded) and isinstance(read.entry, MessageEntry)
        for message in read.entry.messages
        if message.seen is not None
    ]


async def _views_at(
    foldlog: Foldlog, conversation: str, reads: list[Read], versions: set[int]
) -> dict[int, ContextView]:
    """The views at these versions: each is the one at the last entry at or before it."""
    context = await _before(foldlog, conversation, reads)
    waiting = sorted(versions)
    views: dict[int, ContextView] = {}

    def take_up_to(version: int) -> None:
        """Everything below `version` is decided by what is folded now."""
        if waiting and waiting[0] < version:
            view = context.view()
            while waiting and waiting[0] < version:
                views[waiting.pop(0)] = view

    for place, read in enumerate(reads):
        take_up_to(read.version)
        _step(context, read, first=place == 0)
    take_up_to(2**63)
    return views


async def _before(foldlog: Foldlog, conversation: str, reads: list[Read]) -> ContextFold:
    """What a conversation starts from: nothing, or its ancestors folded from scratch."""
    lineage: list[list[Read]] = []
    oldest = conversation
    while fork := _fork(reads):
        oldest = fork.parent
        reads = await foldlog.log.read_all(foldlog.tenant, fork.parent, up_to=fork.parent_version)
        lineage.append(reads)
    context = ContextFold(empty(foldlog.tenant, oldest))
    for inherited in reversed(lineage):
        for place, read in enumerate(inherited):
            _step(context, read, first=place == 0)
    return context


def _step(context: ContextFold, read: Read, *, first: bool) -> None:
    """Fold one entry. Raises ForkWithoutParent for a fork that is not the first."""
    if first and isinstance(read, Recorded) and isinstance(read.entry, ForkEntry):
        context.inherit(read.version, read.entry)
    else:
        fold_in(context, read)


def _fork(reads: list[Read]) -> ForkEntry | None:
    first = reads[0] if reads else None
    if isinstance(first, Recorded) and isinstance(first.entry, ForkEntry):
        return first.entry
    return None


def _compare_seen(
    conversation: str, seen: list[tuple[int, Seen]], views: dict[int, ContextView]
) -> list[Difference]:
    return [
        _difference(conversation, version, "seen", views[one.version].digest, one.digest)
        for version, one in seen
        if views[one.version].digest != one.digest
    ]


def _compare_view(conversation: str, stored: ContextView, scratch: ContextView) -> list[Difference]:
    """The first field in which a stored view differs."""
    for field in ContextView.__struct_fields__:
        expected, found = getattr(scratch, field), getattr(stored, field)
        if expected != found:
            place, one, other = _first_difference(field, expected, found)
            return [
                _difference(
                    conversation, scratch.version, "view", f"{place}: {one}", f"{place}: {other}"
                )
            ]
    return []


def _first_difference(place: str, expected: object, found: object) -> tuple[str, str, str]:
    if isinstance(expected, tuple) and isinstance(found, tuple):
        for index, (one, other) in enumerate(zip(expected, found, strict=False)):
            if one != other:
                return f"{place}[{index}]", _shown(one), _shown(other)
        return f"{place}, how many", f"{len(expected)}", f"{len(found)}"
    return place, _shown(expected), _shown(found)


def _shown(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _is_of_another_release(data: bytes) -> bool:
    class Shape(msgspec.Struct):
        shape: int

    try:
        return msgspec.json.decode(data, type=Shape).shape != SHAPE_OF_STATE
    except msgspec.DecodeError:
        return False


def _difference(
    conversation: str, version: int, kind: Kind, expected: str, found: str
) -> Difference:
    return Difference(
        conversation=conversation, version=version, kind=kind, expected=expected, found=found
    )
