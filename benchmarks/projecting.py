"""The projector: how fast it follows, beside a subscriber that only decodes."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Iterator

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig, DeliverPolicy
from uuid_utils import uuid7

from benchmarks import bare
from benchmarks.measure import Row, alone, row_of
from benchmarks.server import child, running_server
from benchmarks.workload import TENANT, Stored, entry_of, message, stored
from foldlog.broker import Broker
from foldlog.errors import BrokerRefused
from foldlog.projector import CONSUMER
from foldlog.session import connect
from foldlog.topology import ENTRIES, VIEWS_BUCKET
from foldlog.views import VERSION
from foldlog_events.codec import encode
from foldlog_events.subjects import message_id, subject_of

CONVERSATIONS = 500
DECODING = "decoding"
"""Consumer of the subscriber that only decodes."""


def interleaved(count: int, conversations: int) -> Iterator[Stored]:
    """Entries of conversations that all go on at the same time."""
    for number in range(count):
        yield stored(entry_of(number // conversations, f"c{number % conversations}"))


def in_waves(count: int, each: int, at_once: int) -> Iterator[Stored]:
    """Entries of conversations of `each` entries, `at_once` of them going on at a time.

    The bytes of an entry are made once for each place in a conversation, and its names put in.
    """
    patterns = [entry_of(number, "CONVERSATION") for number in range(each)]
    encoded = [(encode(entry), entry.id.encode()) for entry in patterns]
    for wave in range(count // (each * at_once)):
        for number, one in itertools.product(range(each), range(at_once)):
            name, entry_id = f"w{wave}-{one}", str(uuid7())
            data, id_there = encoded[number]
            data = data.replace(b"CONVERSATION", name.encode(), 1)
            data = data.replace(id_there, entry_id.encode(), 1)
            subject = subject_of(TENANT, name, "log")
            yield Stored(subject, data, message_id(TENANT, name, entry_id))


async def drained(broker: Broker, consumer: str) -> None:
    """Returns once a consumer has taken and acknowledged everything."""
    while True:
        try:
            info = await broker.api(f"CONSUMER.INFO.{ENTRIES}.{consumer}")
        except BrokerRefused:  # it is not made yet
            info = {"num_pending": 1, "num_ack_pending": 0, "delivered": {"stream_seq": 0}}
        if not info["num_pending"] and not info["num_ack_pending"]:
            return
        await asyncio.sleep(0.01)


async def _time_to_drain(url: str, broker: Broker, workers: list[str], consumer: str) -> float:
    """Seconds from the first entry taken to the last one acknowledged, views stored."""
    await _clear(broker, consumer)
    children = [
        child(module, url, FOLDLOG_URL=url, FOLDLOG_LOG_LEVEL="error") for module in workers
    ]
    for one in children:
        await one.__aenter__()
    try:
        await _started(broker, consumer)
        started = time.perf_counter()
        await asyncio.wait_for(drained(broker, consumer), 900)
        return time.perf_counter() - started
    finally:
        for one in children:
            await one.__aexit__(None, None, None)


async def _clear(broker: Broker, consumer: str) -> None:
    """As before the first start: no consumer, no views."""
    with contextlib.suppress(BrokerRefused):
        await broker.api(f"CONSUMER.DELETE.{ENTRIES}.{consumer}")
    await broker.api(f"STREAM.PURGE.KV_{VIEWS_BUCKET}")


async def _started(broker: Broker, consumer: str) -> None:
    while True:
        try:
            info = await broker.api(f"CONSUMER.INFO.{ENTRIES}.{consumer}")
            if info["delivered"]["stream_seq"] > 0:
                return
        except BrokerRefused:
            pass
        await asyncio.sleep(0.002)


PROJECTOR = "foldlog.projector"
SUBSCRIBER = "benchmarks.subscriber"


async def projector(*, short: bool) -> list[Row]:
    """Entries a second of one worker and of two, from a backlog of 500 conversations."""
    count, pairs = (1_000, 1) if short else (20_000, 3)
    one: list[float] = []
    two: list[float] = []
    decoding: list[float] = []
    with running_server() as url:
        async with connect(url) as foldlog:
            await bare.fill(url, interleaved(count, CONVERSATIONS))
            for _ in range(pairs):
                for workers, consumer, rates in (
                    ([SUBSCRIBER], DECODING, decoding),
                    ([PROJECTOR], CONSUMER, one),
                    ([PROJECTOR, PROJECTOR], CONSUMER, two),
                ):
                    taken = await _time_to_drain(url, foldlog.broker, workers, consumer)
                    rates.append(count / taken)
    return [
        row_of("projector", "entries/s", one, decoding),
        row_of("projector-2-workers", "entries/s", two, one),
    ]


async def rebuild(*, short: bool) -> list[Row]:
    """All views from a long log."""
    count = 4_000 if short else 1_000_000
    each, at_once = (20, 20) if short else (100, 200)
    with running_server(synced=False) as url:
        async with connect(url) as foldlog:
            await bare.fill(url, in_waves(count, each, at_once))
            bare_time = await _time_to_drain(url, foldlog.broker, [SUBSCRIBER], DECODING)
            ours = await _time_to_drain(url, foldlog.broker, [PROJECTOR], CONSUMER)
    return [row_of("rebuild-1M", "s", [ours], [bare_time])]


async def lag(*, short: bool) -> list[Row]:
    """From an acknowledged append to the view that holds it, at 500 entries a second."""
    seconds, per_second, conversations = (2, 100, 10) if short else (20, 500, 100)
    with running_server() as url:
        async with connect(url) as foldlog, bare.connected(url) as client:
            seen = await _watch_views(client)
            async with child(PROJECTOR, FOLDLOG_URL=url, FOLDLOG_LOG_LEVEL="error"):
                acknowledged: list[tuple[str, int, float]] = []

                async def append(number: int) -> None:
                    conversation = f"c{number % conversations}"
                    session = foldlog.session(conversation)
                    (recorded,) = await session.append(message(number // conversations))
                    acknowledged.append((conversation, recorded.version, time.perf_counter()))

                started = time.perf_counter()
                async with asyncio.TaskGroup() as tasks:
                    for number in range(seconds * per_second):
                        due = started + number / per_second
                        await asyncio.sleep(max(0.0, due - time.perf_counter()))
                        tasks.create_task(append(number))
                await asyncio.wait_for(_all_seen(seen, acknowledged), 60)
    # The first second is the projector's own start.
    lags = sorted(
        1000 * max(0.0, seen_at(seen[conversation], version) - at)
        for conversation, version, at in acknowledged
        if at > started + seconds / 4
    )
    middle, late = (lags[int(share * (len(lags) - 1))] for share in (0.5, 0.99))
    return [alone("view-lag-p50", "ms", [middle]), alone("view-lag-p99", "ms", [late])]


Seen = dict[str, list[tuple[int, float]]]


async def _watch_views(client: Client) -> Seen:
    """By conversation: the versions its stored view had, and when each was seen."""
    seen: Seen = {}

    async def arrived(found: Msg) -> None:
        now = time.perf_counter()
        conversation = found.subject.rpartition(".")[2]
        version = int((found.headers or {})[VERSION])
        seen.setdefault(conversation, []).append((version, now))

    await client.jetstream().subscribe(
        f"$KV.{VIEWS_BUCKET}.>",
        cb=arrived,
        ordered_consumer=False,
        # Without the values, which would keep this process busy.
        config=ConsumerConfig(deliver_policy=DeliverPolicy.NEW, headers_only=True),
    )
    return seen


def seen_at(seen: list[tuple[int, float]], version: int) -> float:
    """When a view first held a version."""
    return next((at for held, at in seen if held >= version), float("inf"))


async def _all_seen(seen: Seen, acknowledged: list[tuple[str, int, float]]) -> None:
    last = {conversation: version for conversation, version, _ in acknowledged}
    while any(
        conversation not in seen or seen[conversation][-1][0] < version
        for conversation, version in last.items()
    ):
        await asyncio.sleep(0.02)
