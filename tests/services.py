"""Services as processes of their own, as they are run in production."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from tests.command_line import environment

END = 90.0


class Service:
    """A service that runs, with what it said."""

    def __init__(self, process: asyncio.subprocess.Process, output: Path) -> None:
        self.process = process
        self.output = output

    def said(self) -> str:
        return self.output.read_text()

    async def ended(self) -> int:
        """Its exit code, once it has ended."""
        async with asyncio.timeout(END):
            return await self.process.wait()

    async def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return await self.ended()


@contextlib.asynccontextmanager
async def service(
    name: str, url: str, folder: Path, *, pythonpath: str = "", **settings: object
) -> AsyncIterator[Service]:
    """A projector or a compactor, killed at the end of the block if it still runs.

    Of the release on `pythonpath`, where one is given.
    """
    values = {f"FOLDLOG_{key.upper()}": str(value) for key, value in settings.items()}
    if pythonpath:
        values["PYTHONPATH"] = pythonpath
    output = folder / f"{name}.out"
    with output.open("ab") as sink:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", f"foldlog.{name}"),
            env=environment(FOLDLOG_URL=url, FOLDLOG_CHECK_SECONDS="0.1", **values),
            stdout=sink,
            stderr=sink,
        )
    try:
        yield Service(process, output)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
