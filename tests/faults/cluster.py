"""The servers of a run: one nats-server, or three that replicate every stream."""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from foldlog.broker import Broker, connect
from foldlog.errors import FoldlogError
from foldlog.streams import set_up
from foldlog.topology import ENTRIES
from tests.conftest import free_port, server_binary
from tests.faults.children import signal_to, spawn

DISK = 256 * 1024 * 1024
"""Bytes of a server's file system, and what JetStream may take of it."""
ANSWER_PATIENCE = 30.0
INSISTENCE = 8.0
FILLER = "FILLER"


class Node:
    """One nats-server; it keeps its ports and its data over restarts."""

    def __init__(self, number: int, folder: Path) -> None:
        self.name = f"n{number}"
        self.port = free_port()
        self.cluster_port = free_port()
        self.folder = folder / self.name
        self.disk = self.folder / "disk"
        self.disk.mkdir(parents=True)
        self.is_mounted = _mount(self.disk)
        self._process: asyncio.subprocess.Process | None = None
        self._starting = asyncio.Lock()

    def configure(self, nodes: "list[Node]") -> None:
        """Write the configuration."""
        sync = "sync_interval: always" if len(nodes) == 1 else ""
        lines = [
            f"server_name: {self.name}",
            f"listen: 127.0.0.1:{self.port}",
            "max_payload: 8MB",
            f'jetstream {{ store_dir: "{self.disk / "data"}", max_file_store: {DISK}, {sync} }}',
        ]
        if len(nodes) > 1:
            routes = ", ".join(f"nats://127.0.0.1:{node.cluster_port}" for node in nodes)
            lines.append(
                f"cluster {{ name: faults, listen: 127.0.0.1:{self.cluster_port}, "
                f"no_advertise: true, routes: [{routes}] }}"
            )
        (self.folder / "server.conf").write_text("\n".join(lines))

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start it, if it does not run, and wait until it greets."""
        async with asyncio.timeout(ANSWER_PATIENCE):
            while not await _greets(self.port):
                async with self._starting:
                    if not self.is_running:
                        self._process = await spawn(
                            (server_binary(), "-c", str(self.folder / "server.conf")),
                            self.folder / "log",
                        )
                await asyncio.sleep(0.05)

    async def kill(self) -> bool:
        """SIGKILL, and wait for the end. False where it is not running."""
        process = self._process
        killed = signal_to(process, signal.SIGKILL)
        if process is not None:
            await process.wait()
        return killed

    async def freeze(self, seconds: float) -> bool:
        """SIGSTOP for some seconds."""
        process = self._process
        if not signal_to(process, signal.SIGSTOP):
            return False
        try:
            await asyncio.sleep(seconds)
        finally:
            signal_to(process, signal.SIGCONT)
        return True

    @property
    def balloon(self) -> Path:
        return self.disk / "balloon"

    def fill(self) -> None:
        """Take what is left of the file system."""
        room = os.statvfs(self.disk)
        with contextlib.suppress(OSError), self.balloon.open("wb", buffering=0) as balloon:
            # The server goes on writing meanwhile, so the last of it is taken piece by piece.
            os.posix_fallocate(balloon.fileno(), 0, room.f_bavail * room.f_frsize * 9 // 10)
            balloon.seek(0, os.SEEK_END)
            while balloon.write(bytes(room.f_frsize)):
                pass

    def empty(self) -> None:
        self.balloon.unlink(missing_ok=True)

    async def close(self) -> None:
        await self.kill()
        if self.is_mounted:
            _unmount(self.disk)


class Cluster:
    """The servers, and an operator's connection to them."""

    def __init__(self, nodes: int, folder: Path) -> None:
        self.nodes = [Node(number, folder) for number in range(nodes)]
        self.random = random.Random()
        for node in self.nodes:
            node.configure(self.nodes)
        self._operator: Broker | None = None

    @property
    def url(self) -> str:
        """All addresses, as a client takes them."""
        return ",".join(f"nats://127.0.0.1:{node.port}" for node in self.nodes)

    @property
    def ports(self) -> list[int]:
        return [node.port for node in self.nodes]

    @property
    def can_fill_disk(self) -> bool:
        return all(node.is_mounted for node in self.nodes)

    async def start(self) -> None:
        """Start the servers that do not run."""
        await asyncio.gather(*(node.start() for node in self.nodes))

    async def set_up(self) -> None:
        """Make the streams, once the servers have found each other."""
        broker = await self.operator()
        async with asyncio.timeout(2 * ANSWER_PATIENCE):
            while True:
                with contextlib.suppress(FoldlogError):
                    await set_up(broker, replicas=len(self.nodes))
                    return
                await asyncio.sleep(0.1)

    async def operator(self) -> Broker:
        """A connection with every right."""
        if self._operator is None or self._operator.is_closed:
            self._operator = await connect(self.url, name="operator", wait=ANSWER_PATIENCE)
        return self._operator

    async def leader(self, stream: str = ENTRIES) -> Node | None:
        """The server that leads a stream, if one does."""
        info = await self._insist(f"STREAM.INFO.{stream}")
        name = info.get("cluster", {}).get("leader") if info else None
        return next((node for node in self.nodes if node.name == name), None)

    async def step_down(self, stream: str) -> bool:
        """Have the leader of a stream hand over."""
        return await self._insist(f"STREAM.LEADER.STEPDOWN.{stream}") is not None

    async def delete_consumer(self, stream: str, consumer: str) -> bool:
        return await self._insist(f"CONSUMER.DELETE.{stream}.{consumer}") is not None

    async def _insist(self, verb: str) -> dict[str, Any] | None:
        """A call that other faults may be in the way of; None where they stay there."""
        broker = await self.operator()
        deadline = time.monotonic() + INSISTENCE
        while time.monotonic() < deadline:
            try:
                return await broker.api(verb, within=2.0)
            except FoldlogError:
                await asyncio.sleep(0.1)
        return None

    async def fill_quota(self) -> bool:
        """Use up what JetStream may store, by a stream of the operator's own."""
        broker = await self.operator()
        block = bytes(4 * 1024 * 1024)
        try:
            await broker.api(
                f"STREAM.CREATE.{FILLER}",
                {
                    "name": FILLER,
                    "subjects": ["filler"],
                    "num_replicas": len(self.nodes),
                    "storage": "file",
                },
            )
            while b'"error"' not in (await broker.request("filler", block, within=2.0)).data:
                pass
        except FoldlogError:
            return False
        return True

    async def empty_quota(self) -> None:
        broker = await self.operator()
        async with asyncio.timeout(ANSWER_PATIENCE):
            while True:
                try:
                    names = (await broker.api("STREAM.NAMES"))["streams"] or []
                    if FILLER not in names:
                        return
                    await broker.api(f"STREAM.DELETE.{FILLER}")
                except FoldlogError:
                    await asyncio.sleep(0.2)

    async def close(self) -> None:
        if self._operator is not None:
            await self._operator.close()
        for node in self.nodes:
            await node.close()


async def _greets(port: int) -> bool:
    try:
        async with asyncio.timeout(1.0):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                return (await reader.read(4)).startswith(b"INFO")
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False


def _mount(folder: Path) -> bool:
    """A small file system of its own for a server, where this user may mount one."""
    if os.geteuid() != 0:
        return False
    options = ("-t", "tmpfs", "-o", f"size={2 * DISK}", "tmpfs", str(folder))
    try:
        return subprocess.run(["mount", *options], check=False, capture_output=True).returncode == 0
    except OSError:
        return False


def _unmount(folder: Path) -> None:
    subprocess.run(["umount", "--lazy", folder], check=False)
