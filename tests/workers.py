"""Projectors and compactors inside a test's own process."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from foldlog import compactor, projector
from foldlog.service import Gone, broker_with_streams, stream_broker
from foldlog.settings import Settings
from foldlog.summarisers import Summariser, SummaryRequest, SummaryResult
from foldlog.summarisers.extractive import Extractive

SMALL = {"preset": "default", "window": 4_000}


def small_settings(**values: object) -> Settings:
    """Settings under which a few pages of text are too much."""
    return Settings(**{"policy": SMALL, "compactor_patience": 3.0, **values})  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def running_projector(url: str, settings: Settings | None = None) -> AsyncIterator[None]:
    settings = settings or small_settings()
    messages = stream_broker(url, "projector", 30, Gone())
    async with broker_with_streams(url, "projector") as broker:
        app = projector.application(projector.Projector(broker, settings), messages, 5.0)
        async with app.lifespan_context():
            await app.start()
            yield
            await app.stop()


@contextlib.asynccontextmanager
async def running_compactor(
    url: str, settings: Settings | None = None, summariser: Summariser | None = None
) -> AsyncIterator[None]:
    settings = settings or small_settings()
    messages = stream_broker(url, "compactor", 30, Gone())
    async with broker_with_streams(url, "compactor") as broker:
        worker = compactor.Compactor(broker, settings, summariser or Extractive())
        app = compactor.application(
            worker, messages, settings.compactor_patience, settings.compactions_at_once
        )
        await app.start()
        yield
        await app.stop()


class Gated:
    """A summariser that tells when it has begun, and ends when it may."""

    def __init__(self, answer: Callable[[SummaryRequest], SummaryResult] | None = None) -> None:
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.calls = 0
        self._answer = answer

    async def summarise(self, request: SummaryRequest) -> SummaryResult:
        self.calls += 1
        self.begun.set()
        await self.may_end.wait()
        if self._answer is not None:
            return self._answer(request)
        return await Extractive().summarise(request)


async def eventually(condition: Callable[[], Awaitable[object]], *, within: float = 30.0) -> None:
    """Wait until a condition holds; how often it is asked does not matter."""
    async with asyncio.timeout(within):
        while not await condition():
            await asyncio.sleep(0.02)  # the broker has no event for what is asked here
