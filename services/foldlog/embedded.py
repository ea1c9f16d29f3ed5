"""nats-server in a data folder of your own: for one machine, nothing to set up.

    async with attach_or_start(folder) as server:
        ...  # server.address

One nats-server serves a data folder. The process that started it owns it; others find it by
what lies in the folder and share it. An owner waits with stopping it until they are done.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import sysconfig
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from foldlog.data_folder import DataFolder, Lock, RunningServer
from foldlog.processes import start_bound, stop
from foldlog_events.errors import FoldlogError

MAX_PAYLOAD = 8 * 1024 * 1024
START_PATIENCE = 60.0
"""Seconds for nats-server to recover its streams and listen."""
STOP_PATIENCE = 10.0
POLL = 0.02


class ServerNotInstalled(FoldlogError):
    """There is no nats-server program."""

    def __init__(self) -> None:
        super().__init__(
            "nats-server was not found: pip install 'foldlog[server]', or give the address of a "
            "running one with --url or FOLDLOG_URL"
        )


class ServerFailed(FoldlogError):
    """The embedded nats-server did not start, or ended by itself."""


class AlreadyRunning(FoldlogError):
    """Another process serves this data folder."""

    def __init__(self, folder: DataFolder, server: RunningServer) -> None:
        super().__init__(
            f"the data folder {folder.path} is served at {server.address} by process {server.pid}"
        )
        self.server = server


def find_server() -> Path:
    """The nats-server of this environment, else the one on PATH. Raises ServerNotInstalled."""
    own = Path(sysconfig.get_path("scripts")) / "nats-server"
    if own.is_file() and os.access(own, os.X_OK):
        return own
    found = shutil.which("nats-server")
    if found is None:
        raise ServerNotInstalled
    return Path(found)


def server_config(folder: DataFolder, port: int) -> bytes:
    """nats-server's configuration; `sync_interval: always` makes acknowledged mean on disk."""
    return msgspec.json.encode(
        {
            "server_name": "foldlog",
            "listen": f"127.0.0.1:{port or -1}",
            "max_payload": MAX_PAYLOAD,
            "jetstream": {"store_dir": str(folder.store), "sync_interval": "always"},
            "ports_file_dir": str(folder.run),
            "pid_file": str(folder.pid),
            "log_file": str(folder.log),
            "logfile_size_limit": MAX_PAYLOAD,
            "logfile_max_num": 3,
        }
    )


class EmbeddedServer:
    """One nats-server over a data folder, owned by this process.

    `port` 0 takes any free one; `lasting` says that it runs until it is stopped, and not for one
    command. Raises what `start` raises when entered.
    """

    def __init__(self, folder: DataFolder, *, port: int = 0, lasting: bool = False) -> None:
        self.folder = folder
        self.port = port
        self.lasting = lasting
        self.address = ""
        self._owner: Lock | None = None
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> "EmbeddedServer":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start nats-server and wait until it answers.

        Raises AlreadyRunning where another process serves the folder, ServerNotInstalled,
        DataFolderError, and ServerFailed with nats-server's own reason.
        """
        program = find_server()
        self.folder.prepare()
        owner = Lock(self.folder, "owner")
        try:
            await _own(self.folder, owner)
            await self._launch(program)
        except BaseException:
            owner.close()
            raise
        self._owner = owner

    async def restart(self) -> None:
        """Start nats-server again, at the same address, after it ended by itself."""
        await self._launch(find_server())

    async def stop(self) -> None:
        """Stop nats-server and let go of the folder."""
        if self._process is not None:
            # First, so that nobody comes to a server that is about to end.
            self.folder.address.unlink(missing_ok=True)
            await stop(self._process, patience=STOP_PATIENCE)
            self._process = None
            self.folder.clear_traces()
        if self._owner is not None:
            self._owner.close()
            self._owner = None

    async def ended(self) -> int:
        """Wait until nats-server ends by itself; its exit code."""
        if self._process is None:
            raise ServerFailed("the embedded nats-server was not started")
        return await self._process.wait()

    async def _launch(self, program: Path) -> None:
        with contextlib.closing(Lock(self.folder, "server")) as held:
            await _wait_out_orphan(self.folder, held)
            self.folder.clear_traces()
            self.folder.config.write_bytes(server_config(self.folder, self.port))
            log_start = self.folder.log.stat().st_size if self.folder.log.exists() else 0
            # The child keeps this lock for as long as it lives, whatever becomes of us.
            self._process = await start_bound(
                [str(program), "-c", str(self.folder.config)],
                on_parent_death=signal.SIGTERM,
                inherit=[held.descriptor],
            )
        try:
            self.address = await self._ready(self._process, log_start)
        except BaseException:
            await stop(self._process, patience=STOP_PATIENCE)
            self._process = None
            self.folder.clear_traces()
            raise
        self.port = urlsplit(self.address).port or 0
        self.folder.write_address(
            RunningServer(address=self.address, pid=os.getpid(), lasting=self.lasting)
        )

    async def _ready(self, process: asyncio.subprocess.Process, log_start: int) -> str:
        ports = self.folder.run / f"nats-server_{process.pid}.ports"
        address = ""

        async def listens() -> bool:
            nonlocal address
            if process.returncode is not None:
                raise ServerFailed(_reason(self.folder, log_start, process.returncode))
            with contextlib.suppress(OSError, msgspec.DecodeError, KeyError, IndexError):
                address = msgspec.json.decode(ports.read_bytes())["nats"][0]
            return bool(address) and await _answers(address)

        if not await _until(listens, START_PATIENCE):
            raise ServerFailed(
                f"nats-server did not answer within {START_PATIENCE:.0f} seconds: "
                f"see {self.folder.log}"
            )
        return address


def _reason(folder: DataFolder, log_start: int, code: int) -> str:
    """nats-server's last complaint, in one line."""
    try:
        with folder.log.open("rb") as log:
            log.seek(log_start)
            lines = log.read().decode(errors="replace").splitlines()
    except OSError:
        lines = []
    for mark in ("[FTL]", "[ERR]"):
        for line in reversed(lines):
            if mark in line:
                return f"nats-server did not start: {line.partition(mark)[2].strip()}"
    return f"nats-server ended with code {code} before it was ready: see {folder.log}"


async def _answers(address: str) -> bool:
    """Whether something accepts connections there and greets as a NATS server."""
    place = urlsplit(address)
    try:
        reader, writer = await asyncio.wait_for(
            asyncio.open_connection(place.hostname, place.port, family=socket.AF_INET), 1.0
        )
    except (OSError, TimeoutError):
        return False
    try:
        return (await asyncio.wait_for(reader.readline(), 1.0)).startswith(b"INFO ")
    except (OSError, TimeoutError):
        return False
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _until(condition: Callable[[], Awaitable[bool]], patience: float) -> bool:
    deadline = time.monotonic() + patience
    while not await condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(POLL)
    return True


async def _wait_out_orphan(folder: DataFolder, held: Lock) -> None:
    """Stop a nats-server whose owner was killed; it holds the `server` lock while it lives."""

    async def free() -> bool:
        return held.acquire()

    for name in (signal.SIGTERM, signal.SIGKILL):
        if await free():
            return
        pid = folder.read_server_pid()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, name)
        if await _until(free, STOP_PATIENCE):
            return
    raise ServerFailed(
        f"a nats-server that nobody owns holds the data folder {folder.path} and does not end: "
        f"stop process {folder.read_server_pid() or 'unknown'}"
    )


async def _own(folder: DataFolder, owner: Lock) -> None:
    """Become the folder's owner. Raises AlreadyRunning once another owner's server answers."""

    async def settled() -> bool:
        if owner.acquire():
            return True
        found = folder.read_address()
        if found is not None and await _answers(found.address):
            raise AlreadyRunning(folder, found)
        return False

    if not await _until(settled, START_PATIENCE):
        raise ServerFailed(
            f"another process holds the data folder {folder.path} but its server does not answer: "
            "stop it, or choose another folder with --data"
        )
    # What a killed owner wrote must not lead others to a server that is about to be stopped.
    folder.address.unlink(missing_ok=True)


@contextlib.asynccontextmanager
async def attach_or_start(
    folder: DataFolder, *, on_wait: Callable[[], None] = lambda: None
) -> AsyncIterator[RunningServer]:
    """The running server of a data folder, or one started for the time of this block.

    A server started here ends only when the other users of the folder are done; `on_wait` is
    called where that takes waiting. Raises what EmbeddedServer.start raises.
    """
    folder.prepare()
    with contextlib.closing(Lock(folder, "users")) as users:

        async def joined() -> bool:
            return users.acquire(shared=True)

        # Refused only while an owner, having waited for its users, is stopping the server.
        if not await _until(joined, START_PATIENCE):
            raise ServerFailed(f"the server of the data folder {folder.path} does not end")
        server = EmbeddedServer(folder)
        try:
            await server.start()
        except AlreadyRunning as running:
            yield running.server
            return
        try:
            yield RunningServer(address=server.address, pid=os.getpid())
        finally:
            try:
                await _wait_for_users(users, on_wait)
            finally:
                await asyncio.shield(server.stop())


async def _wait_for_users(users: Lock, on_wait: Callable[[], None]) -> None:
    said = False

    async def alone() -> bool:
        nonlocal said
        if users.acquire():
            return True
        if not said:
            said = True
            on_wait()
        return False

    await _until(alone, float("inf"))
