"""Rules 1, 9 and 10 of docs/fold.md a second time: which entries a context is made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from foldlog_events.entries import (
    SHAPE_KINDS,
    CompactionEntry,
    Entry,
    ForkEntry,
    HeadMarker,
    Recorded,
    ResetEntry,
)


@dataclass(frozen=True)
class Placed:
    """An entry in the line that a conversation is folded from."""

    version: int
    entry: Entry
    generation: int
    """0 for entries of the eldest ancestor, one more for each fork."""


@dataclass(frozen=True)
class Selected:
    """What rules 1 and 10 choose from a line."""

    head: Placed | None
    range: tuple[Placed, ...]
    stale: tuple[Placed, ...]
    """All stale compactions, in order."""

    @property
    def context(self) -> tuple[Placed, ...]:
        """The context entries: the head, then the range (1.3)."""
        return self.range if self.head is None else (self.head, *self.range)


def in_order(history: Sequence[Recorded]) -> list[Recorded]:
    """By version, whatever order they came in."""
    return sorted(history, key=lambda recorded: recorded.version)


def line_of(
    history: Sequence[Recorded], at: int, parents: Mapping[str, Sequence[Recorded]]
) -> list[Placed]:
    """The entries up to a version, those inherited from a parent first (9)."""
    own = [recorded for recorded in in_order(history) if recorded.version <= at]
    inherited: list[Placed] = []
    if own and isinstance(own[0].entry, ForkEntry):
        fork = own[0].entry
        inherited = line_of(parents[fork.parent], fork.parent_version, parents)
        return inherited + _placed(own, _generation(parents[fork.parent], parents) + 1)
    return _placed(own, 0)


def _placed(own: list[Recorded], generation: int) -> list[Placed]:
    return [Placed(recorded.version, recorded.entry, generation) for recorded in own]


def _generation(history: Sequence[Recorded], parents: Mapping[str, Sequence[Recorded]]) -> int:
    first = in_order(history)[0].entry if history else None
    if isinstance(first, ForkEntry):
        return _generation(parents[first.parent], parents) + 1
    return 0


# --- 1, 10: head, range, stale compactions -------------------------------------------------


def _is_marker(placed: Placed) -> bool:
    return isinstance(placed.entry, HeadMarker)


def select(line: list[Placed]) -> Selected:
    """Judges the head markers one after another, each by the range just before it."""
    markers: list[int] = []
    stale: list[Placed] = []
    for index, placed in enumerate(line):
        if isinstance(placed.entry, ResetEntry):
            markers.append(index)
        elif isinstance(placed.entry, CompactionEntry):
            if _is_stale(line, index, markers):
                stale.append(placed)
            else:
                markers.append(index)
    return Selected(
        head=line[markers[-1]] if markers else None,  # 1.1
        range=tuple(_range(line, markers)),
        stale=tuple(stale),
    )


def _is_stale(line: list[Placed], index: int, markers: list[int]) -> bool:
    placed = line[index]
    compaction = placed.entry
    assert isinstance(compaction, CompactionEntry)
    before = [
        other.version
        for other in line[:index]
        if isinstance(other.entry, SHAPE_KINDS) and other.generation == placed.generation
    ]
    last_shape = before[-1] if before else 0
    if compaction.base_version.shape != last_shape:  # 10.1
        return True
    kept = compaction.kept_from
    return (
        kept is not None
        and not any(  # 10.2
            (other.entry.id, other.version) == (kept.id, kept.version)
            for other in _range(line[:index], markers)
        )
    )


def _range(line: list[Placed], markers: list[int]) -> list[Placed]:
    """The range of a line whose effective head markers stand at these indexes (1.2)."""
    if not markers:
        return [placed for placed in line if not _is_marker(placed)]
    head = line[markers[-1]].entry
    after = [placed for placed in line[markers[-1] + 1 :] if not _is_marker(placed)]
    if isinstance(head, ResetEntry):
        return after
    assert isinstance(head, CompactionEntry)
    # What had left the range before the head stays out, with `kept_from` and without (11).
    before = _range(line[: markers[-1]], markers[:-1])
    if head.kept_from is None:
        return [placed for placed in before if placed.version > head.base_version.log] + after
    start = next(
        index
        for index, placed in enumerate(before)
        if (placed.entry.id, placed.version) == (head.kept_from.id, head.kept_from.version)
    )
    return before[start:] + after
