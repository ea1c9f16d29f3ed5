"""Reading back, artifacts and differences, from a session on a real broker."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from foldlog import Foldlog, MessageEntry, ToolCall, assistant, connect, tool_result, user
from foldlog.contexts import UnknownEntry
from foldlog.errors import InvalidEntry, UnknownArtifact
from foldlog_events.entries import ErasedEntry
from foldlog_events.messages import ArtifactReference, Message, Text, ToolCallResponse
from foldlog_projections.recall import (
    Expired,
    NotAllowed,
    NothingToSearchFor,
    Passage,
    SearchResult,
    Unresolved,
)
from tests.entries import new_id, said


@pytest.fixture
async def foldlog(nats_url: str) -> AsyncIterator[Foldlog]:
    async with connect(nats_url, actor="tester") as opened:
        yield opened


async def test_what_left_the_context_is_found_and_read(foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    old = (await session.append(user("the budget is 5,000")))[0]
    await session.reset()
    await session.append(user("what was the budget?"))
    found = await session.recall("budget")
    assert isinstance(found, SearchResult)
    assert [hit.version for hit in found.hits][-1] == old.version
    passage = await session.recall(reference=old.entry.id, offset=4, limit=6)
    assert isinstance(passage, Passage)
    assert (passage.text, passage.version, passage.total) == ("budget", old.version, 19)
    with pytest.raises(NothingToSearchFor):
        await session.recall(" ")


async def test_every_id_is_found_whatever_it_tells_of_its_age(foldlog: Foldlog) -> None:
    """A UUIDv7 may be of a clock that is wrong; other ids say nothing."""
    session = foldlog.session("c")
    ids = [
        new_id(),
        new_id(seconds_ago=86_400),
        new_id(seconds_ago=-86_400),
        "e1",
        str(UUID(int=(1 << 80) | (7 << 76) | (2 << 62))),
    ]
    for entry_id in ids:
        await session.append(said(entry_id, entry_id=entry_id))
    for entry_id in ids:
        passage = await session.recall(reference=entry_id)
        assert isinstance(passage, Passage), entry_id
        assert passage.text == entry_id
    for nothing in (new_id(), "no-such-id"):
        assert isinstance(await session.recall(reference=nothing), Unresolved)


async def test_a_child_reads_what_it_inherits_and_nothing_else(foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    before = (await session.append(user("word before")))[0]
    child = await session.fork("child")
    after = (await session.append(user("word after")))[0]
    own = (await child.append(user("word own")))[0]
    await foldlog.session("other").append(user("word elsewhere"))
    found = await child.recall("word")
    assert isinstance(found, SearchResult)
    assert [hit.version for hit in found.hits] == [own.version, before.version]
    assert isinstance(await child.recall(reference=before.entry.id), Passage)
    assert isinstance(await child.recall(reference=after.entry.id), Unresolved)


async def test_what_was_erased_resolves_to_nothing(foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    secret = (await session.append(user("secret")))[0]
    child = await session.fork("child")
    tombstone = ErasedEntry(
        id="t",
        conversation="c",
        time=datetime.now(UTC),
        target=secret.entry.id,
        target_version=secret.version,
    )
    await foldlog.log.append((tombstone,))
    for reader in (session, child):
        outcome = await reader.recall(reference=secret.entry.id)
        assert outcome == Unresolved(secret.entry.id, "it was erased")
    found = await session.recall("secret")
    assert isinstance(found, SearchResult)
    assert not found.hits


async def test_the_models_call_is_answered(foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    await session.append(user("the code is 4711"))
    call = ToolCall(id="r1", name="recall", arguments={"query": "code"})
    await session.append(assistant("", call))
    await session.append(await session.answer_recall(call))
    answer = (await session.context()).messages[-1].parts[0]
    assert isinstance(answer, ToolCallResponse)
    assert "4711" in str(answer.result)


async def test_an_artifact_is_read_with_what_is_known_of_it(foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    reference = await session.attach(
        "store,sales\nA,5\n" * 500,
        "text/csv",
        source="warehouse.sales",
        coverage="store A, May",
        time=datetime(2026, 5, 31, tzinfo=UTC),
    )
    assert reference.preview.startswith("store,sales")
    await session.append(Message(role="user", parts=(Text(content="see"), reference)))
    passage = await session.recall(reference=reference.digest, offset=12, limit=3)
    assert isinstance(passage, Passage)
    assert (passage.text, passage.source, passage.coverage, passage.time) == (
        "A,5",
        "warehouse.sales",
        "store A, May",
        datetime(2026, 5, 31, tzinfo=UTC),
    )
    call = ToolCall(id="r", name="recall", arguments={"reference": reference.digest})
    told = str((await session.answer_recall(call)).parts[0])
    assert "source: warehouse.sales; covers: store A, May" in told
    assert await session.artifact(reference) == ("store,sales\nA,5\n" * 500).encode()


async def test_what_cannot_be_read_of_an_artifact_says_why(foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    past = datetime.now(UTC) - timedelta(seconds=1)
    stale = await session.attach("prices", valid_until=past)
    image = await session.attach(b"\x89PNG", "image/png")
    gone = await session.attach("gone")
    foreign = await session.attach("foreign")
    await foldlog.session("other").append(Message(role="user", parts=(foreign,)))
    await session.append(Message(role="user", parts=(stale, image, gone)))
    await foldlog.artifacts.delete(gone.digest)
    assert await session.recall(reference=stale.digest) == Expired(stale.digest, past)
    outcome = await session.recall(reference=image.digest)
    assert isinstance(outcome, NotAllowed)
    assert "image/png" in outcome.reason
    assert isinstance(await session.recall(reference=gone.digest), Unresolved)
    assert isinstance(await session.recall(reference=foreign.digest), NotAllowed)
    with pytest.raises(UnknownArtifact):
        await session.artifact(gone.digest)
    with pytest.raises(InvalidEntry, match="offset from UTC"):
        await session.attach("x", valid_until=datetime(2026, 1, 1))


async def test_the_newest_reference_says_how_long_an_artifact_is_valid(foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    past = datetime.now(UTC) - timedelta(seconds=1)
    first = await session.attach("same", valid_until=past)
    result = ToolCallResponse(id="c1", result=(first,))
    await session.append(
        assistant("", ToolCall(id="c1", name="f")), Message(role="tool", parts=(result,))
    )
    assert isinstance(await session.recall(reference=first.digest), Expired)
    renewed = await session.attach("same", valid_until=past + timedelta(days=1))
    assert renewed.digest == first.digest
    await session.append(Message(role="user", parts=(renewed,)))
    assert isinstance(await session.recall(reference=first.digest), Passage)


async def test_large_texts_go_to_the_artifacts_and_stay_readable(foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    large = "row 4711\n" * 40_000
    await session.append(user(large))
    await session.append(assistant("", ToolCall(id="c1", name="f")))
    entry = MessageEntry(
        id="own", conversation="c", time=datetime.now(UTC), messages=(tool_result("c1", large),)
    )
    await session.append(entry)
    question, _, answer = (await session.context()).messages
    kept = question.parts[0]
    assert isinstance(kept, ArtifactReference)
    assert kept.size == len(large)
    assert kept.preview.startswith("row 4711")
    response = answer.parts[0]
    assert isinstance(response, ToolCallResponse)
    assert response.result == (kept,), "the same text is the same reference"
    passage = await session.recall(reference=kept.digest, offset=len(large) - 5, limit=5)
    assert isinstance(passage, Passage)
    assert passage.text == "4711\n"
    again = await session.append(entry)
    assert again[0].entry.id == "own"
    assert len(await foldlog.log.read_all("default", "c")) == 3


async def test_the_limit_is_in_bytes_and_the_callers(foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    cases = [("é" * 5, 10, False), ("é" * 5 + "x", 10, True), ("x" * 300_000, None, False)]
    for text, limit, is_attached in cases:
        (recorded,) = await session.append(user(text), inline_bytes=limit)
        assert isinstance(recorded.entry, MessageEntry)
        part = recorded.entry.messages[0].parts[0]
        assert isinstance(part, ArtifactReference) is is_attached
    said = (await session.append(assistant("y" * 300_000)))[0].entry
    assert isinstance(said, MessageEntry)
    assert isinstance(said.messages[0].parts[0], Text), "an assistant's words stay as they were"
    with pytest.raises(InvalidEntry):
        await session.append(user("\ud800" * 100), inline_bytes=10)


async def test_a_difference_names_the_entry_behind_it(foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    question = (await session.append(user("read a")))[0]
    await session.append(user("and b"))
    edit = await session.edit(question.entry.id, [user("read c")])
    changes = await session.diff(question.version)
    assert [(one.change, one.cause and one.cause.kind) for one in changes.messages] == [
        ("replaced", "edit"),
        ("entered", "message"),
    ]
    assert changes.version_after == edit.version
    assert (await session.diff(edit.version, edit.entry.id)).empty
    with pytest.raises(InvalidEntry, match="swap"):
        await session.diff(edit.version, question.version)
    with pytest.raises(UnknownEntry):
        await session.diff("no-such-id")


async def test_a_childs_difference_reaches_into_what_it_inherits(foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    first = (await session.append(user("one")))[0]
    second = (await session.append(user("two")))[0]
    child = await session.fork("child")
    await session.append(user("not the child's"))
    third = (await child.append(user("three")))[0]
    changes = await child.diff(first.version)
    causes = [one.cause.version for one in changes.messages if one.cause]
    assert causes == [second.version, third.version]
