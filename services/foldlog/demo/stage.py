"""The demo's processes: started, started again whenever they end, stopped together."""

import asyncio
import contextlib
import signal
import sys
from pathlib import Path
from typing import Literal

import msgspec

from foldlog.demo import story
from foldlog.processes import start_bound, stop
from foldlog_events.entries import DEFAULT_TENANT

Part = Literal["projector", "compactor", "analyst", "warehouse"]

WORKER_PATIENCE = 1.0
"""Seconds after which what a killed worker had taken is given to the next."""
STOP_PATIENCE = 2.0
PAUSE = 0.2
"""Seconds before a process that ended by itself is started again."""


class Stage:
    """Four processes on one broker; what they write goes to a file."""

    def __init__(self, address: str, conversation: str, log: Path) -> None:
        self._log = log
        self._commands: dict[Part, tuple[str, ...]] = {
            "projector": ("foldlog.projector",),
            "compactor": ("foldlog.demo.model",),
            "analyst": ("foldlog.demo.agents", "analyst", conversation),
            "warehouse": ("foldlog.demo.agents", "warehouse", conversation),
        }
        self._environment = {
            "FOLDLOG_CONFIG": "",
            "FOLDLOG_URL": address,
            "FOLDLOG_TENANT": DEFAULT_TENANT,
            "FOLDLOG_POLICY": msgspec.json.encode(story.POLICY).decode(),
            "FOLDLOG_POLICIES": "{}",
            "FOLDLOG_PROJECTOR_PATIENCE": f"{WORKER_PATIENCE}",
            "FOLDLOG_COMPACTOR_PATIENCE": f"{WORKER_PATIENCE}",
            "FOLDLOG_LOG_FORMAT": "json",
        }
        self._running: dict[Part, asyncio.subprocess.Process] = {}
        self._alive = {part: asyncio.Event() for part in self._commands}
        self._keeping: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Stage":
        self._keeping = [asyncio.create_task(self._keep(part)) for part in self._commands]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._keeping:
            task.cancel()
        await asyncio.gather(*self._keeping, return_exceptions=True)

    async def kill(self, part: Part) -> int:
        """End a process with SIGKILL, whatever it is doing; its id. Another takes its place."""
        await self._alive[part].wait()
        process = self._running[part]
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        await process.wait()
        self._alive[part].clear()
        return process.pid

    async def _keep(self, part: Part) -> None:
        command = (sys.executable, "-m", *self._commands[part])
        while True:
            with self._log.open("ab") as output:
                process = await start_bound(
                    command,
                    on_parent_death=signal.SIGKILL,
                    environment=self._environment,
                    output=output.fileno(),
                )
            self._running[part] = process
            self._alive[part].set()
            try:
                code = await process.wait()
            finally:
                self._alive[part].clear()
                await asyncio.shield(stop(process, patience=STOP_PATIENCE))
            if code != -signal.SIGKILL:
                await asyncio.sleep(PAUSE)
