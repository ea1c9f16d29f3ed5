"""The health of a service, and its answers over HTTP: `/live` and `/ready`.

`/live` says whether the process can still do its work: where it cannot, it ends, and whoever
supervises it starts another. `/ready` says whether it keeps up.
"""

import asyncio
import contextlib
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator

import msgspec
import uvicorn
from faststream.asgi import AsgiFastStream, AsgiResponse, get
from faststream.asgi.types import Scope

from foldlog.errors import FoldlogError
from foldlog.settings import Settings

LAG_WINDOW = 60.0
"""Seconds over which what waits must have grown before a service counts as falling behind."""
_LOOKS = 3
"""Looks at what waits that a judgement needs at the least."""
_JSON = {"Content-Type": "application/json"}

_encode = msgspec.json.Encoder().encode


class HealthPortTaken(FoldlogError):
    """The port for health checks cannot be had."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(
            f"health checks cannot be answered on {host}:{port} ({reason}): choose another "
            "health_port, or 0 for none"
        )


class SubscriptionSilent(FoldlogError):
    """Work waits, and none of it reaches this process."""

    def __init__(self, consumer: str, waiting: int, seconds: float) -> None:
        super().__init__(
            f"{waiting:,} messages wait in consumer {consumer} and none came for {seconds:.0f} s: "
            "start the service again, which subscribes anew"
        )


class Backlog(msgspec.Struct, frozen=True):
    """What the broker says of a consumer."""

    waiting: int
    """Messages that were given to nobody yet."""
    has_room: bool = True
    """Whether the broker would give out more; it stops where too much is unacknowledged."""
    stream_end: int = 0
    """Last sequence of the stream."""


class Health:
    """What one service process knows of itself; `clock` is in seconds and never goes back."""

    def __init__(
        self,
        consumer: str,
        *,
        silence: float,
        lag: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._consumer = consumer
        self._silence = silence
        self._lag = lag
        self._clock = clock
        self._in_hand = 0
        self._deliveries = 0
        self._seen_deliveries = 0
        self._idle_since: float | None = None
        self._looks: deque[tuple[float, int]] = deque()
        self.error = ""
        """Why the service cannot go on."""
        self.is_connected = True
        self.is_started = False

    @contextlib.contextmanager
    def work(self) -> Iterator[None]:
        """Around the handling of what was delivered."""
        self._in_hand += 1
        self._deliveries += 1
        try:
            yield
        finally:
            self._in_hand -= 1

    def observe(self, backlog: Backlog) -> None:
        """Take in one look at the consumer."""
        now = self._clock()
        if (
            not backlog.waiting
            or not backlog.has_room
            or self._in_hand
            or self._deliveries > self._seen_deliveries
        ):
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        self._seen_deliveries = self._deliveries
        if self._looks and backlog.waiting < self._looks[-1][1]:
            self._looks.clear()
        self._looks.append((now, backlog.waiting))
        while len(self._looks) > _LOOKS and now - self._looks[1][0] >= LAG_WINDOW:
            self._looks.popleft()

    def silent(self) -> SubscriptionSilent | None:
        """Set once work has waited for too long while this process was given none."""
        if self._idle_since is None:
            return None
        seconds = self._clock() - self._idle_since
        if seconds < self._silence:
            return None
        return SubscriptionSilent(self._consumer, self._looks[-1][1], seconds)

    def is_falling_behind(self) -> bool:
        """Whether much waits, and more with every look for a while."""
        if len(self._looks) < _LOOKS:
            return False
        (began, first), (now, last) = self._looks[0], self._looks[-1]
        return last > self._lag and last > first and now - began >= LAG_WINDOW

    def dead_reasons(self) -> list[str]:
        """Why the process should be replaced; empty where it should not."""
        reasons = [self.error] if self.error else []
        silent = self.silent()
        return [*reasons, str(silent)] if silent else reasons

    def unready_reasons(self) -> list[str]:
        """Why the process does not do its work now; empty where it does."""
        reasons = self.dead_reasons()
        if not self.is_started:
            reasons.append("it is starting")
        if not self.is_connected:
            reasons.append("there is no connection to the broker")
        if self.is_falling_behind():
            reasons.append(f"{self._looks[-1][1]:,} messages wait, and more all the time")
        return reasons


def health_of(settings: Settings, consumer: str) -> Health:
    """Of a service that takes its work from a consumer."""
    return Health(consumer, silence=settings.silence_patience, lag=settings.lag_allowed)


class _Server(uvicorn.Server):
    """A server that leaves signals to the service."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def answering(health: Health, settings: Settings) -> AsyncIterator[int]:
    """Answer health checks for the time of the block; the port, 0 where none is asked for.

    Raises HealthPortTaken.
    """
    if not settings.health_port:
        yield 0
        return
    try:
        listening = socket.create_server((settings.health_host, settings.health_port))
    except OSError as error:
        raise HealthPortTaken(
            settings.health_host, settings.health_port, error.strerror or str(error)
        ) from None

    @get
    async def live(scope: Scope) -> AsgiResponse:
        return _answer(health.dead_reasons())

    @get
    async def ready(scope: Scope) -> AsgiResponse:
        return _answer(health.unready_reasons())

    app = AsgiFastStream(asgi_routes=[("/live", live), ("/ready", ready)], logger=None)
    config = uvicorn.Config(
        app, lifespan="off", log_config=None, log_level="warning", access_log=False
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield int(listening.getsockname()[1])
    finally:
        server.should_exit = True
        await asyncio.gather(serving, return_exceptions=True)
        listening.close()


def _answer(reasons: list[str]) -> AsgiResponse:
    body = _encode({"ok": not reasons, "reasons": reasons})
    return AsgiResponse(body, 503 if reasons else 200, headers=_JSON)
