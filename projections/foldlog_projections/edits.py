"""Which edits act, and what their targets contribute from then on (rules 1.4 and 2)."""

from collections.abc import Iterable, Iterator

import msgspec

from foldlog_events.entries import Edit
from foldlog_projections.state import NEVER, Active


def without_repeats(entries: Iterable[Active]) -> Iterator[Active]:
    """The entries that count: the first of each id (rule 1.4)."""
    seen: set[str] = set()
    for entry in entries:
        if entry.id not in seen:
            seen.add(entry.id)
            yield entry


def acting(entries: Iterable[Active]) -> dict[str, tuple[int, int, Edit]]:
    """The edit that wins for each target, the version at which it was written, and the version
    that it counts as: an erasure counts as newest for ever (rules 2.1, 2.5)."""
    winning: dict[str, tuple[int, int, Edit]] = {}
    for entry in without_repeats(entries):
        for edit in entry.edits:
            rank = NEVER if entry.kind == "erased" else entry.version
            if edit.target not in winning or rank > winning[edit.target][1]:
                winning[edit.target] = (entry.version, rank, edit)
    return winning


def edited(entry: Active, winning: dict[str, tuple[int, int, Edit]]) -> Active:
    """The entry as the winning edit of its id leaves it."""
    if entry.id not in winning:
        return entry
    written, rank, edit = winning[entry.id]
    if written <= entry.version or rank <= entry.edited_at:
        return entry
    return msgspec.structs.replace(entry, messages=edit.replace or (), patch=None, edited_at=rank)
