"""Which edits act, and what their targets contribute from then on (rules 1.4 and 2)."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from foldlog_events.messages import Message
from foldlog_projections.state import ERASED, Active


class ActingEdit(NamedTuple):
    """What an edit makes its target contribute."""

    written: int
    """Version of the entry that says so; it acts on what came before that."""
    rank: int
    """The same, but for a tombstone, which outranks every edit."""
    messages: tuple[Message, ...]


def without_repeats(entries: Iterable[Active]) -> Iterator[Active]:
    """The entries that count: the first of each id (rule 1.4)."""
    seen: set[str] = set()
    for entry in entries:
        if entry.id not in seen:
            seen.add(entry.id)
            yield entry


def acting(in_range: Iterable[Active]) -> dict[str, ActingEdit]:
    """The edit that wins for each target (rules 2.1 and 2.5)."""
    in_range = tuple(in_range)
    edits = {
        edit.target: ActingEdit(entry.version, entry.version, edit.replace or ())
        for entry in without_repeats(in_range)
        for edit in entry.edits
    }
    tombstones = {
        entry.erases: ActingEdit(entry.version, ERASED, ()) for entry in in_range if entry.erases
    }
    return edits | tombstones


def erased(in_range: Iterable[Active]) -> frozenset[str]:
    """The ids that contribute nothing, since a tombstone names them (rule 2.5)."""
    return frozenset(entry.erases for entry in in_range if entry.erases)


def edited(entry: Active, winning: dict[str, ActingEdit]) -> Active:
    """The entry as the winning edit of its id leaves it."""
    edit = winning.get(entry.id)
    if edit is None or edit.written <= entry.version or edit.rank <= entry.edited_at:
        return entry
    return msgspec.structs.replace(
        entry, messages=edit.messages, estimates=(), patch=None, edited_at=edit.rank
    )
