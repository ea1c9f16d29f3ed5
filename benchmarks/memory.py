"""The memory of a projector: bounded by its settings, whatever it has seen."""

import asyncio
import sys
from pathlib import Path

from benchmarks.measure import Row, alone, row_of
from benchmarks.server import child, running_server, say
from benchmarks.workload import TENANT, entry_of
from foldlog.contexts import Contexts
from foldlog.projection import ConversationKey, Projection
from foldlog.session import connect
from foldlog_events.entries import Recorded
from foldlog_projections.views import ContextView


async def memory(*, short: bool) -> list[Row]:
    """Resident MiB of a projector that has seen ten thousand conversations, and ten times that."""
    first, last = (500, 1_500) if short else (10_000, 100_000)
    with running_server(synced=False) as url:
        async with child("benchmarks.memory", url, first, last) as process:
            samples = [await process.read(900) for _ in range(last // first)]
    sizes = [float(str(sample)) for sample in samples]
    return [
        alone("projector-memory-10k", "MiB", sizes[:1]),
        row_of("projector-memory-100k", "MiB", sizes[-1:], sizes[:1]),
    ]


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


async def _see(url: str, step: int, last: int) -> None:
    """Project a first entry of one conversation after the other, with the default settings."""

    async def nothing(view: ContextView) -> None:
        pass

    async with connect(url) as foldlog:
        projection = Projection(Contexts(foldlog.log, foldlog.views), foldlog.views, nothing)
        version = 0
        for start in range(0, last, step):
            for batch_start in range(start, start + step, 500):
                batch = {}
                for number in range(batch_start, batch_start + 500):
                    version += 1
                    name = f"seen-{number}"
                    entry = entry_of(number, name)
                    batch[ConversationKey(TENANT, name)] = [Recorded(version, entry, 0)]
                failed = await projection.project(batch)
                assert not failed, failed
            say(_resident())


if __name__ == "__main__":
    asyncio.run(_see(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
