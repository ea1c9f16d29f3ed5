"""Appending: foldlog's sessions beside nats-py publishing the same bytes."""

import asyncio
import contextlib
import itertools
import statistics
from collections.abc import Sequence
from functools import cache

from nats.aio.client import Client

from benchmarks import bare
from benchmarks.measure import Row, alone, rate_of, row_of, side_by_side
from benchmarks.server import Child, child, running_server
from benchmarks.workload import TENANT, Stored, entries, message, stored
from foldlog.session import Foldlog, Session, connect
from foldlog_events.subjects import subject_of

PROCESSES = 8
_names = itertools.count()


def _fresh(name: str) -> str:
    return f"{name}-{next(_names)}"


class _Ours:
    """Appends the next message of a conversation."""

    def __init__(self, foldlog: Foldlog) -> None:
        self._session: Session = foldlog.session(_fresh("ours"))
        self._number = itertools.count()

    async def one(self) -> int:
        await self._session.append(message(next(self._number)))
        return 1

    async def turn(self) -> int:
        start = 5 * next(self._number)
        await self._session.append(*entries(5, self._session.conversation, start=start))
        return 1


@cache
def _ready() -> tuple[Stored, ...]:
    """Entries as bytes: nats-py is spared the making of them."""
    return tuple(stored(entry) for entry in entries(64, "theirs"))


class _Theirs:
    """Publishes one entry after the other to a subject of its own."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._js = client.jetstream()
        name = _fresh("theirs")
        self._subject = subject_of(TENANT, name, "log")
        self._id = f"{TENANT}.{name}.0191f0c0-0000-7000-8000-"
        self._number = itertools.count()
        self._last = 0

    def _next(self) -> Stored:
        number = next(self._number)
        return Stored(self._subject, _ready()[number % 64].data, f"{self._id}{number:012}")

    async def one(self) -> int:
        self._last = await bare.publish(self._js, self._next(), self._last)
        return 1

    async def turn(self) -> int:
        turn = [self._next() for _ in range(5)]
        self._last = await bare.publish_batch(self._client, turn, self._last)
        return 1


async def one(*, short: bool) -> list[Row]:
    """One writer, one entry at a time."""
    seconds, pairs = (0.05, 2) if short else (0.1, 81)
    with running_server() as url:
        async with connect(url) as foldlog, bare.connected(url) as client:
            ours, theirs = _Ours(foldlog), _Theirs(client)
            row = await side_by_side(
                "append",
                "entries/s",
                lambda: rate_of(ours.one, seconds),
                lambda: rate_of(theirs.one, seconds),
                pairs=pairs,
            )
    return [row]


async def many(*, short: bool) -> list[Row]:
    """64 conversations at once in one process."""
    seconds, pairs = (0.05, 2) if short else (0.2, 61)
    with running_server() as url:
        async with connect(url) as foldlog, bare.connected(url) as client:
            ours = [_Ours(foldlog) for _ in range(64)]
            theirs = [_Theirs(client) for _ in range(64)]

            async def at_once(writers: Sequence[_Ours | _Theirs]) -> float:
                return sum(await asyncio.gather(*(rate_of(one.one, seconds) for one in writers)))

            row = await side_by_side(
                "append-64",
                "entries/s",
                lambda: at_once(ours),
                lambda: at_once(theirs),
                pairs=pairs,
            )
    return [row]


async def turn(*, short: bool) -> list[Row]:
    """A turn of five entries, stored as one."""
    seconds, pairs = (0.05, 2) if short else (0.15, 61)
    with running_server() as url:
        async with connect(url) as foldlog, bare.connected(url) as client:
            ours, theirs = _Ours(foldlog), _Theirs(client)
            row = await side_by_side(
                "append-turn-of-5",
                "turns/s",
                lambda: rate_of(ours.turn, seconds),
                lambda: rate_of(theirs.turn, seconds),
                pairs=pairs,
            )
    return [row]


async def contended(*, short: bool) -> list[Row]:
    """Eight processes write to one conversation, beside one actor that does it for all."""
    seconds, pairs = (0.3, 1) if short else (2.0, 7)
    totals: list[float] = []
    actors: list[float] = []
    shares: list[float] = []
    with running_server() as url:
        async with contextlib.AsyncExitStack() as stack:
            writers: list[Child] = [
                await stack.enter_async_context(child("benchmarks.writer", url))
                for _ in range(PROCESSES)
            ]
            client = await stack.enter_async_context(bare.connected(url))
            for _ in range(pairs):
                order = {"conversation": _fresh("shared"), "seconds": seconds}
                for writer in writers:
                    await writer.write(order)
                counts = [int(str(await writer.read())) for writer in writers]
                totals.append(sum(counts) / seconds)
                shares.append(min(counts) / max(1.0, statistics.mean(counts)))
                actor = _Theirs(client)
                actors.append(await rate_of(actor.one, seconds))
    return [
        row_of("append-8-processes", "entries/s", totals, actors),
        alone("append-8-processes-slowest", "of the mean", shares),
    ]
