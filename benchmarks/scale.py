"""A model of foldlog past one machine: `python -m benchmarks.scale`.

Conversations arrive, are active for a while and rest; every second each stream gets what its
partitions hold of them. What a stream, a node and a worker can do is taken from measurements of
this folder's benchmarks. The model says how full each is, and which is full first.
"""

import argparse
import random
from collections.abc import Iterator, Sequence

import msgspec
from rich.console import Console
from rich.table import Table


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What one of each can do, as measured on two shared cores (see docs/scale.md)."""

    name: str
    appends_per_stream: float
    """Entries a second from 64 writers at once, every one on disk."""
    appends_per_node: float
    """The same over four streams of one node."""
    views_per_node: float
    """Values stored a second, of `view_bytes` each."""
    entries_per_projector: float = 5_900
    subject_bytes: float = 260
    """Memory of a node for a subject it has in its index."""
    entry_bytes: float = 1_270
    view_bytes: float = 60_000
    memory_per_node: float = 64e9
    disk_per_node: float = 8e12


SLOW_DISK = Figures(
    name="an fsync takes 1.5 ms",
    appends_per_stream=1_000,
    appends_per_node=6_000,
    views_per_node=480,
)
NO_WAIT = Figures(
    name="an fsync costs nothing",
    appends_per_stream=33_000,
    appends_per_node=32_000,
    views_per_node=5_500,
)


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for."""

    conversations: int = 10_000_000
    entries_per_second: float = 100_000
    days: float = 30
    """How long entries are kept on the nodes before older ones go elsewhere."""
    seconds_between_entries: float = 5.0
    """Of an active conversation."""
    seconds_between_views: float = 0.05
    """The least time between two stored views of a conversation."""


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """What is there to serve it."""

    name: str
    partitions: int
    streams: int
    nodes: int
    replicas: int
    projectors: int


LAYOUTS = (
    Layout(name="one node", partitions=16, streams=1, nodes=1, replicas=1, projectors=1),
    Layout(name="three nodes, R3", partitions=16, streams=3, nodes=3, replicas=3, projectors=3),
    Layout(name="16 streams, R3", partitions=16, streams=16, nodes=16, replicas=3, projectors=16),
    Layout(
        name="16 streams, 48 nodes", partitions=16, streams=16, nodes=48, replicas=3, projectors=48
    ),
    Layout(
        name="64 streams, 48 nodes", partitions=64, streams=64, nodes=48, replicas=3, projectors=64
    ),
)
SECONDS = 60


class Use(msgspec.Struct, frozen=True):
    """How much of a kind of thing is used, at its fullest; over 1 it is too little."""

    of: str
    share: float


def partition_loads(load: Load, partitions: int, chance: random.Random) -> Iterator[list[float]]:
    """Entries of each partition, second by second.

    A conversation is in one partition, so what is active decides: with few conversations the
    partitions differ, with many they are even.
    """
    active = max(1, round(load.entries_per_second * load.seconds_between_entries))
    homes = [0] * partitions
    for _ in range(active):
        homes[chance.randrange(partitions)] += 1
    for _ in range(SECONDS):
        moved = max(1, active // 300)  # a conversation is active for some five minutes
        for _ in range(moved):
            full = chance.choices(range(partitions), weights=homes)[0]
            homes[full] -= 1
            homes[chance.randrange(partitions)] += 1
        yield [
            max(
                0.0,
                chance.gauss(
                    home / load.seconds_between_entries,
                    (home / load.seconds_between_entries) ** 0.5,
                ),
            )
            for home in homes
        ]


def simulate(load: Load, layout: Layout, figures: Figures, seed: int = 1) -> list[Use]:
    """How full each kind of thing is in the fullest of a minute's seconds, the fullest first."""
    chance = random.Random(seed)
    fullest_stream = fullest_node = fullest_projector = 0.0
    for loads in partition_loads(load, layout.partitions, chance):
        streams = _spread(loads, layout.streams)
        fullest_stream = max(fullest_stream, *streams)
        work = [stream * layout.replicas for stream in streams]
        each = _spread(_in_replicas(work, layout), layout.nodes)
        fullest_node = max(fullest_node, *each)
        fullest_projector = max(
            fullest_projector, *_spread(loads, min(layout.projectors, layout.partitions))
        )
    active = load.entries_per_second * load.seconds_between_entries
    # A view is stored for every batch that holds an entry of its conversation, so that where
    # conversations are many each entry costs one.
    views = min(active / load.seconds_between_views, load.entries_per_second)
    subjects = 2 * load.conversations * layout.replicas / layout.nodes
    stored = load.entries_per_second * 86_400 * load.days * figures.entry_bytes * layout.replicas
    uses = [
        Use("appends of a stream", fullest_stream / figures.appends_per_stream),
        Use("appends of a node", fullest_node / figures.appends_per_node),
        Use("a projector", fullest_projector / figures.entries_per_projector),
        Use("views of a node", views / layout.nodes / figures.views_per_node),
        Use("memory for subjects", subjects * figures.subject_bytes / figures.memory_per_node),
        Use("disk", stored / layout.nodes / figures.disk_per_node),
    ]
    return sorted(uses, key=lambda use: -use.share)


def _spread(loads: Sequence[float], places: int) -> list[float]:
    """Loads laid out over places in turn."""
    sums = [0.0] * places
    for number, load in enumerate(loads):
        sums[number % places] += load
    return sums


def _in_replicas(work: Sequence[float], layout: Layout) -> list[float]:
    """The work of each replica of each stream."""
    return [stream / layout.replicas for stream in work for _ in range(layout.replicas)]


def main() -> None:
    """Print how full each layout is."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--conversations", type=int, default=Load().conversations)
    parser.add_argument("--entries", type=float, default=Load().entries_per_second)
    parser.add_argument("--days", type=float, default=Load().days)
    parser.add_argument("--views-every", type=float, default=Load().seconds_between_views)
    options = parser.parse_args()
    load = Load(
        conversations=options.conversations,
        entries_per_second=options.entries,
        days=options.days,
        seconds_between_views=options.views_every,
    )
    for figures in (SLOW_DISK, NO_WAIT):
        title = f"{load.entries_per_second:,.0f} entries a second, {figures.name}"
        shown = Table("layout", "full first", "then", "then", "then", title=title)
        for layout in LAYOUTS:
            uses = simulate(load, layout, figures)
            shown.add_row(layout.name, *(f"{use.of}: {use.share:.0%}" for use in uses[:4]))
        Console(width=150).print(shown)


if __name__ == "__main__":
    main()
