"""Contexts from the log: the stored view, or the newest head marker, and what came after.

Whoever needs a context gets it here, folded in its own process: no reader waits for the projector.
"""

from datetime import datetime

import msgspec

from foldlog.errors import UnknownConversation
from foldlog.history import find_entry, lineage
from foldlog.log import Log
from foldlog.reading import Read, lane_of_read
from foldlog.seeking import LATEST, first_entry, lane_tails, version_at_time
from foldlog.views import StoredView, Views
from foldlog_events.entries import (
    BaseVersion,
    CompactionEntry,
    ErasedEntry,
    ForkEntry,
    HeadMarker,
    Lane,
    Recorded,
    ResetEntry,
)
from foldlog_events.errors import FoldlogError
from foldlog_projections.fold import ContextFold, empty
from foldlog_projections.state import SHAPE_OF_STATE, FoldState
from foldlog_projections.views import Fault

At = int | str | datetime
"""A moment of a conversation: a version, an entry id, or a time by the broker's clock."""

_decode_state = msgspec.json.Decoder(FoldState).decode


class UnknownEntry(FoldlogError):
    """No entry of the conversation has this id."""

    def __init__(self, entry: str, conversation: str) -> None:
        super().__init__(
            f"no entry {entry!r} in conversation {conversation!r}: `foldlog log` lists its entries"
        )
        self.entry = entry
        self.conversation = conversation


class ParentDeleted(FoldlogError):
    """What a child inherited is gone with its parent."""

    def __init__(self, child: str, parent: str) -> None:
        super().__init__(
            f"{child!r} had inherited this from {parent!r}, which was deleted: "
            "only its contexts since it was made independent can be computed"
        )
        self.child = child
        self.parent = parent


class Contexts:
    """Folds contexts out of the log and the stored views."""

    def __init__(self, log: Log, views: Views) -> None:
        self._log = log
        self._views = views

    async def current(self, tenant: str, conversation: str, *, at_least: int = 0) -> ContextFold:
        """The context as of now. `at_least` is a version known to be in the log."""
        stored = await self._views.get(tenant, conversation)
        marks = stored_faults(stored)
        state = decode_state(stored.data) if stored else None
        if state is None:
            context = await self.at(tenant, conversation, LATEST, at_least=at_least)
            return ContextFold(context.state(), marks) if marks else context
        context = ContextFold(state, marks)
        await self.advance(context, at_least=at_least)
        return context

    async def rebuilt(self, tenant: str, conversation: str, *, at_least: int = 0) -> ContextFold:
        """The context as of now, from the log alone."""
        return await self.at(tenant, conversation, LATEST, at_least=at_least)

    async def stored(self, tenant: str, conversation: str) -> ContextFold | None:
        """The context as the projector last stored it, if it did in a form of this release."""
        stored = await self._views.get(tenant, conversation)
        state = decode_state(stored.data) if stored else None
        return ContextFold(state, stored_faults(stored)) if state else None

    async def advance(self, context: ContextFold, *, at_least: int = 0) -> None:
        """Fold what the log holds after the context's version."""
        async for recorded in self._log.read(
            context.tenant, context.conversation, after=context.version, at_least=at_least
        ):
            fold_in(context, recorded)

    async def at(
        self, tenant: str, conversation: str, version: int, *, at_least: int = 0
    ) -> ContextFold:
        """The context as it was at a version, from the entries that were in force then."""
        first = await first_entry(self._log.broker, tenant, conversation)
        if isinstance(first, Recorded) and isinstance(first.entry, ForkEntry):
            return await self._at_in_child(first, first.entry, version, at_least)
        tails = await lane_tails(self._log.broker, tenant, conversation, version)
        head = await self._newest_head(tenant, conversation, tails.get("shape"))
        context = ContextFold(empty(tenant, conversation))
        await self._fold_range(context, version, head, after=_before_range(head), at_least=at_least)
        context.reach(_base_version(tails))
        return context

    async def version_at(self, tenant: str, conversation: str, moment: At) -> int:
        """The version that was the last at a moment.

        Raises UnknownEntry for an id that the conversation does not have.
        """
        if isinstance(moment, datetime):
            return await version_at_time(self._log.broker, tenant, conversation, moment)
        if isinstance(moment, int):
            return moment
        for stretch in reversed(await lineage(self._log, tenant, conversation)):
            found = await find_entry(
                self._log, tenant, stretch.conversation, moment, up_to=stretch.up_to
            )
            if found is not None:
                return found.version
        raise UnknownEntry(moment, conversation)

    async def require(self, tenant: str, conversation: str) -> None:
        """Raises UnknownConversation where the log holds nothing of it."""
        if await first_entry(self._log.broker, tenant, conversation) is None:
            raise UnknownConversation(conversation, tenant=tenant)

    async def range_start(self, tenant: str, conversation: str) -> int:
        """The version after which everything lies that the context is folded from."""
        tails = await lane_tails(self._log.broker, tenant, conversation, LATEST)
        return _before_range(await self._newest_head(tenant, conversation, tails.get("shape")))

    async def _of_parent(self, fork: ForkEntry, version: int) -> ContextFold:
        context = await self.at(fork.tenant, fork.parent, version)
        if not context.version and version == fork.parent_version > 0:
            async for read in self._log.read(fork.tenant, fork.parent, lane="shape"):
                if is_deletion(read):
                    raise ParentDeleted(fork.conversation, fork.parent)
        return context

    async def _at_in_child(
        self, first: Recorded, fork: ForkEntry, version: int, at_least: int
    ) -> ContextFold:
        if version < first.version:
            return await self._of_parent(fork, min(version, fork.parent_version))
        tails = await lane_tails(self._log.broker, fork.tenant, fork.conversation, version)
        head = await self._newest_head(fork.tenant, fork.conversation, tails.get("shape"))
        after = _before_range(head)
        if after < first.version:
            context = await self._of_parent(fork, fork.parent_version)
            context.inherit(first.version, fork)
            after = first.version
        else:
            context = ContextFold(empty(fork.tenant, fork.conversation))
        await self._fold_range(context, version, head, after=after, at_least=at_least)
        context.reach(_base_version(tails))
        return context

    async def _fold_range(
        self,
        context: ContextFold,
        version: int,
        head: Recorded | None,
        *,
        after: int,
        at_least: int = 0,
    ) -> None:
        context.begin_after(after)
        head_version = head.version if head else 0
        async for recorded in self._log.read(
            context.tenant, context.conversation, after=after, up_to=version, at_least=at_least
        ):
            entry = recorded.entry if isinstance(recorded, Recorded) else None
            if isinstance(entry, CompactionEntry | ResetEntry) and recorded.version <= head_version:
                if recorded.version < head_version:
                    context.apply_older_head(recorded.version)
                else:
                    context.apply_known_head(recorded.version, entry)
            else:
                fold_in(context, recorded)

    async def _newest_head(
        self, tenant: str, conversation: str, shape_tail: Read | None
    ) -> Recorded | None:
        """The head marker in force: back along the shape lane to the first one."""
        read = shape_tail
        while read is not None:
            if isinstance(read, Recorded) and _is_head(read):
                return read
            if not read.predecessor:
                return None
            read = await self._log.get(tenant, conversation, read.predecessor)
        return None


def decode_state(data: bytes) -> FoldState | None:
    """A stored state; None where it is damaged or of another release's shape: fold it anew."""
    try:
        state = _decode_state(data)
    except msgspec.DecodeError:
        return None
    return state if state.shape == SHAPE_OF_STATE else None


def given_up(version: int, reason: str) -> str:
    """The mark for a view: what was given up, and why."""
    return f"{version} {reason}"


def stored_faults(stored: StoredView | None) -> tuple[Fault, ...]:
    """What the mark on a view says."""
    if stored is None or not stored.mark:
        return ()
    version, _, reason = stored.mark.partition(" ")
    return (Fault(int(version) if version.isdigit() else 0, reason),)


def fold_in(context: ContextFold, read: Read) -> None:
    """Fold what was read, readable or not.

    Its predecessor in its lane is known to the broker; where the context has not seen that one,
    it was erased since.
    """
    lane = lane_of_read(read)
    if context.version < read.version and (read.predecessor or 0) > context.lane_version(lane):
        context.apply_erased(read.predecessor or 0, lane)
    if isinstance(read, Recorded):
        context.apply(read.version, read.entry)
    else:
        context.apply_unreadable(read.version, read.lane, read.reason)


def is_deletion(read: Read) -> bool:
    """Whether this says that everything before it was removed."""
    entry = read.entry if isinstance(read, Recorded) else None
    return isinstance(entry, ErasedEntry) and not entry.target


def _is_head(recorded: Recorded) -> bool:
    entry = recorded.entry
    if isinstance(entry, CompactionEntry):
        return entry.base_version.shape == recorded.predecessor
    return isinstance(entry, ResetEntry)


def _base_version(tails: dict[Lane, Read]) -> BaseVersion:
    versions = {lane: read.version for lane, read in tails.items()}
    return BaseVersion(log=versions.get("log", 0), shape=versions.get("shape", 0))


def _before_range(head: Recorded | None) -> int:
    """The version after which a head's range lies; the head itself is read with it."""
    if head is None:
        return 0
    entry: HeadMarker | object = head.entry
    if isinstance(entry, CompactionEntry):
        return entry.kept_from.version - 1 if entry.kept_from else entry.base_version.log
    return head.version - 1
