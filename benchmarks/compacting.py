"""Compaction without the model's time: from pressure to a committed compaction."""

import asyncio
import contextlib
import time

from nats.aio.client import Client

from benchmarks import bare
from benchmarks.measure import Row, milliseconds, row_of
from benchmarks.server import running_server
from benchmarks.workload import TENANT, entries, stored
from foldlog import announcing, compactor
from foldlog.attempt_log import AttemptLog
from foldlog.records import Records
from foldlog.service import Gone, broker_with_streams, stream_broker
from foldlog.session import Foldlog, connect
from foldlog.settings import Settings
from foldlog.summarisers import SummaryRequest, SummaryResult
from foldlog.summarisers.extractive import Extractive
from foldlog_events.subjects import both_lanes
from foldlog_projections.pressure import Pressure

MESSAGES = 200


class _Prepared:
    """The summary that an extractive summariser made before; the time it takes is told apart."""

    def __init__(self) -> None:
        self.seconds = 0.0

    async def summarise(self, request: SummaryRequest) -> SummaryResult:
        started = time.perf_counter()
        result = await Extractive().summarise(request)
        self.seconds = time.perf_counter() - started
        return result


async def compaction(*, short: bool) -> list[Row]:
    """A context of 200 messages is compacted; the summariser's own time is taken off."""
    pairs = 2 if short else 25
    settings = Settings(policy={"preset": "default", "window": 32_000})
    values, baselines = [], []
    with running_server() as url:
        async with contextlib.AsyncExitStack() as stack:
            foldlog = await stack.enter_async_context(connect(url))
            client = await stack.enter_async_context(bare.connected(url))
            broker = await stack.enter_async_context(broker_with_streams(url, "compactor"))
            messages = stream_broker(url, "compactor", 30, Gone())
            summariser = _Prepared()
            worker = compactor.Compactor(broker, settings, summariser)
            app = compactor.application(worker, messages, settings.compactor_patience)
            await app.start()
            try:
                for number in range(pairs + 1):
                    conversation = f"compacted-{number}"
                    await foldlog.session(conversation).append(*entries(MESSAGES, conversation))
                    taken = await _pressure_to_committed(foldlog, conversation)
                    values.append(taken - 1000 * summariser.seconds)
                    baselines.append(await milliseconds(_three_round_trips(client, conversation)))
            finally:
                await app.stop()
    return [row_of("compaction", "ms", values[1:], baselines[1:])]


async def _pressure_to_committed(foldlog: Foldlog, conversation: str) -> float:
    records = Records(foldlog.broker)
    attempts = AttemptLog(records)
    session = foldlog.session(conversation)
    view = await session.context()
    pressure = Pressure(
        tenant=TENANT,
        conversation=conversation,
        version=view.version,
        base_version=view.base_version,
        head=None,
        tokens=view.tokens,
        soft=1,
        hard=1,
        level="hard",
        reason="manual",
    )
    committed = asyncio.Event()

    async def watch() -> None:
        async for recorded in session.watch(after=view.version):
            if recorded.version:
                committed.set()

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0.05)
    started = time.perf_counter()
    await announcing.publish(records, pressure)
    await asyncio.wait_for(committed.wait(), 30)
    taken = 1000 * (time.perf_counter() - started)
    watching.cancel()
    while (await attempts.read(TENANT, conversation))[-1].state == "started":
        await asyncio.sleep(0.005)
    return taken


async def _three_round_trips(client: Client, conversation: str) -> None:
    """The least there is: take what is to be compacted, store the compaction, note that."""
    js = client.jetstream()
    query: dict[str, object] = {
        "seq": 1,
        "batch": 1,
        "next_by_subj": both_lanes(TENANT, conversation),
    }
    await bare.batched_get(client, query)
    for number in range(2):
        await bare.publish(js, stored(entries(1, f"noted-{conversation}-{number}")[0]), 0)
