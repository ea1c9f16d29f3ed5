"""The connection to the broker: requests with one answer or many, and what ends it.

All answers arrive on one inbox subscription. A request that is not answered fails as soon as
the connection breaks, and nothing is buffered while there is no connection.
"""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from foldlog.errors import (
    BrokerRefused,
    BrokerUnreachable,
    ConnectionClosed,
    JetStreamUnavailable,
    RequestTimeout,
)

_log = logging.getLogger("foldlog.broker")

REQUEST_TIMEOUT = 5.0
"""Seconds one request may take unless the caller says otherwise."""
NO_RESPONDERS = "503"
_RECONNECT_WAIT = 0.2
_PING_INTERVAL = 10
"""Seconds between signs of life; a connection that misses three is opened anew."""
_PINGS_MISSED = 2
_RETRY_PAUSE = 0.1

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def status_of(message: Msg) -> str | None:
    """The status code of a control message; None where it is an ordinary one."""
    return message.headers.get("Status") if message.headers else None


def addresses_of(url: str) -> list[str]:
    """The servers of a cluster, which `url` names with commas between them."""
    return [address.strip() for address in url.split(",") if address.strip()]


def _without_credentials(url: str) -> str:
    shown = []
    for address in addresses_of(url):
        scheme, mark, rest = address.rpartition("://")
        shown.append(f"{scheme}{mark}{rest.rpartition('@')[2]}")
    return ",".join(shown)


class Broker:
    """A connection to a broker with JetStream. Made by `connect`."""

    def __init__(self, client: Client, url: str) -> None:
        self.client = client
        self._address = url
        self.url = _without_credentials(url)
        """The address, fit to be shown."""
        self.last_error = ""
        """What the broker or the network last complained about."""
        self.clock_offset = 0.0
        """Seconds that the broker's clock is ahead of this process's, known once set up."""
        self._connected = asyncio.Event()
        self._closed = asyncio.Event()
        self._closing = False
        self._opening = True
        self._tokens = itertools.count()
        self._inbox = ""
        self._waiting: dict[str, asyncio.Future[Msg] | asyncio.Queue[Msg | None]] = {}

    @property
    def max_payload(self) -> int:
        """Bytes that one message may take, headers included."""
        return int(self.client.max_payload)

    @property
    def is_closed(self) -> bool:
        """Whether the connection is closed for good."""
        return self._closed.is_set()

    @property
    def is_connected(self) -> bool:
        """Whether a request would be sent now."""
        return self._connected.is_set() and not self.is_closed

    async def wait_closed(self) -> None:
        """Returns once the connection is closed for good. A service then exits."""
        await self._closed.wait()

    async def wait_connected(self, within: float) -> None:
        """Returns once connected. Raises BrokerUnreachable after `within` s, ConnectionClosed."""
        if self.is_connected:
            return
        waits = {
            asyncio.ensure_future(self._connected.wait()),
            asyncio.ensure_future(self._closed.wait()),
        }
        try:
            await asyncio.wait(waits, timeout=within, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if self.is_closed:
            raise ConnectionClosed(self.last_error)
        if not self._connected.is_set():
            raise BrokerUnreachable(self.url, self.last_error or "no answer")

    async def close(self) -> None:
        """Closes the connection. Requests under way fail with ConnectionClosed."""
        self._closing = True
        await self.client.close()
        await self._on_closed()

    async def send(
        self, subject: str, payload: bytes, headers: Mapping[str, str] | None = None
    ) -> asyncio.Future[Msg]:
        """Sends a request; the future takes its answer.

        The future fails with RequestTimeout when the connection breaks before the answer.
        Raises BrokerUnreachable where there is no connection now: then nothing was sent.
        """
        token = str(next(self._tokens))
        future: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        self._waiting[token] = future
        future.add_done_callback(lambda _: self._waiting.pop(token, None))
        try:
            await self._publish(subject, payload, headers, f"{self._inbox}{token}")
        except BaseException:
            future.cancel()
            raise
        return future

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        within: float = REQUEST_TIMEOUT,
    ) -> Msg:
        """One request and its answer.

        Raises BrokerUnreachable (not sent), RequestTimeout (sent, outcome unknown),
        JetStreamUnavailable (nobody takes this subject), ConnectionClosed.
        """
        future = await self.send(subject, payload, headers)
        try:
            async with asyncio.timeout(within):
                answer = await future
        except TimeoutError:
            raise RequestTimeout(
                f"the broker at {self.url} did not answer {subject} within {within:g} s: "
                f"try again, or see the broker's log{self._complaint()}"
            ) from None
        if status_of(answer) == NO_RESPONDERS:
            raise JetStreamUnavailable(f"nobody takes {subject}")
        return answer

    async def publish(
        self, subject: str, payload: bytes, headers: Mapping[str, str] | None = None
    ) -> None:
        """Sends without asking for an answer. Raises as `send`."""
        await self._publish(subject, payload, headers, "")

    async def stream(
        self, subject: str, payload: bytes, *, idle_timeout: float = REQUEST_TIMEOUT
    ) -> AsyncGenerator[Msg, None]:
        """One request and all its answers; the caller knows the last and stops there.

        Raises RequestTimeout when nothing comes for `idle_timeout` s, else as `request`.
        """
        token = str(next(self._tokens))
        queue: asyncio.Queue[Msg | None] = asyncio.Queue()
        self._waiting[token] = queue
        try:
            await self._publish(subject, payload, None, f"{self._inbox}{token}")
            while True:
                try:
                    answer = queue.get_nowait()
                except asyncio.QueueEmpty:
                    async with asyncio.timeout(idle_timeout):
                        answer = await queue.get()
                if answer is None:
                    raise self._broken()
                if status_of(answer) == NO_RESPONDERS:
                    raise JetStreamUnavailable(f"nobody takes {subject}")
                yield answer
        except TimeoutError:
            raise RequestTimeout(
                f"the broker at {self.url} sent nothing for {idle_timeout:g} s on {subject}: "
                f"try again{self._complaint()}"
            ) from None
        finally:
            del self._waiting[token]

    @asynccontextmanager
    async def inbox(self) -> AsyncIterator["Inbox"]:
        """An inbox of its own, for deliveries that keep the subject they were stored under."""
        subject = self.client.new_inbox()
        queue: asyncio.Queue[Msg | None] = asyncio.Queue()
        self._waiting[subject] = queue

        async def arrived(message: Msg) -> None:
            queue.put_nowait(message)

        try:
            subscription = await self.client.subscribe(
                f"{subject}.*", cb=arrived, pending_msgs_limit=0, pending_bytes_limit=0
            )
            try:
                yield Inbox(self, subject, queue)
            finally:
                with contextlib.suppress(nats.errors.Error):
                    await subscription.unsubscribe()
        except nats.errors.ConnectionClosedError:
            raise ConnectionClosed(self.last_error) from None
        finally:
            del self._waiting[subject]

    async def ask(
        self, subject: str, payload: bytes = b"", *, within: float = REQUEST_TIMEOUT
    ) -> Msg:
        """A request that may be repeated without harm, repeated until `within` s have passed."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        while True:
            left = deadline - loop.time()
            try:
                await self.wait_connected(left)
                return await self.request(subject, payload, within=max(0.05, left))
            except (BrokerUnreachable, RequestTimeout, JetStreamUnavailable):
                if deadline - loop.time() <= _RETRY_PAUSE:
                    raise
                await asyncio.sleep(_RETRY_PAUSE)

    async def api(
        self, verb: str, body: object = None, *, within: float = REQUEST_TIMEOUT
    ) -> dict[str, Any]:
        """One call of JetStream's own interface. Raises BrokerRefused where it says no."""
        payload = b"" if body is None else _encode(body)
        answer = await self.request(f"$JS.API.{verb}", payload, within=within)
        reply: dict[str, Any] = _decode(answer.data)
        if error := reply.get("error"):
            raise BrokerRefused(
                error.get("err_code", error.get("code", 0)),
                error.get("description", "no reason given"),
                what=verb,
            )
        return reply

    async def _publish(
        self, subject: str, payload: bytes, headers: Mapping[str, str] | None, reply: str
    ) -> None:
        if self.is_closed or self._closing:
            raise ConnectionClosed(self.last_error)
        try:
            await self.client.publish(
                subject, payload, reply=reply, headers=dict(headers) if headers else None
            )
        except nats.errors.OutboundBufferLimitError:
            raise BrokerUnreachable(self.url, self.last_error or "reconnecting") from None
        except (nats.errors.ConnectionClosedError, nats.errors.ConnectionDrainingError):
            raise ConnectionClosed(self.last_error) from None

    def _complaint(self) -> str:
        return f" (last error: {self.last_error})" if self.last_error else ""

    def _broken(self) -> RequestTimeout | ConnectionClosed:
        if self._closing or self.is_closed:
            return ConnectionClosed(self.last_error)
        return RequestTimeout(f"the connection to {self.url} broke before the answer: try again")

    def _fail_waiting(self) -> None:
        for waiting in tuple(self._waiting.values()):
            if isinstance(waiting, asyncio.Queue):
                waiting.put_nowait(None)
            elif not waiting.done():
                waiting.set_exception(self._broken())

    async def _on_answer(self, message: Msg) -> None:
        waiting = self._waiting.get(message.subject[len(self._inbox) :])
        if isinstance(waiting, asyncio.Queue):
            waiting.put_nowait(message)
        elif waiting is not None and not waiting.done():
            waiting.set_result(message)

    async def _on_error(self, error: Exception) -> None:
        self.last_error = str(error) or type(error).__name__
        _log.debug("broker: %s", self.last_error)
        if self._opening and "authorization" in self.last_error.lower():
            # To try again would neither help nor leave the reason standing.
            raise error

    async def _on_disconnected(self) -> None:
        self._connected.clear()
        self._fail_waiting()

    async def _on_reconnected(self) -> None:
        self._connected.set()
        _log.info("connected to the broker again: %s", self.url)

    async def _on_closed(self) -> None:
        self._connected.clear()
        self._closed.set()
        self._fail_waiting()

    async def _open(self, wait: float, options: Mapping[str, Any]) -> None:
        """Connects. Raises BrokerUnreachable after `wait` s."""
        addresses = addresses_of(self._address)
        if not addresses:
            # nats-py would spin over an empty list, and no timeout could end it.
            raise BrokerUnreachable(self.url, "no address was given")
        try:
            async with asyncio.timeout(wait):
                await self.client.connect(
                    addresses,
                    error_cb=self._on_error,
                    disconnected_cb=self._on_disconnected,
                    reconnected_cb=self._on_reconnected,
                    closed_cb=self._on_closed,
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=_RECONNECT_WAIT,  # type: ignore[arg-type]
                    connect_timeout=max(1, int(wait)),
                    ping_interval=_PING_INTERVAL,
                    max_outstanding_pings=_PINGS_MISSED,
                    pending_size=0,
                    **options,
                )
        except (TimeoutError, OSError, nats.errors.Error, ValueError) as error:
            with contextlib.suppress(Exception):
                await self.client.close()
            said = "" if isinstance(error, TimeoutError) else str(error)
            raise BrokerUnreachable(self.url, said or self.last_error or "no answer") from None
        self._inbox = f"{self.client.new_inbox()}."
        await self.client.subscribe(
            f"{self._inbox}*", cb=self._on_answer, pending_msgs_limit=0, pending_bytes_limit=0
        )
        self.last_error = ""
        self._opening = False
        self._connected.set()


class Inbox:
    """Deliveries to one inbox; a request asks for them under a token of its own."""

    def __init__(self, broker: Broker, subject: str, queue: asyncio.Queue[Msg | None]) -> None:
        self._broker = broker
        self._queue = queue
        self.subject = subject

    async def request(self, subject: str, payload: bytes, token: str) -> None:
        """Asks for deliveries. Raises as `Broker.send`."""
        await self._broker._publish(subject, payload, None, f"{self.subject}.{token}")

    async def next(self, within: float) -> Msg:
        """The next delivery. Raises RequestTimeout after `within` s and on a break."""
        try:
            # Not wait_for: in Python 3.11 it loses a cancellation that meets an arrival.
            async with asyncio.timeout(within):
                message = await self._queue.get()
        except TimeoutError:
            raise RequestTimeout(f"nothing came for {within:g} s: ask again") from None
        if message is None:
            raise self._broker._broken()
        return message


async def connect(url: str, *, name: str = "foldlog", wait: float = 3.0, **options: Any) -> Broker:
    """Connects to the broker at `url` (`nats://[user:password@]host:port`).

    The servers of a cluster are named with commas between them; any one that answers will do.

    Tries for `wait` seconds. `options` go to nats-py's `connect` (credentials, TLS). Later
    losses of the connection are mended in the background, without end. Raises
    BrokerUnreachable.
    """
    broker = Broker(Client(), url)
    await broker._open(wait, {"name": name, **options})
    return broker


@asynccontextmanager
async def open_broker(url: str, *, wait: float = 3.0, **options: Any) -> AsyncIterator[Broker]:
    """`connect`, closed at the end."""
    broker = await connect(url, wait=wait, **options)
    try:
        yield broker
    finally:
        await broker.close()
