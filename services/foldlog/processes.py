"""Child processes that never outlive the process that started them."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from foldlog import bound


async def start_bound(
    command: Sequence[str],
    *,
    on_parent_death: signal.Signals,
    inherit: Sequence[int] = (),
    environment: Mapping[str, str] | None = None,
    output: int | None = None,
) -> asyncio.subprocess.Process:
    """Start a command in a process group of its own, bound to this process's life.

    `inherit` are descriptors it keeps open, `environment` variables added to this process's,
    `output` the descriptor that it writes to instead of this process's own output and errors.

    Its group keeps a terminal's Ctrl-C from it: who started it decides when it ends. Call this
    from a thread that lives as long as the child shall, since the kernel watches the thread.
    """
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", str(Path(bound.__file__))),
        *(str(os.getpid()), str(int(on_parent_death)), *command),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=tuple(inherit),
        env={**os.environ, **(environment or {})},
        process_group=0,
    )


async def stop(process: asyncio.subprocess.Process, *, patience: float) -> int:
    """End a child with SIGTERM, after `patience` seconds with SIGKILL; its exit code."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            return await asyncio.wait_for(process.wait(), patience)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
    return await process.wait()
