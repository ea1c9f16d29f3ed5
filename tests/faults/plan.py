"""What one run does: who writes how much, and which fault comes when. A function of the seed."""

import random
from collections.abc import Sequence
from typing import Literal, get_args

import msgspec

Kind = Literal[
    "kill writer",
    "freeze writer",
    "kill projector",
    "freeze projector",
    "kill compactor",
    "freeze compactor",
    "kill server",
    "freeze server",
    "restart all servers",
    "leader steps down",
    "kill leader",
    "lose acknowledgements",
    "delay answers",
    "hold requests",
    "cut connections",
    "full disk",
    "delete consumer",
    "clock hours off",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
NEED_CLUSTER: frozenset[Kind] = frozenset({"leader steps down", "kill leader"})
THROUGHOUT: frozenset[Kind] = frozenset({"clock hours off"})
"""Faults that last for the whole run."""

AVERAGE_BATCH = 32
LARGEST_BATCH = 2 * AVERAGE_BATCH - 1


class Fault(msgspec.Struct, frozen=True):
    """One fault: `target` is taken modulo the number of things it can hit."""

    at: float
    """Seconds after the writers have begun."""
    kind: Kind
    target: int
    seconds: float
    """How long it lasts, where it does."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    seed: int
    nodes: int
    faults: tuple[Fault, ...]
    seconds: float
    """How long the writers take without faults."""
    appends: int
    """Of each writer."""
    clocks: tuple[float, ...]
    """Hours by which each writer's clock is ahead; there are as many writers."""
    conversations: tuple[str, ...]
    projectors: int = 2
    compactors: int = 2
    naive: bool = False
    """The writers are the naive client of the tests."""


def plan(
    seed: int,
    nodes: int,
    *,
    entries: int = 11_000,
    seconds: float = 8.0,
    faults: int = 8,
    only: Sequence[Kind] = (),
) -> Plan:
    """The run of a seed: about `entries` entries in `seconds`, with `faults` faults.

    `only` are the kinds to choose from, all by default.
    """
    random_ = random.Random(f"{seed} {nodes}")
    writers = 4
    kinds = [kind for kind in only or KINDS if kind not in THROUGHOUT]
    if nodes == 1:
        kinds = [kind for kind in kinds if kind not in NEED_CLUSTER]
    # Each run takes its share of all kinds, so that fifty runs hold every kind many times.
    first = seed * faults
    chosen = [kinds[(first + number) % len(kinds)] for number in range(faults // 2)]
    chosen += random_.choices(kinds, k=faults - len(chosen))
    random_.shuffle(chosen)
    return Plan(
        seed=seed,
        nodes=nodes,
        faults=tuple(
            sorted((_fault(random_, kind, seconds) for kind in chosen), key=lambda fault: fault.at)
        ),
        seconds=seconds,
        appends=max(1, entries // (writers * AVERAGE_BATCH)),
        clocks=tuple(
            random_.choice((-26.0, -5.0, 5.0, 26.0)) if number == 0 else 0.0
            for number in range(writers)
        ),
        conversations=tuple(f"conversation {number}" for number in range(6)),
    )


def _fault(random_: random.Random, kind: Kind, seconds: float) -> Fault:
    return Fault(
        at=round(random_.uniform(0.3, seconds * 0.9), 2),
        kind=kind,
        target=random_.randrange(1_000_000),
        seconds=round(random_.uniform(0.3, 3.0), 2),
    )
