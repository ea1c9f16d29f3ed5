"""Which edits act, and what their targets contribute from then on (rules 1.4 and 2)."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from foldlog_events.messages import Message
from foldlog_projections.state import ERASED, Active


class ActingEdit(NamedTuple):
    """What an edit makes its target contribute, and from which version on."""

    version: int
    """Of the entry that says so; `ERASED` for a tombstone, which outranks every edit."""
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
    winning = {
        edit.target: ActingEdit(entry.version, edit.replace or ())
        for entry in without_repeats(in_range)
        for edit in entry.edits
    }
    return winning | {target: ActingEdit(ERASED, ()) for target in erased(in_range)}


def erased(in_range: Iterable[Active]) -> frozenset[str]:
    """The ids that tombstones name (rule 2.5)."""
    return frozenset(entry.erases for entry in in_range if entry.erases)


def edited(entry: Active, winning: dict[str, ActingEdit]) -> Active:
    """The entry as the winning edit of its id leaves it."""
    edit = winning.get(entry.id)
    if edit is None or edit.version <= max(entry.version, entry.edited_at):
        return entry
    return msgspec.structs.replace(
        entry, messages=edit.messages, patch=None, edited_at=edit.version
    )


def shows_nothing(entry: Active) -> Active:
    """The entry as a tombstone leaves it."""
    return msgspec.structs.replace(entry, messages=(), patch=None, edited_at=ERASED)
