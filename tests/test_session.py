"""Sessions on a real broker: what an agent does with a conversation."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from foldlog import (
    Foldlog,
    MessageEntry,
    NoteEntry,
    Section,
    Tool,
    ToolCall,
    assistant,
    connect,
    tool_result,
    user,
)
from foldlog.contexts import UnknownEntry
from foldlog.errors import ConversationExists, UnknownConversation, VersionConflict
from foldlog.room import ContextTooLarge
from foldlog_events.entries import (
    CompactionEntry,
    Edit,
    EditEntry,
    EntryReference,
    ForkEntry,
    Recorded,
    SourceRange,
    SystemEntry,
)
from foldlog_events.errors import InvalidEntry
from foldlog_events.messages import Message, Text, ToolCallResponse
from foldlog_projections.policy import Policies, Policy
from foldlog_projections.views import ContextView

ROLE = Section(name="role", text="You are an analyst.")
CWD = Section(name="cwd", text="/reports")


def said(view: ContextView) -> list[str]:
    """Each message as `role: text`, short enough to read in an assertion."""
    return [f"{message.role}: {text_of(message)}" for message in view.messages]


def text_of(message: Message) -> str:
    texts = []
    for part in message.parts:
        match part:
            case Text(content=text):
                texts.append(text)
            case ToolCallResponse(result=str(text)):
                texts.append(text)
            case ToolCall(id=call):
                texts.append(f"call {call}")
            case _:
                pass
    return " | ".join(texts)


@pytest.fixture
async def foldlog(nats_url: str) -> AsyncIterator[Foldlog]:
    async with connect(nats_url, actor="tester") as opened:
        yield opened


async def test_a_context_holds_what_was_appended_with_no_projector(foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    await session.append(user("one"))
    await session.append(assistant("two"), user("three"))
    view = await session.context()
    assert said(view) == ["user: one", "assistant: two", "user: three"]
    assert view.version == view.base_version.log > 0
    elsewhere = await foldlog.session("c").context()
    assert elsewhere == view


async def test_messages_and_entries_keep_the_order_they_are_given_in(foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    first = (await session.append(user("a")))[0].entry
    note = NoteEntry(id="n", conversation="c", time=first.time, data={"k": 1})
    recorded = await session.append(user("b"), user("c"), note, assistant("d"))
    assert [type(one.entry).__name__ for one in recorded] == [
        "MessageEntry",
        "NoteEntry",
        "MessageEntry",
    ]
    assert said(await session.context()) == ["user: a", "user: b", "user: c", "assistant: d"]
    assert all(one.entry.actor == "tester" for one in recorded if one.entry.id != "n")


async def test_an_assistant_message_remembers_the_context_it_answered(foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    await session.append(user("one"))
    view = await session.context()
    await session.append(assistant("two"))
    answer = (await session.context()).messages[-1]
    assert answer.seen is not None
    assert (answer.seen.version, answer.seen.digest) == (view.version, view.digest)


async def test_prepare_appends_the_smallest_patch_and_nothing_where_nothing_changed(
    foldlog: Foldlog,
) -> None:
    session = foldlog.session("c")
    await session.append(user("q"))
    view = await session.prepare([ROLE, CWD], [Tool(name="query")])
    assert said(view) == ["system: You are an analyst. | /reports", "user: q"]
    again = await session.prepare([ROLE, CWD], [Tool(name="query")])
    assert again.version == view.version
    moved = await session.prepare([ROLE, Section(name="cwd", text="/tmp")], [Tool(name="query")])
    patch = [one async for one in foldlog.log.read("default", "c", after=view.version)]
    assert len(patch) == 1
    assert isinstance(patch[0], Recorded)
    entry = patch[0].entry
    assert isinstance(entry, SystemEntry)
    assert [section.name for section in entry.sections] == ["cwd"]
    assert not entry.tools_added
    assert said(moved)[-1] == 'system: Prompt section "cwd" is now:\n/tmp'


async def test_two_agents_preparing_at_once_write_one_prompt(foldlog: Foldlog) -> None:
    await foldlog.session("c").append(user("q"))
    views = await asyncio.gather(
        *(foldlog.session("c").prepare([ROLE], [Tool(name="query")]) for _ in range(8))
    )
    entries = [one async for one in foldlog.log.read("default", "c")]
    assert len(entries) == 2
    assert {view.digest for view in views} == {views[0].digest}


async def test_expect_holds_what_came_in_between(foldlog: Foldlog) -> None:
    mine, theirs = foldlog.session("c"), foldlog.session("c")
    await mine.append(user("one"))
    seen = await mine.context()
    other = await theirs.append(user("two"))
    with pytest.raises(VersionConflict) as conflict:
        await mine.append(assistant("answer to one"), expect=seen.base_version.log)
    assert [one.version for one in conflict.value.entries] == [other[0].version]
    assert said(await mine.context()) == ["user: one", "user: two"]


async def test_an_edit_changes_what_is_seen_and_earlier_contexts_stay(foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    question = (await session.append(user("read a")))[0]
    before = await session.context()
    await session.edit(question.entry.id, [user("read files a and b")])
    assert said(await session.context()) == ["user: read files a and b"]
    assert await session.context(at=before.version) == before
    await session.edit(question.entry.id)
    assert said(await session.context()) == []


async def test_an_edit_that_would_do_nothing_is_refused(foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    question = (await session.append(user("q")))[0]
    await session.reset()
    for target in ("no-such-id", question.entry.id):
        with pytest.raises(UnknownEntry, match="foldlog log"):
            await session.edit(target)


async def test_a_reset_starts_anew_and_keeps_the_prompt_unless_told(foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    await session.append(user("q"))
    await session.prepare([ROLE])
    await session.reset([user("handoff")])
    assert said(await session.context()) == ["system: You are an analyst.", "user: handoff"]
    assert (await session.prepare([ROLE])).version == (await session.context()).version
    await session.reset(keep_prompt=False)
    assert said(await session.context()) == []
    await session.prepare([ROLE])
    assert said(await session.context()) == ["system: You are an analyst."]


async def test_after_a_head_without_baseline_the_older_prompt_is_left_out(foldlog: Foldlog) -> None:
    """Rule 5: a session writes the whole baseline and omits what is retained of older ones."""
    session = foldlog.session("c")
    await session.prepare([ROLE, CWD])
    old = (await session.append(user("old")))[0]
    kept = (await session.append(user("kept")))[0]
    await session.prepare([ROLE, Section(name="cwd", text="/elsewhere")])
    view = await session.context()
    summary = CompactionEntry(
        id="k",
        conversation="c",
        time=datetime.now(UTC),
        base_version=view.base_version,
        source_range=_range(old, old),
        kept_from=_reference(kept),
        summary="what was said",
    )
    await foldlog.log.append((summary,), expect=view.base_version.shape)
    after = await session.prepare([ROLE, CWD])
    assert said(after)[0] == "system: You are an analyst. | /reports"
    assert [line for line in said(after) if line.startswith("system")] == said(after)[:1]


def _reference(recorded: Recorded) -> EntryReference:
    return EntryReference(recorded.entry.id, recorded.version)


def _range(first: Recorded, last: Recorded) -> SourceRange:
    return SourceRange(first=_reference(first), last=_reference(last), count=2, digest="sha256:0")


async def test_9_a_fork_inherits_and_nothing_later_leaks(foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    await session.append(
        user("q"), assistant("", ToolCall(id="a", name="f"), ToolCall(id="b", name="f"))
    )
    at = await session.context()
    await session.append(tool_result("a", "A"))
    child = await session.fork("child", at=at.version)
    view = await child.context()
    assert view.messages == at.messages
    assert [line for line in said(view) if "unavailable" in line] == said(view)[-2:]
    await child.append(tool_result("b", "B"))
    assert said(await child.context())[-1] == "tool: B"
    assert said(await session.context())[-2] == "tool: A"
    grandchild = await child.fork("grandchild")
    await session.reset()
    assert said(await grandchild.context())[-1] == "tool: B"
    assert await child.context(at=at.version) == at


async def test_a_fork_needs_a_parent_and_a_free_name(foldlog: Foldlog) -> None:
    with pytest.raises(UnknownConversation):
        await foldlog.session("nobody").fork("child")
    session = foldlog.session("c")
    await session.append(user("q"))
    await session.fork("child")
    with pytest.raises(ConversationExists):
        await session.fork("child")


async def test_time_travel_by_version_id_and_time(foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    first = (await session.append(user("one")))[0]
    between = await just_after(foldlog, first.version)
    await session.append(user("two"))
    for moment in (first.version, first.entry.id, between):
        assert said(await session.context(at=moment)) == ["user: one"]
    assert said(await session.context(at=datetime.now(UTC))) == ["user: one", "user: two"]
    assert said(await session.context(at=0)) == []
    await session.reset([user("anew")])
    assert said(await session.context(at=10**9)) == ["user: anew"]
    with pytest.raises(UnknownEntry):
        await session.context(at="no-such-id")


async def just_after(foldlog: Foldlog, version: int) -> datetime:
    """The broker's own time of an entry, rounded up to what Python can say."""
    found = await foldlog.broker.api("STREAM.MSG.GET.ENTRIES", {"seq": version})
    stored = datetime.fromisoformat(found["message"]["time"].rstrip("Z")[:26] + "+00:00")
    return stored + timedelta(microseconds=1)


async def test_36_a_writer_hours_ahead_changes_no_order(foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    ahead = MessageEntry(
        id="ahead",
        conversation="c",
        time=datetime(2100, 1, 1, tzinfo=UTC),
        messages=(user("from the future"),),
    )
    await session.append(ahead)
    await session.append(user("now"))
    assert said(await session.context()) == ["user: from the future", "user: now"]
    assert said(await session.context(at=datetime.now(UTC)))[-1] == "user: now"


async def test_34_any_id_is_its_own_conversation(foldlog: Foldlog) -> None:
    names = ["a.b", "a", "*", ">", "user 7", "\N{WAVING HAND SIGN}", "x" * 5_000, "x" * 4_999]
    for name in names:
        await foldlog.session(name).append(user(name))
    for name in names:
        assert said(await foldlog.session(name).context()) == [f"user: {name}"]


async def test_what_a_session_does_not_write(foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    with pytest.raises(InvalidEntry, match="nothing to append"):
        await session.append()
    fork = ForkEntry(id="f", conversation="c", time=datetime.now(UTC), parent="p", parent_version=1)
    with pytest.raises(InvalidEntry, match="calls of their own"):
        await session.append(fork)
    other = NoteEntry(id="n", conversation="d", time=datetime.now(UTC))
    with pytest.raises(InvalidEntry, match="conversation 'd'"):
        await session.append(user("first"), other)
    assert (await session.context()).version == 0


async def test_watching_shows_entries_as_they_come(foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    await session.append(user("before"))
    watching = session.watch()
    seen = asyncio.ensure_future(anext(watching))
    other = foldlog.session("other")
    while not seen.done():
        await other.append(user("elsewhere"))
        recorded = (await session.append(user("after")))[0]
        await asyncio.wait({seen}, timeout=0.05)
    first = await seen
    assert isinstance(first, Recorded)
    assert isinstance(first.entry, MessageEntry)
    assert first.entry.messages == (user("after"),)
    assert first.version <= recorded.version


async def test_a_request_that_does_not_fit_is_refused_and_says_what_takes_the_room(
    nats_url: str,
) -> None:
    """§8.6: a request over the hard limit is never handed out as if it did fit."""
    policy = Policy(window=1_000, reserve_output=100, keep_recent=200)
    async with connect(nats_url, policies=Policies(fallback=policy)) as foldlog:
        session = foldlog.session("c")
        await session.append(user("short"))
        assert await session.prepare([ROLE])
        large = (await session.append(user("a long story " * 500)))[0]
        with pytest.raises(ContextTooLarge) as refused:
            await session.prepare([ROLE])
        assert refused.value.limit == 900
        assert refused.value.tokens > 900
        assert f"user message of entry {large.entry.id}" in refused.value.takes
        assert "sections" in refused.value.takes
        await session.edit(large.entry.id, [user("a short story")])
        assert await session.prepare([ROLE])


async def test_an_edit_entry_may_be_appended_as_it_is(foldlog: Foldlog) -> None:
    session = foldlog.session("c")
    entry = (await session.append(user("q")))[0].entry
    edit = EditEntry(
        id="e", conversation="c", time=entry.time, edits=(Edit(target=entry.id),), reason="spam"
    )
    await session.append(edit)
    assert said(await session.context()) == []
