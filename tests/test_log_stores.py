"""Artifacts, stored views and records over a real broker."""

import asyncio
import hashlib
import os

import pytest

from foldlog.artifacts import Artifacts, digest_of
from foldlog.broker import Broker
from foldlog.errors import CorruptArtifact, UnknownArtifact, ViewConflict
from foldlog.log import Log
from foldlog.records import Records
from foldlog.topology import ARTIFACTS, ARTIFACTS_BUCKET, PRESSURE, VIEWS_BUCKET
from foldlog.views import INLINE_BYTES, StoredView, Views
from foldlog_events.subjects import view_key


@pytest.fixture
def artifacts(log: Log) -> Artifacts:
    return Artifacts(log.broker)


@pytest.fixture
def views(log: Log, artifacts: Artifacts) -> Views:
    return Views(log.broker, artifacts)


async def stored_messages(broker: Broker, stream: str) -> int:
    return int((await broker.api(f"STREAM.INFO.{stream}"))["state"]["messages"])


@pytest.mark.parametrize("size", [0, 1, 256 * 1024, 10 * 1024 * 1024 + 17])
async def test_artifact_comes_back_as_it_was(artifacts: Artifacts, size: int) -> None:
    content = os.urandom(size)
    reference = await artifacts.put(content, "application/octet-stream", preview="bytes")
    assert reference.digest == f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert (reference.size, reference.preview) == (size, "bytes")
    assert await artifacts.get(reference.digest) == content
    assert await artifacts.reference(reference.digest) == reference


async def test_same_content_is_stored_once(artifacts: Artifacts) -> None:
    content = os.urandom(1_000_000)
    first, *others = await asyncio.gather(*(artifacts.put(content, "text/plain") for _ in range(4)))
    assert others == [first] * 3
    count = await stored_messages(artifacts.broker, ARTIFACTS)
    assert count == 4 + 1
    await artifacts.put(content, "text/plain")
    assert await stored_messages(artifacts.broker, ARTIFACTS) == count
    assert [name async for name in artifacts.names()] == [first.digest]


async def test_natss_own_tools_read_and_delete_an_artifact(artifacts: Artifacts) -> None:
    content = os.urandom(600_000)
    reference = await artifacts.put(content, "text/plain")
    bucket = await artifacts.broker.client.jetstream().object_store(ARTIFACTS_BUCKET)
    assert (await bucket.get(reference.digest)).data == content
    await bucket.delete(reference.digest)
    with pytest.raises(UnknownArtifact):
        await artifacts.get(reference.digest)
    await artifacts.put(content, "text/plain")
    assert await artifacts.get(reference.digest) == content


async def test_unknown_and_half_written_artifacts_are_not_there(
    artifacts: Artifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = os.urandom(700_000)
    with pytest.raises(UnknownArtifact):
        await artifacts.get(digest_of(content))

    async def fails(*_: object) -> bool:
        raise RuntimeError("killed before the end")

    with monkeypatch.context() as patch:
        patch.setattr(artifacts, "_put_metadata", fails)
        with pytest.raises(RuntimeError):
            await artifacts.put(content, "text/plain")
    with pytest.raises(UnknownArtifact):
        await artifacts.get(digest_of(content))
    assert [name async for name in artifacts.names()] == []
    reference = await artifacts.put(content, "text/plain")
    assert await artifacts.get(reference.digest) == content
    assert await stored_messages(artifacts.broker, ARTIFACTS) == 3 + 1


async def test_damaged_artifact_is_noticed(artifacts: Artifacts) -> None:
    reference = await artifacts.put(b"x" * 300_000, "text/plain")
    broker = artifacts.broker
    found = await broker.api(
        f"STREAM.MSG.GET.{ARTIFACTS}", {"seq": 1, "next_by_subj": f"$O.{ARTIFACTS_BUCKET}.C.*"}
    )
    first = found["message"]["seq"]
    await broker.api(f"STREAM.MSG.DELETE.{ARTIFACTS}", {"seq": first})
    with pytest.raises(CorruptArtifact):
        await artifacts.get(reference.digest)


async def test_deleted_artifact_is_gone(artifacts: Artifacts) -> None:
    reference = await artifacts.put(b"secret" * 100_000, "text/plain")
    await artifacts.delete(reference.digest)
    await artifacts.delete(reference.digest)
    with pytest.raises(UnknownArtifact):
        await artifacts.get(reference.digest)
    assert await stored_messages(artifacts.broker, ARTIFACTS) == 0


async def test_view_is_replaced_by_who_knows_its_revision(log: Log, views: Views) -> None:
    other = Views(log.broker, Artifacts(log.broker))
    assert await views.get("default", "c") is None
    first = await views.put("default", "c", b"one", revision=0)
    assert await other.get("default", "c") == StoredView(b"one", first)
    with pytest.raises(ViewConflict):
        await other.put("default", "c", b"late", revision=0)
    second = await other.put("default", "c", b"two", revision=first)
    with pytest.raises(ViewConflict) as conflict:
        await views.put("default", "c", b"late", revision=first)
    assert "\n" not in str(conflict.value)
    assert await views.get("default", "c") == StoredView(b"two", second)
    assert [key async for key in views.keys()] == [("default", "c")]  # noqa: SIM118


async def test_large_views_leave_nothing_behind(log: Log, views: Views) -> None:
    large = os.urandom(INLINE_BYTES + 1)
    larger = os.urandom(9 * 1024 * 1024)
    other = Views(log.broker, Artifacts(log.broker))
    first = await views.put("default", "c", large, revision=0)
    assert await other.get("default", "c") == StoredView(large, first)
    with pytest.raises(ViewConflict):
        await other.put("default", "c", larger, revision=0)
    second = await Views(log.broker, Artifacts(log.broker)).put(
        "default", "c", larger, revision=first
    )
    assert await views.get("default", "c") == StoredView(larger, second)
    third = await views.put("default", "c", b"small", revision=second)
    assert await other.get("default", "c") == StoredView(b"small", third)
    assert await stored_messages(log.broker, ARTIFACTS) == 0
    await other.put("default", "c", large, revision=third)
    await views.delete("default", "c")
    assert await other.get("default", "c") is None
    assert await stored_messages(log.broker, ARTIFACTS) == 0


async def test_natss_own_tools_read_and_delete_a_view(log: Log, views: Views) -> None:
    await views.put("default", "a.b", b"one", revision=0)
    bucket = await log.broker.client.jetstream().key_value(VIEWS_BUCKET)
    key = view_key("default", "a.b")
    assert (await bucket.get(key)).value == b"one"
    await bucket.delete(key)
    assert await views.get("default", "a.b") is None


async def test_one_pressure_at_a_time(log: Log) -> None:
    records = Records(log.broker)
    assert await records.announce_pressure("default", "c", b"1")
    assert not await records.announce_pressure("default", "c", b"2")
    assert await records.announce_pressure("default", "d", b"1")
    assert await stored_messages(log.broker, PRESSURE) == 2


async def test_records_are_kept_in_order(log: Log) -> None:
    records = Records(log.broker)
    for number in range(3):
        await records.add_compaction("default", "a.b", str(number).encode())
    await records.add_compaction("default", "a", b"another")
    kept = await records.compactions("default", "a.b")
    assert [record.data for record in kept] == [b"0", b"1", b"2"]
    await records.add_dead("pressure", "default", "c", b"broken")
    await records.add_dead_tokens("entry", "default", "c", b"poison")
    assert [record.data for record in await records.dead("pressure")] == [b"broken"]
    assert len(await records.dead()) == 2
    (letter,) = await records.dead("entry", "default", "c")
    assert letter.data == b"poison"
    assert await records.dead("entry", "default", "other") == []
    await records.remove_dead(letter.version)
    assert await records.dead("entry") == []
