"""What every service has in common: a FastStream application that ends when the broker is gone.

FastStream's pull loop swallows a closed connection and spins; here a connection that is closed
for good ends the process with a non-zero code, so that whoever supervises it starts it anew.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import structlog
from faststream import FastStream
from faststream.nats import NatsBroker
from nats.aio.msg import Msg

from foldlog.broker import Broker, addresses_of, connect
from foldlog.errors import BrokerRefused, ConnectionClosed, FoldlogError
from foldlog.health import Backlog, Health, answering
from foldlog.settings import Settings
from foldlog.streams import set_up

RECONNECT_WAIT = 1
"""Seconds between two attempts to connect again."""

ERROR_PAUSE = 0.05
"""Seconds before a failed fetch is told to FastStream, which fetches again at once."""
STOP_PATIENCE = 15.0
"""Seconds that a service has to finish or give back what it has in hand."""
CONSUMER_NOT_FOUND = 10014
STREAM_NOT_FOUND = 10059
_LOST = frozenset({CONSUMER_NOT_FOUND, STREAM_NOT_FOUND})

_Fetch = Callable[..., Awaitable[list[Msg]]]

_logger = structlog.get_logger("foldlog.service")


class ConsumerLost(FoldlogError):
    """The consumer that a service takes its work from is gone."""

    def __init__(self, stream: str, consumer: str) -> None:
        super().__init__(
            f"consumer {consumer} of stream {stream} is gone: start the service again, "
            "which makes it anew"
        )


class ConsumerAhead(FoldlogError):
    """A consumer has passed the end of its stream: what comes next would never be delivered."""

    def __init__(self, stream: str, consumer: str, at: int, last: int) -> None:
        super().__init__(
            f"consumer {consumer} is at {at:,} and stream {stream} ends at {last:,}: the stream "
            "was restored to an earlier state; run `foldlog rebuild`, which makes the views anew "
            "and removes such consumers, then start the service again"
        )
        self.consumer = consumer
        self.at = at
        self.last = last


class Gone:
    """Remembers why a service cannot go on."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._is_stopping = False
        self.error: FoldlogError | None = None

    def stopping(self) -> None:
        """The service was told to stop: connections that close from now on are no error."""
        self._is_stopping = True

    def report(self, error: FoldlogError) -> None:
        """Note the first reason and wake who waits."""
        if self._is_stopping:
            return
        if self.error is None:
            self.error = error
        self._event.set()

    async def wait(self) -> None:
        """Returns once there is a reason."""
        await self._event.wait()


def stream_broker(url: str, name: str, patience: float, gone: Gone) -> NatsBroker:
    """FastStream's broker, which gives up after `patience` seconds without a connection."""

    async def closed() -> None:
        gone.report(ConnectionClosed(f"no connection to {url} for {patience:g} s"))

    return NatsBroker(
        addresses_of(url),
        name=name,
        max_reconnect_attempts=max(1, round(patience / RECONNECT_WAIT)),
        reconnect_time_wait=RECONNECT_WAIT,
        closed_cb=closed,
        graceful_timeout=10.0,
        logger=None,
    )


@contextlib.asynccontextmanager
async def broker_with_streams(url: str, name: str) -> AsyncIterator[Broker]:
    """The connection a service reads and writes by, with every stream in place."""
    broker = await connect(url, name=name)
    try:
        await set_up(broker)
        yield broker
    finally:
        await broker.close()


async def run(
    app: FastStream,
    consumer: tuple[str, str],
    broker: Broker,
    gone: Gone,
    settings: Settings,
    health: Health,
) -> None:
    """Run until told to stop. Raises what made it impossible to go on."""
    await _check_start(broker, *consumer)
    app.after_startup(lambda: _pause_after_errors(app))
    app.on_shutdown(gone.stopping)
    async with answering(health, settings):
        serving = asyncio.create_task(app.run())
        watches = [
            asyncio.create_task(_watch_connection(broker, gone)),
            asyncio.create_task(_watch_consumer(broker, consumer, gone, settings, health)),
        ]
        lost = asyncio.create_task(gone.wait())
        try:
            await asyncio.wait({serving, lost}, return_when=asyncio.FIRST_COMPLETED)
            health.error = str(gone.error or "")
            app.exit()
            # What goes wrong at the end of a lost connection is not why the service ends.
            with contextlib.suppress(*((Exception,) if gone.error else (TimeoutError,))):
                await asyncio.wait_for(serving, STOP_PATIENCE)
        finally:
            for task in (*watches, lost, serving):
                task.cancel()
            await asyncio.gather(*watches, lost, serving, return_exceptions=True)
    if gone.error is not None:
        raise gone.error


def _pause_after_errors(app: FastStream) -> None:
    """Where a fetch fails at once, FastStream's loop would leave no time to anything else."""

    def pausing(fetch: _Fetch) -> _Fetch:
        async def fetched(*args: Any, **kwargs: Any) -> list[Msg]:
            try:
                return await fetch(*args, **kwargs)
            except Exception:
                await asyncio.sleep(ERROR_PAUSE)
                raise

        return fetched

    for subscriber in (one for broker in app.brokers for one in broker.subscribers):
        subscription: Any = getattr(subscriber, "subscription", None)
        if hasattr(subscription, "fetch"):
            subscription.fetch = pausing(subscription.fetch)


async def _check_start(broker: Broker, stream: str, consumer: str) -> None:
    """Raises ConsumerAhead. A consumer that is not there yet is made by the service."""
    try:
        await look(broker, stream, consumer)
    except BrokerRefused as error:
        if error.code != CONSUMER_NOT_FOUND:
            raise


async def look(broker: Broker, stream: str, consumer: str) -> Backlog:
    """What waits in a consumer. Raises ConsumerAhead, BrokerRefused where it is gone."""
    info = await broker.api(f"CONSUMER.INFO.{stream}.{consumer}")
    # Asked after the consumer: its stream can only be further by then, never less far.
    last = (await broker.api(f"STREAM.INFO.{stream}"))["state"]["last_seq"]
    at = info["delivered"]["stream_seq"]
    if at > last:
        raise ConsumerAhead(stream, consumer, at, last)
    most = info["config"].get("max_ack_pending", -1)
    has_room = not 0 < most <= info["num_ack_pending"]
    return Backlog(info["num_pending"], has_room=has_room, stream_end=last)


async def _watch_connection(broker: Broker, gone: Gone) -> None:
    await broker.wait_closed()
    gone.report(ConnectionClosed(broker.last_error))


async def _watch_consumer(
    broker: Broker, consumer: tuple[str, str], gone: Gone, settings: Settings, health: Health
) -> None:
    stream, name = consumer
    reached = 0
    loop = asyncio.get_running_loop()
    began = loop.time()
    while True:
        await asyncio.sleep(settings.check_seconds)
        health.is_connected = broker.is_connected
        try:
            backlog = await look(broker, stream, name)
            if backlog.stream_end < reached:
                raise ConsumerAhead(stream, name, reached, backlog.stream_end)
            reached = backlog.stream_end
            health.observe(backlog)
        except BrokerRefused as error:
            is_starting = not health.is_started and loop.time() - began < settings.silence_patience
            if error.code not in _LOST or is_starting:
                _logger.warning("broker does not say", reason=str(error))
                continue
            _logger.error("consumer lost", stream=stream, consumer=name, reason=str(error))
            gone.report(ConsumerLost(stream, name))
            return
        except ConsumerAhead as error:
            gone.report(error)
            return
        except FoldlogError as error:
            _logger.warning("broker does not answer", reason=str(error))
            continue
        health.is_started = True
        if (silent := health.silent()) is not None:
            gone.report(silent)
            return
