"""The log over a real broker: set-up, append, expect, conflicts, reads."""

from datetime import UTC, datetime

import pytest
import uuid_utils

from foldlog.broker import connect
from foldlog.errors import VersionConflict
from foldlog.log import Log, open_log
from foldlog.streams import set_up
from foldlog_events.entries import (
    BaseVersion,
    Edit,
    EditEntry,
    MessageEntry,
    Recorded,
)
from foldlog_events.messages import user


def said(text: str, conversation: str = "c") -> MessageEntry:
    return MessageEntry(
        id=str(uuid_utils.uuid7()),
        conversation=conversation,
        time=datetime.now(UTC),
        messages=(user(text),),
    )


def edited(target: str, conversation: str = "c") -> EditEntry:
    return EditEntry(
        id=str(uuid_utils.uuid7()),
        conversation=conversation,
        time=datetime.now(UTC),
        edits=(Edit(target=target),),
    )


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


async def test_set_up_twice_changes_nothing(nats_url: str) -> None:
    broker = await connect(nats_url)
    await set_up(broker)
    await set_up(broker)
    await broker.close()
