"""Several compactors on one queue, several conversations in each, some of them killed."""

import asyncio
import collections
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from foldlog import Foldlog, assistant, connect, user
from foldlog.announcing import publish
from foldlog.summarisers import SummaryRequest, SummaryResult
from foldlog.summarisers.extractive import Extractive
from foldlog_events.entries import CompactionEntry, Recorded
from foldlog_projections.attempts import ENDS
from foldlog_projections.pressure import assess
from tests.test_compactor import LINE, POLICY, talk
from tests.workers import eventually, running_compactor, small_settings

CONVERSATIONS = 200
KILLED = 2


class Meeting:
    """A summariser that goes on once so many summaries are under way at the same time."""

    def __init__(self, parties: int) -> None:
        self._barrier = asyncio.Barrier(parties)
        self.at_once = 0
        self.most = 0

    async def summarise(self, request: SummaryRequest) -> SummaryResult:
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await self._barrier.wait()
        self.at_once -= 1
        return await Extractive().summarise(request)


async def test_one_compactor_works_on_as_many_conversations_at_once_as_it_may(
    nats_url: str,
) -> None:
    meeting = Meeting(3)
    async with connect(nats_url) as foldlog:
        sessions = [foldlog.session(f"c{n}") for n in range(6)]
        for session in sessions:
            await talk(session, 12)
        settings = small_settings(compactions_at_once=3)
        async with running_compactor(nats_url, settings, meeting):
            ended = await asyncio.gather(*(session.compact(within=60) for session in sessions))
    assert [one.state for one in ended] == ["committed"] * 6
    assert meeting.most == 3


async def test_one_conversation_is_worked_on_once_at_a_time(nats_url: str) -> None:
    meeting = Meeting(1)
    async with connect(nats_url) as foldlog:
        session = foldlog.session("c")
        await talk(session, 12)
        async with running_compactor(nats_url, small_settings(compactions_at_once=4), meeting):
            ended = await asyncio.gather(*(session.compact(within=60) for _ in range(3)))
    assert all(one.state in ENDS for one in ended)
    assert meeting.most == 1


def start(url: str, calls: Path) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "FOLDLOG_URL": url,
        "FOLDLOG_POLICY": json.dumps({"preset": "default", "window": 4_000}),
        "FOLDLOG_COMPACTOR_PATIENCE": "12",
        "FOLDLOG_COMPACTIONS_AT_ONCE": "5",
        "FOLDLOG_LOG_LEVEL": "error",
    }
    root = Path(__file__).parents[1]
    command = [sys.executable, "-m", "tests.counting_compactor", str(calls), "0.3"]
    return subprocess.Popen(command, env=environment, cwd=root)


async def fill(foldlog: Foldlog, conversation: str) -> str:
    """Bring a conversation under pressure and say so; the id of its first entry."""
    session = foldlog.session(conversation)
    said = [
        message
        for turn in range(40)
        for message in (user(f"Question {turn}: {LINE * 3}"), assistant(f"Answer {turn}. {LINE}"))
    ]
    first = (await session.append(*said[:2]))[0].entry.id
    for at in range(2, len(said), 2):
        await session.append(said[at], said[at + 1])
    view = await session.context()
    pressure = assess(view, POLICY, None, 0.0)
    assert pressure is not None
    assert await publish(foldlog.records, pressure)  # type: ignore[arg-type]
    return first


@pytest.mark.timeout(300)
async def test_four_compactors_two_killed_two_hundred_conversations_each_compacted_once(
    nats_url: str, tmp_path: Path
) -> None:
    calls = tmp_path / "calls.jsonl"
    calls.touch()
    chance = random.Random(20261130)
    async with connect(nats_url) as foldlog:
        names = [f"c{n}" for n in range(CONVERSATIONS)]
        firsts = await asyncio.gather(*(fill(foldlog, name) for name in names))
        workers = [start(nats_url, calls) for _ in range(4)]
        try:
            for victim, after in zip(chance.sample(range(4), KILLED), (20, 60), strict=True):

                async def has_come(after: int = after) -> bool:
                    return calls.read_text().count('"done"') >= after

                await eventually(has_come, within=90)
                workers[victim].send_signal(signal.SIGKILL)
                workers[victim].wait()

            async def all_ended() -> bool:
                queue = await foldlog.broker.api("STREAM.INFO.PRESSURE")
                return bool(queue["state"]["messages"] == 0)

            await eventually(all_ended, within=100)
        finally:
            for worker in workers:
                worker.terminate()
                worker.wait(30)
        paid = collections.Counter(
            (line["entry"], line["what"]) for line in map(json.loads, calls.open())
        )
        again = 0
        for name, first in zip(names, firsts, strict=True):
            committed = [
                read
                async for read in foldlog.log.read("default", name)
                if isinstance(read, Recorded) and isinstance(read.entry, CompactionEntry)
            ]
            assert len(committed) == 1, name
            view = await foldlog.session(name).context()
            assert view.stale_compactions == 0
            assert view.head is not None
            assert view.head.id == committed[0].entry.id
            assert view.tokens < POLICY.soft_limit
            records = await foldlog.attempts.read("default", name)
            assert records[-1].state == "committed", name
            started = [one.id for one in records if one.state == "started"]
            assert sorted(started) == sorted(one.id for one in records if one.state in ENDS)
            begun = paid[first, "begun"]
            died = sum(1 for one in records if "died" in one.reason)
            assert 1 <= begun <= 1 + died, (name, begun, records)
            again += begun - 1
        assert again <= KILLED * 5
