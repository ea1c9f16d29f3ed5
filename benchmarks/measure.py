"""Measuring two things side by side, so that whatever else the machine does falls on both."""

import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec

Measured = Callable[[], Awaitable[float]]
"""One measurement; every call makes a new one."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the results."""

    name: str
    value: float
    unit: str
    baseline: float | None
    """In the same unit, measured in the same run; None where the row stands for itself."""
    ratio: float | None
    """Median of the ratios of pairs measured one right after the other."""
    n: int
    """Pairs, or measurements where there is no baseline."""
    spread: float
    """Interquartile range of the ratios (without a baseline: of the values) over their median."""


def spread_of(values: Sequence[float]) -> float:
    """Interquartile range over the median; 0 for a single value."""
    if len(values) < 2:
        return 0.0
    lower, middle, upper = statistics.quantiles(values, n=4, method="inclusive")
    return (upper - lower) / middle if middle else 0.0


def row_of(name: str, unit: str, values: Sequence[float], baselines: Sequence[float]) -> Row:
    """A row from pairs of measurements."""
    ratios = [value / baseline for value, baseline in zip(values, baselines, strict=True)]
    return Row(
        name=name,
        value=statistics.median(values),
        unit=unit,
        baseline=statistics.median(baselines),
        ratio=statistics.median(ratios),
        n=len(ratios),
        spread=spread_of(ratios),
    )


def alone(name: str, unit: str, values: Sequence[float]) -> Row:
    """A row without a baseline."""
    return Row(
        name=name,
        value=statistics.median(values),
        unit=unit,
        baseline=None,
        ratio=None,
        n=len(values),
        spread=spread_of(values),
    )


async def side_by_side(
    name: str, unit: str, ours: Measured, theirs: Measured, *, pairs: int, warmups: int = 1
) -> Row:
    """Measure both in turn, each first in half of the pairs."""
    for _ in range(warmups):
        await ours()
        await theirs()
    values, baselines = [], []
    for number in range(pairs):
        gc.collect()
        if number % 2:
            baselines.append(await theirs())
            values.append(await ours())
        else:
            values.append(await ours())
            baselines.append(await theirs())
    return row_of(name, unit, values, baselines)


async def rate_of(step: Callable[[], Awaitable[int]], seconds: float) -> float:
    """Things done a second by repeating `step`, which says how many it did, for some seconds."""
    started = time.perf_counter()
    done = 0
    while (passed := time.perf_counter() - started) < seconds:
        done += await step()
    return done / passed


async def milliseconds(work: Awaitable[object]) -> float:
    """How long `work` takes."""
    started = time.perf_counter()
    await work
    return (time.perf_counter() - started) * 1000
