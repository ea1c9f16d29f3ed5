"""What changed between two views, and which entry caused each change.

A message is followed by the entry behind it, so that "ok" said twice stays two messages. The
cost is that of the part that changed: what both views begin and end with is compared and passed
over.
"""

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from foldlog_events.entries import (
    EditEntry,
    EntryReference,
    ErasedEntry,
    Recorded,
    SectionInForce,
    SystemEntry,
    kind_of,
)
from foldlog_events.messages import Message, Tool, ToolCallResponse
from foldlog_projections.alignment import Kind, Pair, by_name, in_order, without
from foldlog_projections.views import ContextView, Head

_encode = msgspec.json.Encoder().encode


class Cause(msgspec.Struct, frozen=True):
    """The entry between the views that a change comes from."""

    id: str
    version: int
    kind: str


class MessageChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message that is not what or where it was. Places count from 0 in their own view."""

    change: Kind
    place_before: int | None = None
    place_after: int | None = None
    before: Message | None = None
    after: Message | None = None
    origin_before: EntryReference | None = None
    origin_after: EntryReference | None = None
    cause: Cause | None = None
    """None where the entries between were not given."""


class SectionChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A prompt section whose text, exactness or order changed."""

    change: Kind
    name: str
    before: SectionInForce | None = None
    after: SectionInForce | None = None
    cause: Cause | None = None


class ToolChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool on offer that changed, or changed its place."""

    change: Kind
    name: str
    before: Tool | None = None
    after: Tool | None = None
    cause: Cause | None = None


class ContextDiff(msgspec.Struct, frozen=True, kw_only=True):
    """All that differs for a model between two views."""

    version_before: int
    version_after: int
    head_before: Head | None
    head_after: Head | None
    tokens_before: int
    tokens_after: int
    messages: tuple[MessageChange, ...]
    """In the order of reading: what left a place stands before what entered it."""
    sections: tuple[SectionChange, ...]
    tools: tuple[ToolChange, ...]

    @property
    def empty(self) -> bool:
        """Whether a model is shown the same."""
        return not (self.messages or self.sections or self.tools)


def diff(
    before: ContextView, after: ContextView, entries_between: Sequence[Recorded] = ()
) -> ContextDiff:
    """What entered, left, was replaced or reordered from one view to a later one.

    `entries_between` are the entries after the first view's version up to the second's, in
    order. One entry between is the cause of every change. Of several the cause is the edit of
    the entry behind the message (or of the call it answers), the entry behind it, or the new
    head, and where none of them is among these, the newest that changes how entries are seen.
    """
    causes = _Causes(entries_between, after.head)
    return ContextDiff(
        version_before=before.version,
        version_after=after.version,
        head_before=before.head,
        head_after=after.head,
        tokens_before=before.tokens,
        tokens_after=after.tokens,
        messages=_message_changes(before, after, causes),
        sections=tuple(
            SectionChange(
                change=change, name=name, before=old, after=new, cause=causes.of_section(old, new)
            )
            for change, name, old, new in by_name(before.sections, after.sections, _same_section)
        ),
        tools=tuple(
            ToolChange(change=change, name=name, before=old, after=new, cause=causes.of_tool(name))
            for change, name, old, new in by_name(before.tools, after.tools, _same_tool)
        ),
    )


class _Causes:
    """Which of the entries between explains a change."""

    def __init__(self, between: Sequence[Recorded], head: Head | None) -> None:
        self._between = between
        self._entries: dict[str, Recorded] = {}
        self._edits: dict[str, Recorded] = {}
        self._head: Recorded | None = None
        self._newest_shape: Recorded | None = None
        for recorded in between:
            entry = recorded.entry
            self._entries.setdefault(entry.id, recorded)
            if isinstance(entry, EditEntry):
                self._edits.update(dict.fromkeys((edit.target for edit in entry.edits), recorded))
            elif isinstance(entry, ErasedEntry):
                self._edits[entry.target] = recorded
            elif head is not None and recorded.version == head.version:
                self._head = recorded
            else:
                continue
            self._newest_shape = recorded

    def of_message(
        self, old: EntryReference | None, new: EntryReference | None, call: EntryReference | None
    ) -> Cause | None:
        """`old` and `new` are the origins; `call` is that of the call a result answers."""
        behind = self._entries.get(new.id) if new else None
        if old is None and behind is not None:
            return self._named(behind)
        edits = [
            self._edits[origin.id]
            for origin in (old, new, call)
            if origin is not None and origin.id in self._edits
        ]
        newest_edit = max(edits, key=lambda recorded: recorded.version, default=None)
        return self._named(newest_edit or behind or self._head)

    def of_section(self, old: SectionInForce | None, new: SectionInForce | None) -> Cause | None:
        if new is not None and new.entry in self._entries:
            return self._named(self._entries[new.entry])
        section = new or old
        patch = self._newest_patch(
            lambda entry: any(section and each.name == section.name for each in entry.sections)
        )
        edit = self._edits.get(old.entry) if old else None
        return self._named(patch or edit or self._head)

    def of_tool(self, name: str) -> Cause | None:
        patch = self._newest_patch(
            lambda entry: (
                name in entry.tools_removed or any(tool.name == name for tool in entry.tools_added)
            )
        )
        return self._named(patch or self._head)

    def _newest_patch(self, names_it: Callable[[SystemEntry], bool]) -> Recorded | None:
        since = self._head.version if self._head else 0
        return next(
            (
                recorded
                for recorded in reversed(self._between)
                if isinstance(recorded.entry, SystemEntry)
                and recorded.version > since
                and recorded.entry.id not in self._edits
                and names_it(recorded.entry)
            ),
            None,
        )

    def _named(self, recorded: Recorded | None) -> Cause | None:
        if not self._between:
            return None
        newest = self._between[-1]
        recorded = newest if len(self._between) == 1 else recorded or self._newest_shape or newest
        return Cause(recorded.entry.id, recorded.version, kind_of(recorded.entry))


class _Side(NamedTuple):
    """One of the two views, and the places in it of the messages that stayed."""

    view: ContextView
    stayed: Sequence[int]

    def gap(self, place: int) -> int:
        """Between which messages that stayed a place lies; the same number on both sides."""
        return bisect_right(self.stayed, place)


def _sides(before: ContextView, after: ContextView, stayed: Sequence[Pair]) -> tuple[_Side, _Side]:
    return (
        _Side(before, [pair.before for pair in stayed]),
        _Side(after, [pair.after for pair in stayed]),
    )


def _message_changes(
    before: ContextView, after: ContextView, causes: _Causes
) -> tuple[MessageChange, ...]:
    if before.messages == after.messages:
        return ()
    start, end_before, end_after = _changed_part(before, after)
    old, new = range(start, end_before), range(start, end_after)
    sides = _sides(before, after, ())
    same = _pair(*sides, old, new, _origin_and_content)
    # The same content of another entry is no change where it stands in order; elsewhere the
    # one has left and the other entered.
    alike = _pair(*sides, *without(old, new, same), _content)
    stayed = in_order(sorted([*same, *alike]))
    moved = [pair for pair in same if pair not in set(stayed)]
    sides = _sides(before, after, stayed)
    replaced: list[Pair] = []
    for key in (_origin, _answered_call, _leading):
        rest = without(old, new, [*stayed, *moved, *replaced])
        replaced += _pair(*sides, *rest, key)
    left, entered = without(old, new, [*stayed, *moved, *replaced])
    found: list[tuple[Kind, int | None, int | None]] = [
        *(("left", place, None) for place in left),
        *(("entered", None, place) for place in entered),
        *(
            ("reordered" if before.messages[old] == after.messages[new] else "replaced", old, new)
            for old, new in (*moved, *replaced)
        ),
    ]
    fixed = in_order(sorted([*stayed, *replaced]))
    sides = _sides(before, after, fixed)
    found.sort(key=lambda change: _reading_order(*sides, change[1], change[2]))
    return tuple(_message_change(before, after, causes, *change) for change in found)


def _message_change(
    before: ContextView,
    after: ContextView,
    causes: _Causes,
    change: Kind,
    old: int | None,
    new: int | None,
) -> MessageChange:
    old_message, old_origin, old_call = _at(before, old)
    new_message, new_origin, new_call = _at(after, new)
    return MessageChange(
        change=change,
        place_before=old,
        place_after=new,
        before=old_message,
        after=new_message,
        origin_before=old_origin,
        origin_after=new_origin,
        cause=causes.of_message(old_origin, new_origin, old_call or new_call),
    )


def _at(
    view: ContextView, place: int | None
) -> tuple[Message | None, EntryReference | None, EntryReference | None]:
    """The message, its origin, and the origin of the call that it answers, if it does."""
    if place is None:
        return None, None, None
    asking = place
    while asking > 0 and view.messages[asking].role == "tool":
        asking -= 1
    call = view.origins[asking] if asking < place else None
    return view.messages[place], view.origins[place], call


def _changed_part(before: ContextView, after: ContextView) -> tuple[int, int, int]:
    """Where the views begin to differ, and where in each of them they cease to."""
    end_before, end_after = len(before.messages), len(after.messages)
    start = 0
    while start < min(end_before, end_after) and _is_same(before, start, after, start):
        start += 1
    while min(end_before, end_after) > start and _is_same(
        before, end_before - 1, after, end_after - 1
    ):
        end_before -= 1
        end_after -= 1
    return start, end_before, end_after


def _is_same(before: ContextView, old: int, after: ContextView, new: int) -> bool:
    one, other = before.messages[old], after.messages[new]
    same_origin = before.origins[old].id == after.origins[new].id
    return same_origin and (one is other or one == other)


_Key = Callable[[_Side, int], Hashable]
"""What two places must have in common to belong together; None belongs to nothing."""


def _origin_and_content(side: _Side, place: int) -> Hashable:
    return _origin(side, place), _content(side, place)


def _content(side: _Side, place: int) -> Hashable:
    return _encode(side.view.messages[place])


def _origin(side: _Side, place: int) -> Hashable:
    return side.view.origins[place].id


def _answered_call(side: _Side, place: int) -> Hashable:
    """Call ids repeat within a conversation, so the same one is looked for nearby only."""
    for part in side.view.messages[place].parts:
        if isinstance(part, ToolCallResponse):
            return side.gap(place), part.id
    return None


def _leading(side: _Side, place: int) -> Hashable:
    return "leading" if place == 0 and side.view.messages[0].role == "system" else None


def _reading_order(
    before: _Side, after: _Side, old: int | None, new: int | None
) -> tuple[int, int, int]:
    """What left a gap stands before what entered it, and both after what they follow."""
    if new is None:
        return before.gap(old or 0), 1, old or 0
    gap = after.gap(new)
    is_fixed = gap > 0 and after.stayed[gap - 1] == new
    return gap, 0 if is_fixed else 2, new


def _pair(
    before: _Side, after: _Side, old: Iterable[int], new: Iterable[int], key: _Key
) -> list[Pair]:
    """Places with the same key, the first with the first."""
    waiting: dict[Hashable, deque[int]] = defaultdict(deque)
    for place in new:
        waiting[key(after, place)].append(place)
    waiting.pop(None, None)
    pairs = []
    for place in old:
        line = waiting.get(key(before, place))
        if line:
            pairs.append(Pair(place, line.popleft()))
    return pairs


def _same_section(one: SectionInForce, other: SectionInForce) -> bool:
    return (one.text, one.exact) == (other.text, other.exact)


def _same_tool(one: Tool, other: Tool) -> bool:
    return one == other


__all__ = [
    "Cause",
    "ContextDiff",
    "Kind",
    "MessageChange",
    "SectionChange",
    "ToolChange",
    "diff",
]
