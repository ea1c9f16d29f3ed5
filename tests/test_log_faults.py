"""Faults between a writer and the broker: none may lose, repeat or reorder an entry."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from foldlog.broker import connect
from foldlog.errors import AppendOutcomeUnknown, AppendTimedOut, BrokerUnreachable, VersionConflict
from foldlog.log import Log, open_log
from foldlog.topology import DUPLICATE_WINDOW, ENTRIES, STREAMS
from foldlog_events.entries import Entry, Recorded
from tests.conftest import Server
from tests.entries import edited, new_id, said
from tests.faulty_proxy import FaultyProxy, acknowledgement

ROOT = Path(__file__).parents[1]


@pytest.fixture
async def proxy(nats_url: str) -> AsyncIterator[FaultyProxy]:
    port = urlsplit(nats_url).port
    assert port
    async with FaultyProxy(port) as started:
        yield started


@pytest.fixture
async def behind(proxy: FaultyProxy, nats_url: str) -> AsyncIterator[Log]:
    """A log whose traffic passes the proxy, and which is quick to doubt."""
    async with open_log(proxy.url(urlsplit(nats_url).netloc.rpartition("@")[0])) as opened:
        yield Log(opened.broker, attempt_timeout=0.2)


def drop_first_acknowledgement(proxy: FaultyProxy) -> None:
    proxy.drop_answer = lambda message: proxy.dropped == 0 and acknowledgement(message)


async def texts(log: Log, conversation: str = "c") -> list[str]:
    return [
        read.entry.messages[0].parts[0].content  # type: ignore[union-attr]
        for read in await log.read_all("default", conversation, lane="log")
    ]


@pytest.mark.parametrize("expect", [None, 1])
async def test_lost_acknowledgement(
    behind: Log, proxy: FaultyProxy, log: Log, expect: int | None
) -> None:
    """Case 31."""
    await behind.append([said("one")])
    drop_first_acknowledgement(proxy)
    (recorded,) = await behind.append([said("two")], expect=expect)
    assert proxy.dropped == 1
    assert recorded.version == 2
    assert recorded.predecessor == 1
    (third,) = await behind.append([said("three")])
    assert third.predecessor == 2
    assert await texts(log) == ["one", "two", "three"]


@pytest.mark.parametrize("expect", [None, 0])
async def test_lost_acknowledgement_of_a_batch(
    behind: Log, proxy: FaultyProxy, log: Log, expect: int | None
) -> None:
    drop_first_acknowledgement(proxy)
    batch: list[Entry] = [said("one"), said("two")]
    if expect is None:
        batch.append(edited("x"))
    stored = await behind.append(batch, expect=expect)
    assert proxy.dropped == 1
    assert list(stored) == await log.read_all("default", "c")
    assert [one.entry for one in stored] == batch


async def test_lost_acknowledgement_and_another_writer(
    behind: Log, proxy: FaultyProxy, log: Log
) -> None:
    proxy.drop_answer = acknowledgement
    append = asyncio.create_task(behind.append([said("one")]))
    await proxy.drop_event.wait()
    (other,) = await log.append([said("other")])
    proxy.drop_answer = lambda message: False
    (recorded,) = await append
    assert (recorded.version, other.version) == (1, 2)
    assert await texts(log) == ["one", "other"]


async def test_lost_acknowledgement_of_a_first_entry_in_a_long_conversation(
    behind: Log, proxy: FaultyProxy, log: Log
) -> None:
    for start in range(0, 300, 100):
        await log.append([said(str(n)) for n in range(start, start + 100)])
    drop_first_acknowledgement(proxy)
    (recorded,) = await behind.append([said("last")])
    assert recorded.version == 301
    assert (await texts(log))[-1:] == ["last"]
    assert len(await texts(log)) == 301


async def test_no_answer_at_all_is_an_unknown_outcome(
    behind: Log, proxy: FaultyProxy, log: Log
) -> None:
    entry = said("one")
    proxy.drop_answer = lambda message: True
    with pytest.raises(AppendOutcomeUnknown) as error:
        await behind.append([entry], deadline=0.6)
    assert error.value.ids == (entry.id,)
    proxy.drop_answer = lambda message: False
    (recorded,) = await behind.append([entry])
    assert recorded.version == 1
    assert await texts(log) == ["one"]


async def test_ghost_writes_are_harmless(behind: Log, proxy: FaultyProxy, log: Log) -> None:
    """Requests that reach the broker long after they were given up."""
    await behind.append([said("one")])
    proxy.hold_requests()
    ghost = said("ghost")
    with pytest.raises(AppendOutcomeUnknown):
        await behind.append([ghost], deadline=0.7)
    (other,) = await log.append([said("two")])
    proxy.release()
    (stored,) = await behind.append([ghost])
    assert stored.version > other.version
    assert await texts(log) == ["one", "two", "ghost"]


async def test_ghost_write_with_an_expected_version(
    behind: Log, proxy: FaultyProxy, log: Log
) -> None:
    (one,) = await behind.append([said("one")])
    proxy.hold_requests()
    with pytest.raises(AppendOutcomeUnknown):
        await behind.append([said("ghost")], expect=one.version, deadline=0.5)
    (two,) = await log.append([said("two")])
    proxy.release()
    with pytest.raises(VersionConflict) as conflict:
        await behind.append([said("three")], expect=one.version)
    assert conflict.value.entries == (two,)
    assert await texts(log) == ["one", "two"]


async def test_connection_breaks_before_the_answer(
    behind: Log, proxy: FaultyProxy, log: Log
) -> None:
    proxy.drop_answer = lambda message: acknowledgement(message) and not proxy.drop_event.is_set()
    append = asyncio.create_task(behind.append([said("one")]))
    await proxy.drop_event.wait()
    proxy.cut()
    (recorded,) = await append
    assert recorded.version == 1
    assert await texts(log) == ["one"]


async def test_broker_that_is_away_longer_than_the_deadline(own_server: Server) -> None:
    async with open_log(own_server.url) as log:
        await log.append([said("one")])
        own_server.stop()
        await until(lambda: not log.broker.is_connected)
        with pytest.raises(BrokerUnreachable):
            await log.append([said("two")], deadline=0.3)
        entry = said("three")
        append = asyncio.create_task(log.append([entry], deadline=30))
        await asyncio.sleep(0)
        own_server.start()
        (recorded,) = await append
        assert recorded.entry == entry
        assert await texts(log) == ["one", "three"]


async def test_killed_broker_keeps_what_it_acknowledged(own_server: Server) -> None:
    async with open_log(own_server.url) as log:
        done = asyncio.Event()
        acknowledged: list[Recorded] = []

        async def write() -> None:
            while not done.is_set():
                acknowledged.extend(await log.append([said(str(len(acknowledged)))], deadline=30))

        writing = asyncio.create_task(write())
        for count in (20, 40, 60):
            await until(lambda count=count: len(acknowledged) >= count)
            own_server.stop(kill=True)
            own_server.start()
        await until(lambda: len(acknowledged) >= 80)
        done.set()
        await writing
        assert await log.read_all("default", "c") == acknowledged


async def test_watch_over_restarts_of_the_broker(own_server: Server) -> None:
    async with open_log(own_server.url) as log, open_log(own_server.url) as writer:
        seen: list[int] = []

        async def watch() -> None:
            async for read in log.watch("default", "c"):
                seen.append(read.version)  # noqa: PERF401

        watching = asyncio.create_task(watch())
        stored: list[int] = []
        for round_number in range(3):
            for number in range(10):
                batch = await writer.append([said(f"{round_number} {number}")], deadline=30)
                stored.append(batch[0].version)
                await writer.append([said("noise", "another")], deadline=30)
            if round_number == 0:
                await until(lambda: len(seen) == len(stored))
            own_server.stop(kill=round_number == 1)
            own_server.start()
        await writer.append([said("end", "another")], deadline=30)
        await until(lambda: len(seen) >= len(stored))
        assert seen == stored
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching


async def test_watch_over_a_removed_consumer(log: Log) -> None:
    seen: list[int] = []

    async def watch() -> None:
        async for read in log.watch():
            seen.append(read.version)  # noqa: PERF401

    watching = asyncio.create_task(watch())
    await log.append([said("one")])
    await until(lambda: seen == [1])
    names = (await log.broker.api(f"CONSUMER.NAMES.{ENTRIES}"))["consumers"]
    assert len(names) == 1
    await log.broker.api(f"CONSUMER.DELETE.{ENTRIES}.{names[0]}")
    await log.append([said("two"), said("three")])
    await until(lambda: seen == [1, 2, 3])
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def test_cancelled_append_says_what_is_known(
    behind: Log, proxy: FaultyProxy, log: Log
) -> None:
    await behind.append([said("one")])
    proxy.hold_requests()
    append = asyncio.create_task(behind.append([said("two")], deadline=5))
    await proxy.held.wait()
    append.cancel()
    await asyncio.sleep(0)
    proxy.release()
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await append
    assert any("versions [2]" in note for note in cancelled.value.__notes__)
    assert await texts(log) == ["one", "two"]


async def test_cancelled_append_without_an_answer(behind: Log, proxy: FaultyProxy) -> None:
    proxy.drop_answer = lambda message: True
    append = asyncio.create_task(behind.append([said("one")], deadline=5))
    await proxy.drop_event.wait()
    append.cancel()
    with pytest.raises(AppendOutcomeUnknown):
        await append


async def test_a_turn_that_does_not_come(behind: Log, proxy: FaultyProxy, log: Log) -> None:
    proxy.hold_requests()
    first = asyncio.create_task(behind.append([said("one")], deadline=20))
    await proxy.held.wait()
    with pytest.raises(AppendTimedOut):
        await behind.append([said("two")], deadline=0.05)
    proxy.release()
    await first
    assert await texts(log) == ["one"]


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("expect", [None, 1])
async def test_retry_outside_the_duplicate_window(
    nats_url: str, expect: int | None, batch: bool
) -> None:
    """Case 31: the process that retries knows nothing, and the broker has forgotten."""
    broker = await connect(nats_url)
    settings = next(wanted for wanted in STREAMS if wanted["name"] == ENTRIES)
    await broker.api(f"STREAM.CREATE.{ENTRIES}", {**settings, "duplicate_window": 100_000_000})
    first = Log(broker)
    await first.append([said("one")])
    entries = [said("late", entry_id=new_id(seconds_ago=DUPLICATE_WINDOW + 1))]
    if batch:
        entries.append(said("later", entry_id=new_id(seconds_ago=DUPLICATE_WINDOW)))
    stored = await first.append(entries, expect=expect)
    await first.append([said("next")])
    await forgotten(first)
    for retry in (Log(broker), first):
        assert await retry.append(entries, expect=expect) == stored
        assert await retry.append(entries) == stored
    assert await texts(first) == ["one", *["late", "later"][: len(entries)], "next"]
    await broker.close()


async def test_two_processes_write_to_one_conversation(nats_url: str, log: Log) -> None:
    """Case 33."""
    each = 500
    writers = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.writer",
            nats_url,
            name,
            str(each),
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=asyncio.subprocess.PIPE,
        )
        for name in ("left", "right")
    ]
    outputs = [(await writer.communicate())[0].decode().split() for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0]
    reads = await log.read_all("default", "shared")
    assert len(reads) == 2 * each
    assert [read.predecessor for read in reads] == [0, *(read.version for read in reads[:-1])]
    said_by = {
        name: [t for t in await texts(log, "shared") if t.startswith(name)]
        for name in ("left", "right")
    }
    for name in said_by:
        assert said_by[name] == [f"{name} {number}" for number in range(each)]
    acknowledged = {
        output[at + 1]: int(output[at]) for output in outputs for at in range(0, len(output), 2)
    }
    assert acknowledged == {
        read.entry.id: read.version for read in reads if isinstance(read, Recorded)
    }


async def forgotten(log: Log) -> None:
    """Returns once the broker no longer knows an id that it stored just now."""

    async def duplicate() -> bool:
        answer = await log.broker.request(
            "entry.0.probe.window.log", b"x", headers={"Nats-Msg-Id": "probe"}
        )
        return b'"duplicate"' in answer.data

    await duplicate()
    await until(duplicate, wanted=False)


async def until(condition: object, *, wanted: bool = True) -> None:
    async with asyncio.timeout(30):
        while True:
            value = condition()  # type: ignore[operator]
            if asyncio.iscoroutine(value):
                value = await value
            if bool(value) is wanted:
                return
            await asyncio.sleep(0.01)
