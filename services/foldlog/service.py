"""What every service has in common: a FastStream application that ends when the broker is gone.

FastStream's pull loop swallows a closed connection and spins; here a connection that is closed
for good ends the process with a non-zero code, so that whoever supervises it starts it anew.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import structlog
from faststream import FastStream
from faststream.nats import NatsBroker

from foldlog.broker import Broker, addresses_of, connect
from foldlog.errors import BrokerRefused, ConnectionClosed, FoldlogError
from foldlog.streams import set_up

RECONNECT_WAIT = 1
"""Seconds between two attempts to connect again."""
CHECK_PERIOD = 5.0
"""Seconds between two looks at whether the consumer still exists."""

_logger = structlog.get_logger("foldlog.service")


class ConsumerLost(FoldlogError):
    """The consumer that a service takes its work from is gone."""

    def __init__(self, stream: str, consumer: str) -> None:
        super().__init__(
            f"consumer {consumer} of stream {stream} is gone: start the service again, "
            "which makes it anew"
        )


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


async def run(app: FastStream, consumer: tuple[str, str], broker: Broker, gone: Gone) -> None:
    """Run until told to stop. Raises what made it impossible to go on."""
    app.on_shutdown(gone.stopping)
    serving = asyncio.create_task(app.run())
    watches = [
        asyncio.create_task(_watch_connection(broker, gone)),
        asyncio.create_task(_watch_consumer(broker, consumer, gone)),
    ]
    lost = asyncio.create_task(gone.wait())
    try:
        await asyncio.wait({serving, lost}, return_when=asyncio.FIRST_COMPLETED)
        app.exit()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(serving, 15.0)
    finally:
        for task in (*watches, lost, serving):
            task.cancel()
        await asyncio.gather(*watches, lost, serving, return_exceptions=True)
    if gone.error is not None:
        raise gone.error


async def _watch_connection(broker: Broker, gone: Gone) -> None:
    await broker.wait_closed()
    gone.report(ConnectionClosed(broker.last_error))


async def _watch_consumer(broker: Broker, consumer: tuple[str, str], gone: Gone) -> None:
    stream, name = consumer
    while True:
        await asyncio.sleep(CHECK_PERIOD)
        try:
            await broker.api(f"CONSUMER.INFO.{stream}.{name}")
        except BrokerRefused as error:
            _logger.error("consumer lost", stream=stream, consumer=name, reason=str(error))
            gone.report(ConsumerLost(stream, name))
            return
        except FoldlogError as error:
            _logger.warning("broker does not answer", reason=str(error))
