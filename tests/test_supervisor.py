"""Processes that are kept running."""

import asyncio
import sys
from pathlib import Path

import pytest
import structlog

from foldlog import supervisor
from foldlog.supervisor import BackOff, Worker, keep_running
from tests.test_embedded import gone


def test_pauses_double_up_to_the_longest_and_begin_anew_after_a_steady_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr("foldlog.supervisor.time.monotonic", lambda: now)
    back_off = BackOff()
    pauses = []
    for _ in range(8):
        back_off.started()
        pauses.append(back_off.pause())
    assert pauses == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    back_off.started()
    now += supervisor.STEADY
    assert back_off.pause() == supervisor.FIRST_PAUSE


async def test_a_worker_is_started_again_with_its_environment_and_stopped_when_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "FIRST_PAUSE", 0.01)
    runs = tmp_path / "runs"
    program = (
        "import os, sys, time\n"
        "with open(os.environ['RUNS'], 'a') as runs: runs.write(f'{os.getpid()}\\n')\n"
        "if len(open(os.environ['RUNS']).readlines()) < 3: sys.exit(7)\n"
        "time.sleep(3600)\n"
    )
    worker = Worker("w", (sys.executable, "-c", program), {"RUNS": str(runs)})
    with structlog.testing.capture_logs() as logs:
        task = asyncio.create_task(keep_running(worker, structlog.get_logger()))
        while not runs.exists() or len(runs.read_text().splitlines()) < 3:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    for pid in runs.read_text().split():
        await gone(int(pid))
    assert [line["event"] for line in logs] == [
        "started",
        "ended, starting again",
        "started",
        "ended, starting again",
        "started",
    ]
    assert [line["code"] for line in logs if "code" in line] == [7, 7]


async def test_a_worker_that_ignores_being_told_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "STOP_PATIENCE", 0.1)
    ready = tmp_path / "ready"
    program = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "open(os.environ['READY'], 'w').write(str(os.getpid()))\n"
        "time.sleep(3600)\n"
    )
    worker = Worker("w", (sys.executable, "-c", program), {"READY": str(ready)})
    task = asyncio.create_task(keep_running(worker, structlog.get_logger()))
    while not ready.exists() or not ready.read_text():
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await gone(int(ready.read_text()))
