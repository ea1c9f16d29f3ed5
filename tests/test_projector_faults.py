"""A projector that is killed, or whose broker is in trouble, leaves no view behind."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from foldlog import Foldlog, connect, projector, user
from foldlog.announcing import Announcer
from foldlog.errors import BrokerRefused
from foldlog.topology import ENTRIES
from foldlog.views import Views
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
