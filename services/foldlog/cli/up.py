"""`foldlog up`: a server, a projector and a compactor on a data folder."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from foldlog.cli.app import UsageError, ending_signals
from foldlog.cli.common import Common
from foldlog.cli.output import print_json, say
from foldlog.data_folder import DataFolder, RunningServer
from foldlog.embedded import AlreadyRunning, EmbeddedServer
from foldlog.logging_setup import configure
from foldlog.supervisor import Worker, keep_all


async def up(
    *,
    port: Annotated[
        int | None,
        Parameter(help="Port to listen on; 0: any free one.", validator=Number(gte=0, lte=65535)),
    ] = None,
    common: Common = Common(),  # noqa: B008 - frozen
) -> int:
    """Start nats-server, a projector and a compactor, and keep them running until stopped.

    On a data folder that is up already it says where, and is done.
    """
    if common.url is not None:
        raise UsageError("`up` starts a server of its own: leave --url out, or give --port")
    settings = common.settings()
    folder = common.folder(settings)
    log = configure("foldlog", settings)
    try:
        async with _server(folder, settings.port if port is None else port) as server:
            with ending_signals() as asked:
                _announce(common, folder, RunningServer(server.address, os.getpid()), started=True)
                log.info("up", address=server.address, data=str(folder.path))
                workers = _workers(server.address, common.config)
                keeping = asyncio.create_task(keep_all(server, workers, log))
                await _first_of(asked, keeping)
                log.info("stopping")
    except AlreadyRunning as running:
        _announce(common, folder, running.server, started=False)
        return 0
    log.info("stopped")
    return 0


@contextlib.asynccontextmanager
async def _server(folder: DataFolder, port: int) -> AsyncIterator[EmbeddedServer]:
    """The folder's server, started here; one that another command started for itself is awaited.

    Raises AlreadyRunning where another `up` runs it.
    """
    server = EmbeddedServer(folder, port=port, lasting=True)
    said = False
    while True:
        try:
            await server.start()
            break
        except AlreadyRunning as running:
            if running.server.lasting:
                raise
            if not said:
                say(f"waiting for process {running.server.pid}, which uses this data folder")
                said = True
            await asyncio.sleep(0.1)
    try:
        yield server
    finally:
        await server.stop()


async def _first_of(asked: asyncio.Event, keeping: asyncio.Task[None]) -> None:
    """Wait for the signal to end, or for what is kept running to fail; stop it either way."""
    waiting = asyncio.create_task(asked.wait())
    try:
        await asyncio.wait({waiting, keeping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping


def _workers(address: str, config: Path | None) -> tuple[Worker, ...]:
    # Two services cannot answer health checks on one port; `up` itself supervises them.
    environment = {"FOLDLOG_URL": address, "FOLDLOG_HEALTH_PORT": "0"}
    if config is not None:
        environment["FOLDLOG_CONFIG"] = str(config.absolute())
    return tuple(
        Worker(name, (sys.executable, "-m", f"foldlog.{name}"), environment)
        for name in ("projector", "compactor")
    )


def _announce(common: Common, folder: DataFolder, server: RunningServer, *, started: bool) -> None:
    if common.json:
        print_json(
            {
                "address": server.address,
                "data": str(folder.path),
                "pid": server.pid,
                "started": started,
            }
        )
    elif started:
        print(f"foldlog is up at {server.address} (data in {folder.path})", flush=True)
    else:
        print(f"foldlog is up already at {server.address} (process {server.pid})", flush=True)
