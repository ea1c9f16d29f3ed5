"""Contexts: what a session reads before a request, beside the least it could read."""

import itertools

import msgspec
from nats.aio.client import Client

from benchmarks import bare
from benchmarks.measure import Row, milliseconds, row_of, side_by_side
from benchmarks.server import child, running_server
from benchmarks.workload import TENANT, compacted_history, entries, message
from foldlog.contexts import Contexts
from foldlog.session import Foldlog, connect
from foldlog_events.subjects import both_lanes

MESSAGES = 200
LONG = 100_000
COMPACTED_EVERY = 500
KEPT = 100
CELL = "projected"


async def store_view(foldlog: Foldlog, conversation: str) -> None:
    """What the projector would store of a conversation."""
    context = await Contexts(foldlog.log, foldlog.views).rebuilt(TENANT, conversation)
    found = await foldlog.views.get(TENANT, conversation)
    revision = found.revision if found else 0
    data = msgspec.json.encode(context.state())
    await foldlog.views.put(TENANT, conversation, data, revision=revision, version=context.version)


async def warm(*, short: bool) -> list[Row]:
    """A session that has its context asks for it again after one new entry."""
    pairs = 3 if short else 300
    with running_server() as url:
        async with connect(url) as foldlog, connect(url) as writing, bare.connected(url) as client:
            session, writer = foldlog.session("warm"), writing.session("warm")
            await writer.append(*entries(MESSAGES, "warm"))
            await session.context()
            numbers = itertools.count(MESSAGES)

            async def ours() -> float:
                await writer.append(message(next(numbers)))
                return await milliseconds(session.context())

            async def theirs() -> float:
                (recorded,) = await writer.append(message(next(numbers)))
                read = milliseconds(_read_one(client, recorded.version))
                taken = await read
                await session.context()
                return taken

            return [await side_by_side("context-warm", "ms", ours, theirs, pairs=pairs)]


async def _read_one(client: Client, version: int) -> None:
    query: dict[str, object] = {
        "seq": version,
        "batch": 1,
        "next_by_subj": both_lanes(TENANT, "warm"),
    }
    assert len(await bare.batched_get(client, query)) == 1


async def cold(*, short: bool) -> list[Row]:
    """A new process asks for the first time; connecting is not counted, for either."""
    pairs = 2 if short else 25
    with running_server() as url:
        async with connect(url) as foldlog:
            await foldlog.session(CELL).append(*entries(MESSAGES, CELL))
            await store_view(foldlog, CELL)
        return [await _in_new_processes("context-cold", url, url, "context", "view", pairs=pairs)]


async def history(*, short: bool) -> list[Row]:
    """Cold, with a hundred thousand entries behind the compaction, beside a thousand."""
    long, pairs = (2_000, 2) if short else (LONG, 15)
    with running_server(synced=False) as long_url, running_server(synced=False) as short_url:
        for url, count in ((long_url, long), (short_url, 1_000)):
            async with connect(url) as foldlog:
                history = compacted_history(count + KEPT, CELL, every=COMPACTED_EVERY, keep=KEPT)
                await bare.fill(url, history)
                await store_view(foldlog, CELL)
        stored_view = await _in_new_processes(
            "context-cold-100k", long_url, short_url, "context", "context", pairs=pairs
        )
        from_log = await _in_new_processes(
            "context-cold-100k-no-view", long_url, short_url, "rebuild", "rebuild", pairs=pairs
        )
        return [stored_view, from_log, await _past(long_url, long, short=short)]


async def _in_new_processes(
    name: str, url: str, other: str, ours: str, theirs: str, *, pairs: int
) -> Row:
    async def once(address: str, what: str) -> float:
        async with child("benchmarks.reader", address, what, CELL) as reader:
            return float(str(await reader.read()))

    return await side_by_side(
        name, "ms", lambda: once(url, ours), lambda: once(other, theirs), pairs=pairs
    )


async def _past(url: str, count: int, *, short: bool) -> Row:
    """A context as of the middle, beside reading its entries in one batched direct get."""
    pairs = 3 if short else 60
    async with connect(url) as foldlog, bare.connected(url) as client:
        session = foldlog.session(CELL)
        places = itertools.cycle(count // 2 + step * 137 for step in range(9))
        ranges = [await _active_range(foldlog, next(places)) for _ in range(9)]
        turns = itertools.cycle(ranges)
        values, baselines = [], []
        for _ in range(pairs):
            version, first = next(turns)
            values.append(await milliseconds(session.context(at=version)))
            subject = both_lanes(TENANT, CELL)
            read = bare.read_range(client, subject, first, version - first + 1)
            baselines.append(await milliseconds(read))
        return row_of("context-at", "ms", values, baselines)


async def _active_range(foldlog: Foldlog, version: int) -> tuple[int, int]:
    state = (await foldlog.contexts.at(TENANT, CELL, version)).state()
    return version, state.active[0].version
