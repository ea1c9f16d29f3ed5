"""Processes of a run: started, killed, frozen, and started again when they end."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from foldlog import bound

RESTART_PAUSE = 0.3
STOP_PATIENCE = 20.0


async def spawn(
    command: Sequence[str], output: Path, environment: Mapping[str, str] | None = None
) -> asyncio.subprocess.Process:
    """Start a command that ends with this process, its output added to a file."""
    with output.open("ab") as sink:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", bound.__file__, str(os.getpid())),
            *(str(int(signal.SIGKILL)), *command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            env={**os.environ, **(environment or {})},
            process_group=0,
        )


def signal_to(process: asyncio.subprocess.Process | None, number: signal.Signals) -> bool:
    """Whether there was a process to signal."""
    if process is None or process.returncode is not None:
        return False
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)
        return True
    return False


class Child:
    """A Python module kept running until it ends with code 0, or is stopped."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.exits: list[tuple[int, str]] = []
        """Codes with which it ended, signals as negative numbers, and the last it had said."""
        self.frozen: list[tuple[float, float]] = []
        self.output = folder / f"{name}.out"
        self._command = (sys.executable, *command)
        self._environment = environment
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False

    async def run(self) -> None:
        """Keep it running."""
        while not self._stopping:
            self._process = await spawn(self._command, self.output, self._environment)
            code = await self._process.wait()
            self.exits.append((code, last_line(self.output)))
            if code == 0:
                return
            await asyncio.sleep(RESTART_PAUSE)

    def kill(self) -> bool:
        """SIGKILL; it is started again. False where it is not running."""
        return signal_to(self._process, signal.SIGKILL)

    async def freeze(self, seconds: float) -> bool:
        """SIGSTOP for some seconds. False where it is not running."""
        process = self._process
        loop = asyncio.get_running_loop()
        began = loop.time()
        if not signal_to(process, signal.SIGSTOP):
            return False
        try:
            await asyncio.sleep(seconds)
        finally:
            signal_to(process, signal.SIGCONT)
            self.frozen.append((began, loop.time()))
        return True

    async def stop(self) -> None:
        """End it for good: SIGTERM, and SIGKILL where that does not do."""
        self._stopping = True
        if signal_to(self._process, signal.SIGTERM):
            assert self._process is not None
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), STOP_PATIENCE)
            signal_to(self._process, signal.SIGKILL)


def last_line(output: Path) -> str:
    lines = output.read_text(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "nothing"
