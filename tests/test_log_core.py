"""The log over a real broker: append, expect, conflicts, reads, watching."""

import asyncio
import itertools
import sys
from asyncio.subprocess import PIPE

import pytest

from foldlog.errors import EntryTooLarge, InvalidEntry, InvalidIdentifier, VersionConflict
from foldlog.log import Log, open_log
from foldlog.reading import leader_next
from foldlog.topology import ENTRIES
from foldlog_events.codec import encode
from foldlog_events.entries import BaseVersion, Entry, Recorded, Unreadable
from foldlog_events.subjects import both_lanes, subject_of
from tests.entries import edited, new_id, said


async def test_append_then_read(log: Log) -> None:
    one = said("one")
    (first,) = await log.append([one])
    (second,) = await log.append([said("two")])
    (shape,) = await log.append([edited(one.id)])
    assert (first.predecessor, second.predecessor, shape.predecessor) == (0, first.version, 0)
    assert await log.read_all("default", "c") == [first, second, shape]
    assert await log.read_all("default", "c", after=first.version, lane="log") == [second]
    assert await log.last_versions("default", "c") == BaseVersion(second.version, shape.version)


async def test_conflict_holds_what_came_between(log: Log, nats_url: str) -> None:
    (first,) = await log.append([said("one")])
    async with open_log(nats_url) as other:
        (between,) = await other.append([said("between")])
    with pytest.raises(VersionConflict) as conflict:
        await log.append([said("two")], expect=first.version)
    assert conflict.value.entries == (between,)
    assert (conflict.value.expected, conflict.value.actual) == (first.version, between.version)
    (last,) = await log.append([said("two")])
    assert last.predecessor == between.version


async def test_batch_is_one_turn(log: Log) -> None:
    a, b, c = said("a"), said("b"), edited("x")
    stored = await log.append([a, c, b])
    assert [one.version for one in stored] == [1, 2, 3]
    assert [one.predecessor for one in stored] == [0, 0, 1]
    assert await log.read_all("default", "c") == list(stored)


async def test_same_entry_again_is_the_same_version(log: Log, nats_url: str) -> None:
    entry = said("once")
    (first,) = await log.append([entry])
    await log.append([said("next")])
    assert await log.append([entry]) == (first,)
    async with open_log(nats_url) as other:
        assert await other.append([entry]) == (first,)
        assert await other.append([entry], expect=0) == (first,)
    assert len([r for r in await log.read_all("default", "c") if isinstance(r, Recorded)]) == 2


async def test_lanes_do_not_conflict(log: Log, nats_url: str) -> None:
    (first,) = await log.append([said("one")])
    async with open_log(nats_url) as compactor:
        await compactor.append([edited(first.entry.id)], expect=0)
    (second,) = await log.append([said("two")], expect=first.version)
    assert second.predecessor == first.version


async def test_batch_that_conflicts_stores_nothing(log: Log, nats_url: str) -> None:
    (first,) = await log.append([said("one")])
    async with open_log(nats_url) as other:
        (shape,) = await other.append([edited("x")])
    batch: list[Entry] = [said("two"), edited("y"), said("three")]
    with pytest.raises(VersionConflict) as conflict:
        await log.append(batch, expect=BaseVersion(log=first.version, shape=0))
    assert conflict.value.entries == (shape,)
    assert await log.read_all("default", "c") == [first, shape]
    stored = await log.append(batch)
    assert [one.predecessor for one in stored] == [1, 2, 3]
    assert await log.append(batch) == stored


async def test_expecting_a_version_that_is_not_yet_there(log: Log) -> None:
    (first,) = await log.append([said("one")])
    with pytest.raises(VersionConflict) as conflict:
        await log.append([said("two")], expect=first.version + 5)
    assert (conflict.value.actual, conflict.value.entries) == (first.version, ())


async def test_one_version_for_entries_on_both_lanes_is_refused(log: Log) -> None:
    with pytest.raises(InvalidEntry, match="BaseVersion"):
        await log.append([said("one"), edited("x")], expect=0)
    with pytest.raises(InvalidEntry, match="one conversation"):
        await log.append([said("one"), said("two", "other")])
    same = said("one")
    with pytest.raises(InvalidEntry, match="same id"):
        await log.append([same, same])
    with pytest.raises(InvalidEntry, match="at least one"):
        await log.append([])
    with pytest.raises(InvalidEntry, match="1,000"):
        await log.append([said("x") for _ in range(1001)])
    assert await log.read_all("default", "c") == []


async def test_rest_of_a_half_known_batch_is_appended(log: Log) -> None:
    a, b = said("a"), said("b")
    (first,) = await log.append([a])
    stored = await log.append([a, b])
    assert stored[0] == first
    assert [one.version for one in stored] == [1, 2]


async def test_every_lane_is_a_chain(log: Log, nats_url: str) -> None:
    async with open_log(nats_url) as other:
        for turn in range(6):
            writer = log if turn % 2 else other
            await writer.append([said(f"{turn} a"), edited("x"), said(f"{turn} b"), edited("y")])
            await writer.append([said(f"{turn} c")])
    reads = await log.read_all("default", "c")
    for lane in ("log", "shape"):
        versions = [r.version for r in await log.read_all("default", "c", lane=lane)]
        predecessors = [r.predecessor for r in await log.read_all("default", "c", lane=lane)]
        assert predecessors == [0, *versions[:-1]]
    assert [r.version for r in reads] == list(range(1, 31))


async def test_pages_until_all_is_read(log: Log) -> None:
    for start in range(0, 1300, 100):
        await log.append([said(str(number)) for number in range(start, start + 100)])
        await log.append([said("noise", "another")])
    reads = await log.read_all("default", "c")
    texts = [r.entry.messages[0].parts[0].content for r in reads]  # type: ignore[union-attr]
    assert texts == [str(number) for number in range(1300)]
    middle = reads[700].version
    assert await log.read_all("default", "c", up_to=middle) == reads[:701]
    assert await log.read_all("default", "c", after=middle) == reads[701:]
    assert await log.read_all("default", "c", after=middle, up_to=middle + 3) == reads[701:704]


async def test_get_and_shape_tail(log: Log) -> None:
    (one,) = await log.append([said("one")])
    (first,) = await log.append([edited("x")])
    (second,) = await log.append([edited("y")])
    assert await log.get("default", "c", one.version) == one
    assert await log.get("default", "other", one.version) is None
    assert await log.shape_tail("default", "c") == second
    assert await log.shape_tail("default", "c", up_to=2**63 - 1) == second
    assert await log.shape_tail("default", "c", up_to=first.version) == first
    assert await log.shape_tail("default", "c", up_to=one.version) is None


async def test_undecodable_entry_is_named_and_the_rest_is_read(log: Log) -> None:
    (one,) = await log.append([said("one")])
    subject = subject_of("default", "c", "log")
    await log.broker.request(subject, b'{"kind": "message"', headers={})
    await log.broker.request(subject_of("default", "d", "log"), b"")
    foreign = said("foreign", "elsewhere")
    await log.broker.request(subject, encode(foreign))
    (last,) = await log.append([said("last")])
    reads = await log.read_all("default", "c")
    assert [type(read) for read in reads] == [Recorded, Unreadable, Unreadable, Recorded]
    assert isinstance(reads[1], Unreadable)
    assert isinstance(reads[2], Unreadable)
    assert (reads[1].version, reads[1].lane) == (2, "log")
    assert "elsewhere" in reads[2].reason
    assert (reads[0], reads[3]) == (one, last)
    assert last.predecessor == reads[2].version


@pytest.mark.parametrize("lane_full", ["one", "batch"])
async def test_size_is_checked_with_headers(log: Log, lane_full: str) -> None:
    """Case 32: just under the payload limit, with headers over it."""
    limit = log.broker.max_payload
    more = [said("small")] if lane_full == "batch" else []
    with pytest.raises(EntryTooLarge) as error:
        await log.append([*more, said("x" * (limit - 300))])
    assert error.value.size > error.value.limit
    assert await log.read_all("default", "c") == []
    (stored, *_) = await log.append([said("x" * (limit - 2500)), *more])
    (read, *_) = await log.read_all("default", "c")
    assert read == stored
    by_leader = await leader_next(log.broker, ENTRIES, both_lanes("default", "c"), 0)
    assert by_leader is not None
    assert by_leader.version == stored.version


NAMES = [
    "a.b",
    "*",
    ">",
    "user 7",
    "🛒",
    "x" * 5000,
    "x" * 4999 + "y",
    "a",
    "=61",
    "A",
    "..",
    "\x00",
]


async def test_any_name_is_a_conversation_of_its_own(log: Log) -> None:
    """Case 34."""
    for name in NAMES:
        await log.append([said(f"first of {name[:9]}", name)])
    await log.append([said("second", NAMES[0]), edited("x", NAMES[0])])
    listed = {summary.conversation: summary async for summary in log.conversations("default")}
    assert sorted(listed) == sorted(NAMES)
    assert listed["a.b"].entries == 3
    assert listed["a.b"].versions == BaseVersion(log=len(NAMES) + 1, shape=len(NAMES) + 2)
    for name in NAMES[1:]:
        (read,) = await log.read_all("default", name)
        assert isinstance(read, Recorded)
        assert read.entry.conversation == name
        assert listed[name].versions == await log.last_versions("default", name)
    assert [s async for s in log.conversations("nobody")] == []
    with pytest.raises(InvalidIdentifier, match="empty"):
        await log.append([said("x", "")])


async def test_many_tasks_of_one_process(log: Log) -> None:
    stored = await asyncio.gather(*(log.append([said(str(n))]) for n in range(50)))
    assert sorted(one.version for (one,) in stored) == list(range(1, 51))


async def test_no_process_shuts_another_out(log: Log, nats_url: str) -> None:
    """Whoever appends without a pause does not keep others from appending."""
    greedy = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.writer", nats_url, "greedy", "100000", stdout=PIPE
    )
    try:
        assert greedy.stdout is not None
        first = int((await greedy.stdout.readline()).split()[0])
        for number in range(20):
            (recorded,) = await log.append([said(f"other {number}", "shared")])
    finally:
        greedy.kill()
        await greedy.communicate()
    assert recorded.version - first < 20 * 20


async def test_watch_follows_one_conversation(log: Log) -> None:
    await log.append([said("one"), edited("x")])
    await log.append([said("noise", "another")])
    seen = []
    watch = log.watch("default", "c", after=1)
    writer = asyncio.create_task(log.append([said("two")]))
    async for read in watch:
        seen.append(read.version)
        if len(seen) == 2:
            break
    await writer
    assert seen == [2, 4]
    everything = log.watch()
    assert [(await anext(everything)).version for _ in itertools.repeat(None, 4)] == [1, 2, 3, 4]
    await everything.aclose()  # type: ignore[attr-defined]


async def test_ids_of_any_form_are_found_again(log: Log, nats_url: str) -> None:
    entry = said("imported", entry_id="line-17")
    (first,) = await log.append([entry])
    async with open_log(nats_url) as other:
        await other.append([said("next")])
        assert await other.append([entry]) == (first,)
    old = said("late", entry_id=new_id(seconds_ago=3600))
    (late,) = await log.append([old])
    assert await log.append([old]) == (late,)
