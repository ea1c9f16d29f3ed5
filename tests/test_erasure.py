"""Erasure on a real broker: afterwards the text is nowhere, and everything else is as it was."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from foldlog import Foldlog, Section, assistant, connect, user
from foldlog.audit import verify
from foldlog.contexts import ParentDeleted, UnknownEntry
from foldlog.erasure import ErasureNotPermitted, HasChildren, NotErasable
from foldlog.errors import ConnectionClosed, UnknownArtifact, UnknownConversation
from foldlog.remaking import SUMMARY_REMOVED
from foldlog.session import Session
from foldlog_events.entries import (
    CompactionEntry,
    Edit,
    EditEntry,
    EntryReference,
    ErasedEntry,
    Recorded,
    SourceRange,
)
from foldlog_events.messages import Message, Text
from foldlog_projections.fold import ContextFold
from foldlog_projections.recall import SearchResult, Unresolved
from foldlog_projections.summary_source import SummaryResult
from foldlog_projections.views import ContextView
from tests.conftest import Server
from tests.entries import new_id
from tests.test_session import said
from tests.workers import Gated, eventually, running_compactor, running_projector

SECRET = "the password is XYZZY-4711"
TRACE = b"XYZZY-4711"


@pytest.fixture
async def foldlog(own_server: Server) -> AsyncIterator[Foldlog]:
    async with connect(own_server.url, actor="tester") as opened:
        yield opened


def files_with(folder: Path, text: bytes) -> list[str]:
    """The broker's files that hold a text."""
    found = []
    for file in sorted(folder.rglob("*")):
        try:
            if file.is_file() and text in file.read_bytes():
                found.append(str(file.relative_to(folder)))
        except FileNotFoundError:  # the broker removes purged blocks in the background
            continue
    return found


async def nowhere(server: Server, text: bytes = TRACE) -> None:
    async def gone() -> bool:
        return not files_with(server.folder / "data", text)

    await eventually(gone)
    server.stop()
    assert not files_with(server.folder / "data", text)
    server.start()
    assert not files_with(server.folder / "data", text)


async def store_view(foldlog: Foldlog, conversation: str) -> None:
    stored = await foldlog.views.get("default", conversation)
    context = await foldlog.contexts.current("default", conversation)
    data = msgspec.json.encode(context.state())
    revision = stored.revision if stored else 0
    await foldlog.views.put("default", conversation, data, revision=revision)


async def compacted(
    foldlog: Foldlog, conversation: str, kept: Recorded, summary: str, first: EntryReference
) -> Recorded:
    """A compaction of everything before an entry, as a compactor writes it."""
    view = await foldlog.session(conversation).context()
    last = EntryReference(kept.entry.id, kept.version - 1)
    entry = CompactionEntry(
        id=new_id(),
        conversation=conversation,
        time=datetime.now(UTC),
        base_version=view.base_version,
        source_range=SourceRange(first=first, last=last, count=2, digest="sha256:0"),
        kept_from=EntryReference(kept.entry.id, kept.version),
        summary=summary,
    )
    return (await foldlog.log.append((entry,), expect=view.base_version.shape))[0]


def reference(recorded: Recorded) -> EntryReference:
    return EntryReference(recorded.entry.id, recorded.version)


async def holds_together(foldlog: Foldlog, conversation: str) -> ContextView:
    """What is stored, folded from the log and folded on by a session is the same."""
    view = await foldlog.session(conversation).context()
    rebuilt = await foldlog.contexts.rebuilt("default", conversation)
    assert rebuilt.view() == view
    assert (await verify(foldlog)).differences == ()
    return view


async def test_39_an_erased_text_is_nowhere(own_server: Server, foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    await session.append(user("hello"))
    secret = (await session.append(user(SECRET)))[0]
    await session.context()
    await session.append(assistant("noted"))
    await store_view(foldlog, "c")
    kept = (await session.append(user("go on")))[0]
    await store_view(foldlog, "c")
    await session.edit(secret.entry.id, [user(f"shortened: {SECRET}")])
    summary = await compacted(foldlog, "c", kept, f"It was said that {SECRET}", reference(secret))
    await session.context()
    await session.append(assistant("going on"))
    await store_view(foldlog, "c")
    assert files_with(own_server.folder, TRACE)

    erasure = await foldlog.erase("c", secret.entry.id, reason="asked for")

    assert erasure.entries == 3
    assert erasure.summaries_remade == 1
    view = await holds_together(foldlog, "c")
    assert [line[:40] for line in said(view)[1:]] == ["user: go on", "assistant: going on"]
    assert SUMMARY_REMOVED in said(view)[0]
    assert isinstance(await session.recall(reference=secret.entry.id), Unresolved)
    assert isinstance(await session.recall(reference=summary.entry.id), Unresolved)
    found = await session.recall("XYZZY")
    assert isinstance(found, SearchResult)
    assert not found.hits
    assert TRACE.decode() not in str(await verify(foldlog))
    assert (await foldlog.erase("c", secret.entry.id)).summaries_remade == 0
    await nowhere(own_server)


async def test_39_a_compaction_in_flight_does_not_bring_it_back(
    own_server: Server, foldlog: Foldlog
) -> None:
    def summary_with_it(request: object) -> SummaryResult:
        return SummaryResult(text=f"## Goal\n{SECRET}")

    session = foldlog.session("c")
    secret = (await session.append(user(SECRET)))[0]
    for n in range(6):
        await session.append(user(f"question {n} " + "word " * 800), assistant("answer " * 200))
    gated = Gated(summary_with_it)
    async with running_compactor(own_server.url, summariser=gated):
        compacting = asyncio.create_task(session.compact())
        await asyncio.wait_for(gated.begun.wait(), 30)
        await foldlog.erase("c", secret.entry.id)
        gated.may_end.set()
        record = await compacting
    assert record.state in ("stale", "failed"), record
    view = await holds_together(foldlog, "c")
    assert view.head is None
    await foldlog.erase("c", secret.entry.id)
    await nowhere(own_server)


async def test_39_beside_a_running_projector(own_server: Server, foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    async with running_projector(own_server.url):
        await session.append(user("a"))
        secret = (await session.append(user(SECRET)))[0]
        await session.append(user("b"))

        async def is_stored() -> bool:
            stored = await foldlog.contexts.stored("default", "c")
            return stored is not None and stored.version == (await session.context()).version

        await eventually(is_stored)
        await foldlog.erase("c", secret.entry.id)
        await session.append(user("d"))
        await eventually(is_stored)
        assert said(await session.context()) == ["user: a", "user: b", "user: d"]
    await nowhere(own_server)


async def test_the_last_entry_of_a_lane_leaves_its_version_behind(
    own_server: Server, foldlog: Foldlog
) -> None:
    session = foldlog.session("c")
    secret = (await session.append(user(SECRET)))[0]
    await foldlog.erase("c", secret.entry.id)
    versions = await foldlog.log.last_versions("default", "c")
    assert versions.log > secret.version
    await session.append(user("next"))
    assert said(await holds_together(foldlog, "c")) == ["user: next"]
    await nowhere(own_server)


async def test_a_summary_that_merged_one_is_removed_too_and_one_after_a_reset_is_not(
    own_server: Server, foldlog: Foldlog
) -> None:
    """Thirty compactions carry a text on: each of them goes, up to the next reset."""
    session = foldlog.session("c")
    secret = (await session.append(user(SECRET)))[0]
    first = reference(secret)
    for n in range(3):
        kept = (await session.append(user(f"kept {n}")))[0]
        await compacted(foldlog, "c", kept, f"{n}: {SECRET}", first)
        first = reference(kept)
    await session.reset([user("a fresh start")])
    later = (await session.append(user("later")))[0]
    kept = (await session.append(user("now")))[0]
    innocent = await compacted(foldlog, "c", kept, "nothing of it", reference(later))
    erasure = await foldlog.erase("c", secret.entry.id)
    assert (erasure.entries, erasure.summaries_remade) == (4, 0)
    view = await holds_together(foldlog, "c")
    assert view.head is not None
    assert view.head.id == innocent.entry.id
    await nowhere(own_server)


async def test_edits_of_other_entries_stay_in_force(own_server: Server, foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    secret = (await session.append(user(SECRET)))[0]
    other = (await session.append(user("other")))[0]
    both = EditEntry(
        id="both",
        conversation="c",
        time=datetime.now(UTC),
        edits=(
            Edit(target=secret.entry.id, replace=(user(SECRET[:-1] + "1!"),)),
            Edit(target=other.entry.id, replace=(user("edited"),)),
        ),
    )
    await session.append(both)
    await foldlog.erase("c", secret.entry.id)
    assert said(await holds_together(foldlog, "c")) == ["user: edited"]
    await nowhere(own_server)


async def test_an_erased_edit_leaves_its_target_unseen(
    own_server: Server, foldlog: Foldlog
) -> None:
    session = foldlog.session("c")
    first = (await session.append(user("first")))[0]
    edit = await session.edit(first.entry.id, [user(SECRET)])
    await session.append(user("second"))
    await foldlog.erase("c", edit.entry.id)
    assert said(await holds_together(foldlog, "c")) == ["user: second"]
    await nowhere(own_server)


async def test_what_was_compacted_right_after_an_erased_edit_stays_in_force(
    own_server: Server, foldlog: Foldlog
) -> None:
    """Its base version names an entry that is gone; it is not stale for that."""
    session = foldlog.session("c")
    old = (await session.append(user("old")))[0]
    kept = (await session.append(user("kept")))[0]
    secret = (await session.append(user(SECRET)))[0]
    await session.edit(secret.entry.id, [user(SECRET)])
    summary = await compacted(foldlog, "c", kept, "what was old", reference(old))
    await foldlog.erase("c", secret.entry.id)
    view = await holds_together(foldlog, "c")
    assert view.head is not None
    assert view.head.id == summary.entry.id
    await nowhere(own_server)


async def test_an_erased_entry_that_a_range_begins_with(
    own_server: Server, foldlog: Foldlog
) -> None:
    session = foldlog.session("c")
    old = (await session.append(user("old")))[0]
    secret = (await session.append(user(SECRET)))[0]
    await session.append(user("after"))
    await compacted(foldlog, "c", secret, "what was old", reference(old))
    await foldlog.erase("c", secret.entry.id)
    view = await holds_together(foldlog, "c")
    assert said(view)[1:] == ["user: after"]
    assert "what was old" in said(view)[0]
    await nowhere(own_server)


async def test_an_erased_section_leaves_the_baselines(own_server: Server, foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    await session.append(user("q"))
    await session.prepare([Section(name="role", text="You help.")])
    await session.prepare(
        [Section(name="role", text="You help."), Section(name="key", text=SECRET)]
    )
    entries = await foldlog.log.read_all("default", "c")
    setting = entries[-1]
    assert isinstance(setting, Recorded)
    await session.reset([user("handoff")])
    await session.append(user("on"))
    await foldlog.erase("c", setting.entry.id)
    view = await holds_together(foldlog, "c")
    assert said(view) == ["system: You help.", "user: handoff", "user: on"]
    await nowhere(own_server)


async def test_an_erased_handoff(own_server: Server, foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    await session.prepare([Section(name="role", text="You help.")])
    reset = await session.reset([user(SECRET)])
    await session.append(user("on"))
    await foldlog.erase("c", reset.entry.id)
    assert said(await holds_together(foldlog, "c")) == ["system: You help.", "user: on"]
    await nowhere(own_server)


async def test_children_lose_what_they_inherited(own_server: Server, foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    first = (await session.append(user("first")))[0]
    secret = (await session.append(user(SECRET)))[0]
    before = await session.fork("before-it", at=first.version)
    kept = (await session.append(user("kept")))[0]
    await compacted(foldlog, "c", kept, SECRET, reference(first))
    child = await session.fork("child")
    own = (await child.append(user("own")))[0]
    grandchild = await child.fork("grandchild")
    await compacted(foldlog, "child", own, f"again {SECRET}", reference(kept))
    await grandchild.append(user("deep"))
    for name in ("c", "child", "grandchild"):
        await store_view(foldlog, name)
    erasure = await foldlog.erase("c", secret.entry.id)
    assert sorted(erasure.conversations) == ["child", "grandchild"]
    for name, last in (
        ("c", ["kept"]),
        ("child", ["own"]),
        ("grandchild", ["kept", "own", "deep"]),
    ):
        lines = said(await holds_together(foldlog, name))
        assert SUMMARY_REMOVED in lines[0], name
        assert lines[1:] == [f"user: {text}" for text in last], name
    assert said(await before.context()) == ["user: first"]
    assert isinstance(await grandchild.recall(reference=secret.entry.id), Unresolved)
    await nowhere(own_server)


async def test_artifacts_go_where_nobody_else_uses_them(
    own_server: Server, foldlog: Foldlog
) -> None:
    session = foldlog.session("c")
    alone = await session.attach(SECRET * 30_000, preview="")
    shared = await session.attach("shared")
    mine = (await session.append(Message(role="user", parts=(alone, shared))))[0]
    await foldlog.session("other").append(Message(role="user", parts=(shared,)))
    erasure = await foldlog.erase("c", mine.entry.id)
    assert erasure.artifacts == 1
    with pytest.raises(UnknownArtifact):
        await session.artifact(alone)
    assert await session.artifact(shared) == b"shared"
    await nowhere(own_server)


async def test_a_large_view_goes_with_its_content(own_server: Server, foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    secret = (await session.append(user(SECRET)))[0]
    for n in range(8):
        await session.append(assistant(f"{n}" * 100_000))
        await store_view(foldlog, "c")
    await foldlog.erase("c", secret.entry.id)
    await holds_together(foldlog, "c")
    await nowhere(own_server)


async def test_a_repetition_elsewhere_is_named(foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    secret = (await session.append(user(SECRET)))[0]
    repeated = (await session.append(assistant(f"You said: {SECRET}")))[0]
    erasure = await foldlog.erase("c", secret.entry.id)
    assert erasure.mentions == (reference(repeated),)


async def test_every_copy_of_an_id_goes(own_server: Server, foldlog: Foldlog) -> None:
    from foldlog_events.codec import encode
    from foldlog_events.subjects import subject_of

    session = foldlog.session("c")
    secret = (await session.append(user(SECRET)))[0]
    subject = subject_of("default", "c", "log")
    await foldlog.broker.request(subject, encode(secret.entry))
    await session.append(user("after"))
    erasure = await foldlog.erase("c", secret.entry.id)
    assert erasure.entries == 2
    await nowhere(own_server)


@pytest.mark.parametrize("dies_at", ["erase_messages", "erase_artifacts", "forget_views"])
async def test_an_erasure_that_died_on_the_way_is_completed_by_the_next(
    own_server: Server, foldlog: Foldlog, monkeypatch: pytest.MonkeyPatch, dies_at: str
) -> None:
    async def dies(*_: object, **__: object) -> int:
        raise ConnectionClosed("the process died")

    session = foldlog.session("c")
    artifact = await session.attach(SECRET * 100)
    parts = (Text(content=SECRET), artifact)
    secret = (await session.append(Message(role="user", parts=parts)))[0]
    kept = (await session.append(user("kept")))[0]
    await compacted(foldlog, "c", kept, SECRET, reference(secret))
    await store_view(foldlog, "c")
    with monkeypatch.context() as patched:
        patched.setattr(f"foldlog.erasure.{dies_at}", dies)
        with pytest.raises(ConnectionClosed):
            await foldlog.erase("c", secret.entry.id)
    assert TRACE.decode() not in str((await session.context()).messages), "no context shows it"
    await foldlog.erase("c", secret.entry.id)
    assert said(await holds_together(foldlog, "c"))[1:] == ["user: kept"]
    await nowhere(own_server)


async def test_what_cannot_be_erased(foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    one = (await session.append(user("one")))[0]
    await session.fork("child")
    fork = (await foldlog.log.read_all("default", "child"))[0]
    assert isinstance(fork, Recorded)
    with pytest.raises(UnknownEntry):
        await foldlog.erase("c", "no-such-id")
    with pytest.raises(UnknownConversation):
        await foldlog.erase("nobody", one.entry.id)
    with pytest.raises(NotErasable, match="fork"):
        await foldlog.erase("child", fork.entry.id)
    await foldlog.erase("c", one.entry.id)
    tombstone = next(
        read
        for read in await foldlog.log.read_all("default", "c")
        if isinstance(read, Recorded) and isinstance(read.entry, ErasedEntry)
    )
    with pytest.raises(NotErasable):
        await foldlog.erase("c", tombstone.entry.id)


async def test_who_may_not_delete_changes_nothing(tmp_path: Path) -> None:
    deny = '["$JS.API.STREAM.MSG.DELETE.>", "$JS.API.STREAM.PURGE.>"]'
    server = Server(
        tmp_path,
        "authorization { users: [ { user: op, password: p }, { user: agent, password: p, "
        f'permissions: {{ publish: {{ allow: ">", deny: {deny} }} }} }} ] }}',
    )
    server.start()
    try:
        async with connect(server.url.replace("://", "://op:p@")) as operator:
            secret = (await operator.session("c").append(user(SECRET)))[0]
            async with connect(server.url.replace("://", "://agent:p@")) as agent:
                for refused in (agent.erase("c", secret.entry.id), agent.delete("c")):
                    with pytest.raises(ErasureNotPermitted, match="operator"):
                        await refused
            assert len(await operator.log.read_all("default", "c")) == 1
            await operator.erase("c", secret.entry.id)
        await nowhere(server)
    finally:
        server.stop(kill=True)


async def test_a_deleted_conversation_is_nowhere_and_may_go_on(
    own_server: Server, foldlog: Foldlog
) -> None:
    session = foldlog.session("c")
    await session.append(user(SECRET))
    reset = await session.reset([user(SECRET)])
    await session.note("n", SECRET)
    await session.context()
    await store_view(foldlog, "c")
    elsewhere = foldlog.session("c")
    await elsewhere.context()
    erasure = await foldlog.delete("c", reason="asked for")
    assert erasure.entries == 3
    assert said(await elsewhere.context()) == [], "a live session drops it"
    assert isinstance(await elsewhere.recall(reference=reset.entry.id), Unresolved)
    await elsewhere.append(user("new"))
    assert said(await holds_together(foldlog, "c")) == ["user: new"]
    again = await foldlog.delete("c")
    assert again.entries == 4
    await nowhere(own_server)


async def test_a_parent_is_kept_for_its_children_until_they_are_independent(
    own_server: Server, foldlog: Foldlog
) -> None:
    session = foldlog.session("c")
    await session.append(user(SECRET))
    await session.prepare([Section(name="role", text="You help.")])
    child: Session = await session.fork("child")
    own = (await child.append(user("own")))[0]
    before = await child.context()
    with pytest.raises(HasChildren, match="'child'"):
        await foldlog.delete("c")
    assert await foldlog.materialise("child") is not None
    assert await foldlog.materialise("child") is None
    after = await child.context()
    assert (after.messages, after.tools, after.sections) == (
        before.messages,
        before.tools,
        before.sections,
    )
    await foldlog.delete("c")
    await child.append(user("more"))
    view = await holds_together(foldlog, "child")
    assert said(view)[-2:] == ["user: own", "user: more"]
    with pytest.raises(ParentDeleted):
        await child.context(at=own.version)
    assert await foldlog.materialise("c") is None


async def test_a_materialised_child_waits_for_a_pending_result(foldlog: Foldlog) -> None:
    from foldlog import ToolCall, tool_result

    session = foldlog.session("c")
    await session.append(user("q"), assistant("", ToolCall(id="c1", name="f")))
    child = await session.fork("child")
    before = await child.context()
    await foldlog.materialise("child")
    assert (await child.context()).digest == before.digest
    await child.append(tool_result("c1", "real"))
    assert said(await child.context())[-1] == "tool: real"


async def test_erasing_from_a_parent_reaches_a_materialised_child(
    own_server: Server, foldlog: Foldlog
) -> None:
    session = foldlog.session("c")
    secret = (await session.append(user(SECRET)))[0]
    await session.append(user("harmless"))
    child = await session.fork("child")
    await child.append(user("own"))
    await foldlog.materialise("child")
    await child.append(user("more"))
    await foldlog.erase("c", secret.entry.id)
    lines = said(await holds_together(foldlog, "child"))
    assert lines == ["user: harmless", "user: own", "user: more"]
    await nowhere(own_server)


def test_passing_over_an_erased_place_keeps_versions_growing() -> None:
    from foldlog_projections.state import empty

    context = ContextFold(empty("t", "c"))
    context.apply_erased(5, "shape")
    context.apply_erased(3, "shape")
    assert (context.version, context.lane_version("shape")) == (5, 5)
