"""A projector that is killed, or whose broker is in trouble, leaves no view behind."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from foldlog import Foldlog, connect, projector, user
from foldlog.announcing import Announcer
from foldlog.errors import BrokerRefused
from foldlog.reading import EXPECTED
from foldlog.settings import Settings
from foldlog.topology import ENTRIES
from foldlog.views import Views
from foldlog_events.codec import encode
from foldlog_events.entries import Recorded
from foldlog_events.subjects import subject_of
from foldlog_projections.views import ContextView
from tests.workers import eventually, running_projector

LARGE = tuple(user(f"{number} " + "words " * 1_000) for number in range(60))


@pytest.fixture
async def foldlog(nats_url: str) -> AsyncIterator[Foldlog]:
    async with connect(nats_url) as opened:
        yield opened


async def stored_version(foldlog: Foldlog) -> int:
    context = await foldlog.contexts.stored("default", "c")
    return context.version if context else 0


async def consumer(foldlog: Foldlog) -> dict[str, Any]:
    return await foldlog.broker.api(f"CONSUMER.INFO.{ENTRIES}.{projector.CONSUMER}")


async def test_what_no_stored_view_holds_is_not_acknowledged(
    nats_url: str, foldlog: Foldlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the faults: a killed projector had acknowledged what it had only in memory."""
    monkeypatch.setattr(projector, "REST", 3_600.0)
    session = foldlog.session("c")
    first = [(await session.append(message))[-1].version for message in LARGE]
    announced: list[int] = []
    announce = Announcer.announce

    async def noting(announcer: Announcer, view: ContextView) -> None:
        announced.append(view.version)
        await announce(announcer, view)

    monkeypatch.setattr(Announcer, "announce", noting)
    async with running_projector(nats_url):
        await eventually(lambda: is_at(foldlog, first[-1]))
        await session.append(user("one more, of too many to be stored at once"))

        async def is_folded() -> bool:
            return first[-1] + 1 in announced

        await eventually(is_folded)
        assert await stored_version(foldlog) == first[-1]
        assert (await consumer(foldlog))["num_ack_pending"] == 1
    # Told to stop, it stores and acknowledges.
    assert await stored_version(foldlog) == first[-1] + 1
    assert (await consumer(foldlog))["num_ack_pending"] == 0


async def test_trouble_of_the_broker_is_no_fault_of_an_entry(
    nats_url: str, foldlog: Foldlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the faults: with a full disk, entries went to DEAD and views stayed behind."""
    monkeypatch.setattr(projector, "RETRY_DELAY", 0.01)
    put, refusals = Views.put, 0

    async def refused(views: Views, *arguments: Any, **options: Any) -> int:
        nonlocal refusals
        refusals += 1
        if refusals <= 2 * projector.TRIES:
            raise BrokerRefused(10023, "insufficient resources")
        return await put(views, *arguments, **options)

    monkeypatch.setattr(Views, "put", refused)
    (recorded,) = await foldlog.session("c").append(user("hello"))
    async with running_projector(nats_url):
        await eventually(lambda: is_at(foldlog, recorded.version))
    assert refusals > 2 * projector.TRIES
    assert not await foldlog.records.dead()


async def is_at(foldlog: Foldlog, version: int) -> bool:
    return await stored_version(foldlog) == version


class _Delivered:
    """A delivery that notes what becomes of it; acknowledging lets others run."""

    def __init__(self, recorded: Recorded, order: list[str]) -> None:
        entry = recorded.entry
        self.subject = subject_of(entry.tenant, entry.conversation, "log")
        self.headers = {EXPECTED: str(recorded.predecessor)}
        self.data = encode(entry)
        self.metadata = SimpleNamespace(
            num_delivered=1, sequence=SimpleNamespace(stream=recorded.version)
        )
        self._name = entry.conversation
        self._order = order

    async def ack(self) -> None:
        self._order.append(f"acknowledged {self._name}")
        await asyncio.sleep(0)


async def test_a_rest_acknowledges_nothing_of_a_batch_that_is_not_folded_yet(
    foldlog: Foldlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker killed there would leave a view behind, and nobody to say so."""
    order: list[str] = []
    worker = projector.Projector(foldlog.broker, Settings())
    (recorded,) = await foldlog.session("c").append(user("one"))
    project = worker.projection.project

    async def resting_first(*batch: Any, **options: Any) -> Any:
        await worker.flush()
        order.append("folding")
        return await project(*batch, **options)

    monkeypatch.setattr(worker.projection, "project", resting_first)
    await worker.handle([cast(Any, _Delivered(recorded, order))])
    assert order == ["folding", "acknowledged c"]


async def test_a_batch_and_a_rest_may_settle_at_the_same_time(foldlog: Foldlog) -> None:
    order: list[str] = []
    names = [f"c{number}" for number in range(20)]
    worker = projector.Projector(foldlog.broker, Settings())
    recorded = [(await foldlog.session(name).append(user("one")))[0] for name in names]
    deliveries = [cast(Any, _Delivered(one, order)) for one in recorded]

    async def resting() -> None:
        while len(order) < len(names):
            await worker.flush()
            await asyncio.sleep(0)

    await asyncio.gather(resting(), resting(), worker.handle(deliveries))
    assert sorted(order) == sorted(f"acknowledged {name}" for name in names)
