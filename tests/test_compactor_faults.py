"""Pressure outlives a broker in trouble; an event that kills its workers is given up."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from nats.aio.msg import Msg

from foldlog import Foldlog, assistant, compactor, connect, user
from foldlog.announcing import publish
from foldlog.compactor import Compactor
from foldlog.contexts import Contexts
from foldlog.errors import RequestTimeout
from foldlog.summarisers.extractive import Extractive
from foldlog.topology import PRESSURE
from foldlog_projections.attempts import CompactionRecord
from foldlog_projections.fold import ContextFold
from foldlog_projections.policy import load
from foldlog_projections.pressure import Pressure, manual
from tests.workers import SMALL, eventually, running_compactor, small_settings


@pytest.fixture
async def foldlog(nats_url: str) -> AsyncIterator[Foldlog]:
    async with connect(nats_url) as opened:
        yield opened


async def pressed(foldlog: Foldlog) -> Pressure:
    session = foldlog.session("talk")
    for number in range(40):
        await session.append(user(f"Please look at order {number}, and only at that. " * 6))
        await session.append(assistant(f"Order {number} is paid, and it was sent on time. " * 6))
    return manual(await session.context(), load(SMALL))


async def test_trouble_of_the_broker_is_no_reason_to_give_pressure_up(
    nats_url: str, foldlog: Foldlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the faults: after five timeouts on a cluster without a quorum, it was in DEAD."""
    monkeypatch.setattr(compactor, "RETRY_DELAY", 0.01)
    pressure = await pressed(foldlog)
    current, timeouts = Contexts.current, 0

    async def troubled(contexts: Contexts, *whose: str, at_least: int = 0) -> ContextFold:
        nonlocal timeouts
        timeouts += 1
        if timeouts <= 2 * compactor.DELIVERIES:
            raise RequestTimeout("the broker sent nothing")
        return await current(contexts, *whose, at_least=at_least)

    monkeypatch.setattr(Contexts, "current", troubled)
    async with running_compactor(nats_url):
        await publish(foldlog.records, pressure)
        await eventually(lambda: is_committed(foldlog))
    assert timeouts > 2 * compactor.DELIVERIES
    assert not await foldlog.records.dead()


async def test_an_event_that_its_workers_die_of_is_given_up(foldlog: Foldlog) -> None:
    pressure = await pressed(foldlog)
    worker = Compactor(foldlog.broker, small_settings(), Extractive())
    delivery = Msg.Metadata(
        sequence=Msg.Metadata.SequencePair(consumer=20, stream=7),
        num_pending=0,
        num_delivered=compactor.DELIVERIES + 1,
        timestamp=datetime.now(UTC),
        stream=PRESSURE,
        consumer=compactor.CONSUMER,
    )
    for number in range(compactor.DELIVERIES):
        assert not await worker.has_killed(pressure, delivery)
        await foldlog.attempts.add(started(pressure, f"attempt {number}"))
    assert await worker.has_killed(pressure, delivery)


async def is_committed(foldlog: Foldlog) -> bool:
    records = await foldlog.attempts.read("default", "talk")
    return any(one.state in ("committed", "pruned") for one in records)


def started(pressure: Pressure, identifier: str) -> CompactionRecord:
    return CompactionRecord(
        id=identifier,
        tenant=pressure.tenant,
        conversation=pressure.conversation,
        state="started",
        time=datetime.now(UTC),
        version=pressure.version,
        request=7,
    )
