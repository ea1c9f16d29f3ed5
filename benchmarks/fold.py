"""The fold, decoding included, beside msgspec decoding the same bytes into the same types."""

import time
from collections.abc import Callable

import msgspec

from benchmarks.measure import Row, side_by_side
from benchmarks.workload import TENANT, entries
from foldlog_events.codec import decode, encode
from foldlog_events.entries import KnownEntry
from foldlog_projections.fold import ContextFold, empty


async def fold(*, short: bool) -> list[Row]:
    """A thousand entries, from bytes to a view."""
    count, pairs = (50, 2) if short else (1_000, 101)
    data = [encode(entry) for entry in entries(count, "folded")]
    decoder = msgspec.json.Decoder(KnownEntry)

    def ours() -> None:
        context = ContextFold(empty(TENANT, "folded"))
        for version, encoded in enumerate(data, 1):
            context.apply(version, decode(encoded))
        context.view()

    def theirs() -> None:
        for encoded in data:
            decoder.decode(encoded)

    async def timed(work: Callable[[], None]) -> float:
        started = time.perf_counter()
        work()
        return (time.perf_counter() - started) / count * 1e6

    row = await side_by_side(
        "fold", "µs an entry", lambda: timed(ours), lambda: timed(theirs), pairs=pairs
    )
    return [row]
