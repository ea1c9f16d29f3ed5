"""The command line's frame: its exit codes, its errors, and `foldlog up`."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from foldlog.data_folder import DataFolder, Lock
from foldlog.embedded import attach_or_start
from tests.command_line import foldlog, started
from tests.test_embedded import alive, gone


async def announced(process: asyncio.subprocess.Process) -> Any:
    assert process.stdout is not None
    return msgspec.json.decode(await process.stdout.readline())


async def logged(process: asyncio.subprocess.Process, event: str, **values: str) -> dict[str, Any]:
    """Read the process's log lines up to one with this event."""
    assert process.stderr is not None
    while True:
        line = await process.stderr.readline()
        assert line, f"ended before it logged {event}"
        if line.startswith(b"{"):
            found = msgspec.json.decode(line, type=dict[str, Any])
            if found["event"] == event and values.items() <= found.items():
                return found


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_up_serves_until_a_signal_and_leaves_no_process(
    tmp_path: Path, ending: signal.Signals
) -> None:
    async with started("up", "--json", "--data", str(tmp_path)) as process:
        told = await announced(process)
        assert told.keys() == {"address", "data", "pid", "started"}
        assert told["data"] == str(tmp_path)
        assert told["started"]
        projector = await logged(process, "started", worker="projector")
        compactor = await logged(process, "started", worker="compactor")
        server = DataFolder(tmp_path).read_server_pid()
        assert server is not None
        process.send_signal(ending)
        await logged(process, "stopped")
        assert await process.wait() == 0
    for pid in (server, projector["pid"], compactor["pid"]):
        await gone(pid)


async def test_a_second_up_says_where_the_first_is(tmp_path: Path) -> None:
    async with started("up", "--json", FOLDLOG_DATA=str(tmp_path)) as process:
        first = await announced(process)
        second = await foldlog("up", "--json", FOLDLOG_DATA=str(tmp_path))
        assert second.code == 0
        assert second.json == first | {"started": False}
        told = await foldlog("up", "--data", str(tmp_path))
        assert told.out == (
            f"foldlog is up already at {first['address']} (process {first['pid']})\n"
        )


async def test_up_starts_a_dead_server_and_dead_workers_again(tmp_path: Path) -> None:
    async with started("up", "--json", "--data", str(tmp_path)) as process:
        told = await announced(process)
        worker = await logged(process, "started", worker="projector")
        if alive(worker["pid"]):
            os.kill(worker["pid"], signal.SIGKILL)
        await logged(process, "ended, starting again", worker="projector")
        again = await logged(process, "started", worker="projector")
        assert again["pid"] != worker["pid"]
        server = DataFolder(tmp_path).read_server_pid()
        assert server is not None
        os.kill(server, signal.SIGKILL)
        assert (await logged(process, "started", worker="nats-server"))["address"] == (
            told["address"]
        )


async def test_a_killed_up_leaves_no_process_and_the_folder_free(tmp_path: Path) -> None:
    async with started("up", "--json", "--data", str(tmp_path)) as process:
        await announced(process)
        worker = await logged(process, "started", worker="compactor")
        server = DataFolder(tmp_path).read_server_pid()
        assert server is not None
        process.kill()
    await gone(server)
    await gone(worker["pid"])
    async with started("up", "--json", "--data", str(tmp_path)) as process:
        assert (await announced(process))["started"]


async def test_up_keeps_to_a_port_and_names_one_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = await foldlog("up", "--port", port, "--data", str(tmp_path))
    assert refused.code == 3
    assert port in refused.err
    one_line(refused.err)


async def test_up_waits_for_a_command_that_serves_itself_on_the_folder(tmp_path: Path) -> None:
    serving, enough = asyncio.Event(), asyncio.Event()

    async def command() -> None:
        async with attach_or_start(DataFolder(tmp_path)):
            serving.set()
            await enough.wait()

    running = asyncio.create_task(command())
    await serving.wait()
    async with started("up", "--json", "--data", str(tmp_path)) as process:
        assert process.stderr is not None
        assert f"waiting for process {os.getpid()}".encode() in await process.stderr.readline()
        enough.set()
        await running
        assert (await announced(process))["started"]


async def test_a_command_that_is_told_to_end_stops_its_server_first(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    folder.prepare()
    with contextlib.closing(Lock(folder, "users")) as another:
        assert another.acquire(shared=True)
        async with started("conversations", "--data", str(tmp_path)) as process:
            assert process.stderr is not None
            assert b"waiting for it" in await process.stderr.readline()
            server = folder.read_server_pid()
            assert server is not None
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 128 + signal.SIGTERM
            assert await process.stderr.read() == b""
    await gone(server)


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("up", "--nonsense"),
        ("up", "--port", "many"),
        ("up", "--url", "nats://127.0.0.1:1"),
        ("up", "--port", "65536"),
    ],
)
async def test_wrong_usage_ends_with_two_and_one_line(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    for flags in ((), ("--json",)):
        outcome = await foldlog(*arguments, *flags, FOLDLOG_DATA=str(tmp_path))
        assert outcome.code == 2
        one_line(outcome.err)
        if flags:
            assert outcome.json["error"].keys() == {"type", "message"}
        else:
            assert outcome.out == ""


async def test_a_misspelt_setting_is_refused_by_its_name(tmp_path: Path) -> None:
    outcome = await foldlog("up", FOLDLOG_DATA=str(tmp_path), FOLDLOG_PROT="4222")
    assert outcome.code == 2
    assert "FOLDLOG_PROT" in outcome.err
    assert "did you mean FOLDLOG_PORT?" in outcome.err


async def test_help_and_version_are_no_errors() -> None:
    assert (await foldlog("--help")).code == 0
    version = await foldlog("--version")
    assert (version.code, version.out) == (0, "0.1.0\n")


async def test_without_its_extra_the_command_line_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['cyclopts'] = None; from foldlog.cli import main; sys.exit(main())"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stderr=asyncio.subprocess.PIPE
    )
    _, err = await process.communicate()
    assert process.returncode == 2
    assert err.decode() == (
        "foldlog: the command line needs cyclopts: pip install 'foldlog[server]'\n"
    )


def one_line(text: str) -> None:
    assert text.count("\n") == 1, text
    assert text.startswith("foldlog: ")
    assert "Traceback" not in text
