"""Which places of two sequences belong together, and what changed in two lists of names."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, Protocol, TypeVar

Kind = Literal["entered", "left", "replaced", "reordered"]
"""`replaced` stands for the same thing with another content: an edited entry, a late result.
`reordered` is the same content at another place among those that stayed."""


class Pair(NamedTuple):
    """A place before and the place after that belongs to it."""

    before: int
    after: int


def without(
    old: Iterable[int], new: Iterable[int], pairs: Sequence[Pair]
) -> tuple[list[int], list[int]]:
    """The places that are in none of the pairs."""
    paired_before = {pair.before for pair in pairs}
    paired_after = {pair.after for pair in pairs}
    return (
        [place for place in old if place not in paired_before],
        [place for place in new if place not in paired_after],
    )


def in_order(pairs: Sequence[Pair]) -> list[Pair]:
    """A longest run of pairs, given in the order before, that is in order after too."""
    ends: list[int] = []
    last: list[int] = []
    earlier: list[int] = []
    for index, pair in enumerate(pairs):
        length = bisect_left(ends, pair.after)
        earlier.append(last[length - 1] if length else -1)
        ends[length : length + 1] = [pair.after]
        last[length : length + 1] = [index]
    run: list[Pair] = []
    index = last[-1] if last else -1
    while index >= 0:
        run.append(pairs[index])
        index = earlier[index]
    return run[::-1]


class _Named(Protocol):
    @property
    def name(self) -> str: ...


_T = TypeVar("_T", bound=_Named)


def by_name(
    before: Sequence[_T], after: Sequence[_T], same: Callable[[_T, _T], bool]
) -> Iterator[tuple[Kind, str, _T | None, _T | None]]:
    """What changed in a list of named things, in the order of reading; a name stands once."""
    old = {item.name: (place, item) for place, item in enumerate(before)}
    new = {item.name: (place, item) for place, item in enumerate(after)}
    common = [Pair(old[name][0], new[name][0]) for name in old if name in new]
    stayed = set(in_order(common))
    for name, (_, item) in old.items():
        if name not in new:
            yield "left", name, item, None
    for name, (place, item) in new.items():
        if name not in old:
            yield "entered", name, None, item
            continue
        place_before, item_before = old[name]
        if not same(item_before, item):
            yield "replaced", name, item_before, item
        if Pair(place_before, place) not in stayed:
            yield "reordered", name, item_before, item
