"""A new process that reads a context once and says how long that took."""

import asyncio
import sys
import time

import msgspec

from benchmarks import bare
from benchmarks.server import say
from benchmarks.workload import TENANT
from foldlog.session import connect
from foldlog.topology import VIEWS_BUCKET
from foldlog_events.subjects import view_key
from foldlog_projections.state import FoldState


async def _context(url: str, conversation: str) -> float:
    async with connect(url) as foldlog:
        session = foldlog.session(conversation)
        started = time.perf_counter()
        await session.context()
        return time.perf_counter() - started


async def _rebuild(url: str, conversation: str) -> float:
    async with connect(url) as foldlog:
        started = time.perf_counter()
        (await foldlog.contexts.rebuilt(TENANT, conversation)).view()
        return time.perf_counter() - started


async def _view(url: str, conversation: str) -> float:
    async with bare.connected(url) as client:
        store = await client.jetstream().key_value(VIEWS_BUCKET)
        decoder = msgspec.json.Decoder(FoldState)
        started = time.perf_counter()
        found = await store.get(view_key(TENANT, conversation))
        decoder.decode(found.value or b"")
        return time.perf_counter() - started


_READS = {"context": _context, "rebuild": _rebuild, "view": _view}


if __name__ == "__main__":
    say(asyncio.run(_READS[sys.argv[2]](sys.argv[1], sys.argv[3])) * 1000)
