"""Keep processes running: start them, start them again when they end, stop them together."""

import asyncio
import signal
import time
from collections.abc import Sequence

import msgspec
from structlog.stdlib import BoundLogger

from foldlog.embedded import EmbeddedServer
from foldlog.processes import start_bound, stop

FIRST_PAUSE = 0.2
"""Seconds before the first new start; doubled for each further one."""
LONGEST_PAUSE = 10.0
STEADY = 30.0
"""A process that ran this many seconds starts with the first pause again."""
STOP_PATIENCE = 5.0


class Worker(msgspec.Struct, frozen=True):
    """A command to keep running, under a name for the log."""

    name: str
    command: tuple[str, ...]
    environment: dict[str, str] = {}
    """Added to this process's."""


class BackOff:
    """Growing pauses between the starts of one process."""

    def __init__(self) -> None:
        self._pause = FIRST_PAUSE
        self._started = time.monotonic()

    def started(self) -> None:
        """Note a start."""
        self._started = time.monotonic()

    def pause(self) -> float:
        """Seconds to wait before the next start."""
        if time.monotonic() - self._started >= STEADY:
            self._pause = FIRST_PAUSE
        pause, self._pause = self._pause, min(self._pause * 2, LONGEST_PAUSE)
        return pause


async def keep_running(worker: Worker, log: BoundLogger) -> None:
    """Run a worker until cancelled, and stop it then."""
    back_off = BackOff()
    while True:
        back_off.started()
        process = await start_bound(
            worker.command,
            on_parent_death=signal.SIGKILL,
            environment=worker.environment,
        )
        log.info("started", worker=worker.name, pid=process.pid)
        try:
            code = await process.wait()
        finally:
            # A no-op where it ended by itself; on cancellation this is what ends it.
            await asyncio.shield(stop(process, patience=STOP_PATIENCE))
        pause = back_off.pause()
        log.warning("ended, starting again", worker=worker.name, code=code, seconds=pause)
        await asyncio.sleep(pause)


async def keep_serving(server: EmbeddedServer, log: BoundLogger) -> None:
    """Start the embedded server again, at its address, each time that it ends by itself."""
    back_off = BackOff()
    while True:
        code = await server.ended()
        pause = back_off.pause()
        log.warning("ended, starting again", worker="nats-server", code=code, seconds=pause)
        await asyncio.sleep(pause)
        back_off.started()
        await server.restart()
        log.info("started", worker="nats-server", address=server.address)


async def keep_all(server: EmbeddedServer, workers: Sequence[Worker], log: BoundLogger) -> None:
    """Keep the server and the workers running until cancelled; workers stop first."""
    async with asyncio.TaskGroup() as group:
        group.create_task(keep_serving(server, log))
        for worker in workers:
            group.create_task(keep_running(worker, log))
