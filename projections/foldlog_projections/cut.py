"""Where a compaction may cut the active range, and where it does.

A cut at `index` keeps the entries from there on and summarises those before. Each rule of a legal
cut is one function; `why_illegal` asks them all. Entries are never split: a cut lies between two.
"""

from collections.abc import Container, Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

from foldlog_events.entries import EntryReference
from foldlog_events.messages import Message, ToolCall, ToolCallResponse
from foldlog_projections.edits import without_repeats
from foldlog_projections.pairing import counts
from foldlog_projections.pairs import Waiting, pair
from foldlog_projections.state import Active
from foldlog_projections.tokens import estimate_messages, estimate_sections

PATIENCE = 4
"""User and assistant messages after which a call without a result is taken for abandoned: until
then its result may still come, and after that it must not hold up compaction for ever."""

HEAD_KINDS = ("compaction", "reset")

DeclinedReason = Literal["budget_not_reached", "no_legal_cut", "nothing_to_summarise"]


class CutItem(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the active range: what it contributes, edits applied, and that in tokens."""

    id: str
    version: int
    kind: str
    messages: tuple[Message, ...] = ()
    tokens: int = 0


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """A legal cut. Entry ids are in the order of the range; head markers are in neither list."""

    index: int
    """Of the first item kept."""
    kept_from: EntryReference
    summarised: tuple[str, ...]
    """The history before the turn that is cut; everything before the cut where none is."""
    turn_prefix: tuple[str, ...] = ()
    """The first part of the turn that is cut, from its user message on: to be summarised apart."""
    summarised_tokens: int
    """Of history and turn prefix together."""
    kept_tokens: int


class Declined(msgspec.Struct, frozen=True):
    """There is no cut to make."""

    reason: DeclinedReason


class Reading(NamedTuple):
    """What the rules need to know about the items, gathered in one pass."""

    starts: tuple[bool, ...]
    """Whether what the item shows first is a user or an assistant message."""
    split: tuple[bool, ...]
    """Whether a cut before the item would part a call from its result."""
    first_pending: int
    """Index of the first item with a call whose result may still come; the number of items where
    there is none."""


def items_of(active: Iterable[Active]) -> tuple[CutItem, ...]:
    """A state's active entries as items, with estimated tokens; repeats contribute nothing."""
    active = tuple(active)
    first = {id(entry) for entry in without_repeats(active)}
    return tuple(_item(entry, entry.messages if id(entry) in first else ()) for entry in active)


def _item(entry: Active, messages: tuple[Message, ...]) -> CutItem:
    sections = entry.patch.sections if entry.patch is not None else ()
    return CutItem(
        id=entry.id,
        version=entry.version,
        kind=entry.kind,
        messages=messages,
        tokens=estimate_messages(messages) + estimate_sections(sections),
    )


def choose_cut(
    items: Sequence[CutItem], keep_recent: int, *, running: Container[str] = ()
) -> Cut | Declined:
    """The first legal cut at or after the place where `keep_recent` tokens are kept.

    Where the end of the range has no legal place, the nearest one before: that keeps more than
    was asked for. Where the only entry that could be summarised is the one that exceeds the budget
    (twice over), a later cut that keeps less. `running` holds ids of calls that are known to be
    in progress, however long ago they were made.
    """
    budget_at = _where_kept(items, max(1, keep_recent))
    if budget_at is None:
        return Declined("budget_not_reached")
    reading = read(items, running)
    legal = [index for index in range(len(items)) if _is_legal(reading, index)]
    after = [index for index in legal if index >= budget_at]
    before = [index for index in legal if index < budget_at]
    candidates = after[:1] or before[-1:]
    if after and _tokens(items[after[0] :]) > 2 * keep_recent:
        candidates = after
    for index in candidates:
        if _has_something_to_summarise(items, index):
            return _cut(items, index)
    return Declined("nothing_to_summarise" if legal else "no_legal_cut")


def newest_indivisible_unit(
    items: Sequence[CutItem], *, running: Container[str] = ()
) -> Cut | Declined:
    """The cut that keeps least: after an overflow only the last unit that cannot be parted."""
    reading = read(items, running)
    for index in range(len(items) - 1, -1, -1):
        if _is_legal(reading, index):
            if _has_something_to_summarise(items, index):
                return _cut(items, index)
            return Declined("nothing_to_summarise")
    return Declined("no_legal_cut")


def legal_start(reading: Reading, index: int) -> bool:
    """The kept part begins with a user or an assistant message, never with a result."""
    return reading.starts[index]


def legal_pairing(reading: Reading, index: int) -> bool:
    """No call is parted from its result, however late in the log the result came."""
    return not reading.split[index]


def legal_pending(reading: Reading, index: int) -> bool:
    """No call whose result may still come is summarised away."""
    return index <= reading.first_pending


RULES = (
    (legal_start, "what is kept would not begin with a user or an assistant message"),
    (legal_pairing, "a tool call would be parted from its result"),
    (legal_pending, "a tool call that still waits for its result would be summarised away"),
)


def why_illegal(
    items: Sequence[CutItem], index: int, *, running: Container[str] = ()
) -> str | None:
    """Why a cut before the item at `index` breaks a rule; None where it is legal."""
    reading = read(items, running)
    return next((reason for rule, reason in RULES if not rule(reading, index)), None)


def _is_legal(reading: Reading, index: int) -> bool:
    return all(rule(reading, index) for rule, _ in RULES)


def read(items: Sequence[CutItem], running: Container[str] = ()) -> Reading:
    """What the rules need to know, with calls and results paired as the fold pairs them."""
    pairs = pair([item.messages for item in items])
    spans = [0] * (len(items) + 1)
    for answered in pairs.answered:
        spans[answered.call.item + 1] += 1
        spans[answered.result.item + 1] -= 1
    return Reading(
        starts=tuple(_starts_well(item) for item in items),
        split=_crossed(spans)[: len(items)],
        first_pending=_first_pending(items, pairs.waiting, running),
    )


def _crossed(spans: list[int]) -> tuple[bool, ...]:
    crossed, is_open = [], 0
    for change in spans:
        is_open += change
        crossed.append(is_open > 0)
    return tuple(crossed)


def _first_pending(
    items: Sequence[CutItem], waiting: Iterable[Waiting], running: Container[str]
) -> int:
    late = _last_steps(items, PATIENCE)
    return min(
        (
            call.place.item
            for call in waiting
            if call.shown and ((call.place.item, call.place.message) >= late or call.id in running)
        ),
        default=len(items),
    )


def _last_steps(items: Sequence[CutItem], count: int) -> tuple[int, int]:
    """Item and message of the last user or assistant message but `count` - 1."""
    for place in range(len(items) - 1, -1, -1):
        for number in range(len(items[place].messages) - 1, -1, -1):
            message = items[place].messages[number]
            count -= counts(message) if message.role == "assistant" else _speaks(message)
            if count == 0:
                return place, number
    return 0, 0


def _starts_well(item: CutItem) -> bool:
    if item.kind in HEAD_KINDS:
        return False
    for message in item.messages:
        if message.role == "assistant":
            if counts(message):
                return True
        elif message.role != "user" or _holds_result(message):
            return False
        elif _speaks(message):
            return True
    return False


def _speaks(message: Message) -> bool:
    """Whether a user said something in it; a `user` message may also hold results only."""
    return message.role == "user" and any(
        not isinstance(part, ToolCall | ToolCallResponse) for part in message.parts
    )


def _holds_result(message: Message) -> bool:
    return any(isinstance(part, ToolCallResponse) for part in message.parts)


def _where_kept(items: Sequence[CutItem], keep_recent: int) -> int | None:
    kept = 0
    for index in range(len(items) - 1, -1, -1):
        if items[index].kind not in HEAD_KINDS:
            kept += items[index].tokens
        if kept >= keep_recent:
            return index
    return None


def _has_something_to_summarise(items: Sequence[CutItem], index: int) -> bool:
    return any(
        item.kind not in HEAD_KINDS and any(message.role != "system" for message in item.messages)
        for item in items[:index]
    )


def _cut(items: Sequence[CutItem], index: int) -> Cut:
    turn = _start_of_turn(items, index)
    return Cut(
        index=index,
        kept_from=EntryReference(items[index].id, items[index].version),
        summarised=_ids(items[:turn]),
        turn_prefix=_ids(items[turn:index]),
        summarised_tokens=_tokens(items[:index]),
        kept_tokens=_tokens(items[index:]),
    )


def _start_of_turn(items: Sequence[CutItem], index: int) -> int:
    """Index of the user message whose turn a cut at `index` would part; else `index` itself."""
    if _begins_turn(items[index]):
        return index
    for earlier in range(index - 1, -1, -1):
        if items[earlier].kind in HEAD_KINDS:
            break
        if any(map(_speaks, items[earlier].messages)):
            return earlier
    return index


def _begins_turn(item: CutItem) -> bool:
    first = next(
        (
            message
            for message in item.messages
            if _speaks(message) or (message.role == "assistant" and counts(message))
        ),
        None,
    )
    return first is not None and _speaks(first)


def _ids(items: Sequence[CutItem]) -> tuple[str, ...]:
    return tuple(item.id for item in items if item.kind not in HEAD_KINDS)


def _tokens(items: Sequence[CutItem]) -> int:
    return sum(item.tokens for item in items if item.kind not in HEAD_KINDS)
