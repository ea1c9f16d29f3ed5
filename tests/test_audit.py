"""The audit confirms what is right and names what is not."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from foldlog.audit import verify
from foldlog.session import Foldlog, connect
from foldlog_events.codec import encode
from foldlog_events.entries import MessageEntry
from foldlog_events.messages import Seen, ToolCall, assistant, tool_result, user
from foldlog_events.subjects import subject_of
from foldlog_projections.fold import ContextFold
from tests.command_line import foldlog

TENANT = "default"


@pytest.fixture
async def opened(nats_url: str) -> AsyncIterator[Foldlog]:
    async with connect(nats_url) as found:
        yield found


async def talk(opened: Foldlog, conversation: str = "talk") -> None:
    session = opened.session(conversation)
    await session.append(user("one"))
    await session.context()
    await session.append(assistant("", ToolCall(id="c1", name="f")))
    await session.append(tool_result("c1", "r"))
    view = await session.context()
    await session.edit(view.origins[0].id, [user("uno")])
    await session.context()
    await session.append(assistant("done"))
    await session.reset([user("go on")])
    await session.context()
    await session.append(assistant("going on"))


async def store_view(opened: Foldlog, conversation: str = "talk") -> ContextFold:
    context = await opened.contexts.rebuilt(TENANT, conversation)
    data = msgspec.json.encode(context.state())
    await opened.views.put(TENANT, conversation, data, revision=0)
    return context


async def test_what_sessions_write_is_confirmed(nats_url: str, opened: Foldlog) -> None:
    await talk(opened)
    await store_view(opened)
    await opened.session("talk").append(user("after the view"))
    child = await opened.session("talk").fork("child", at=4)
    await child.context()
    await child.append(assistant("from the child"))
    grandchild = await child.fork("grandchild")
    await grandchild.append(user("hello"))
    verdict = await verify(opened)
    assert verdict.differences == ()
    assert (verdict.conversations, verdict.entries) == (3, 12)
    told = await foldlog("verify", "--json", "--url", nats_url)
    assert (told.code, told.json) == (
        0,
        {"conversations": 3, "entries": 12, "differences": []},
    )
    some = await foldlog("verify", "child", "--url", nats_url)
    assert some.out == "2 entries of 1 conversations: no difference\n"


async def test_a_view_that_says_something_else_is_named(nats_url: str, opened: Foldlog) -> None:
    await talk(opened)
    state = (await store_view(opened)).state()
    wrong = msgspec.structs.replace(state, active=state.active[1:])
    stored = await opened.views.get(TENANT, "talk")
    assert stored is not None
    await opened.views.put(TENANT, "talk", msgspec.json.encode(wrong), revision=stored.revision)
    (difference,) = (await verify(opened)).differences
    assert (difference.conversation, difference.kind) == ("talk", "view")
    told = await foldlog("verify", "--json", "--url", nats_url)
    assert told.code == 1
    assert told.json["differences"][0] == msgspec.to_builtins(difference)
    assert (await foldlog("verify", "--url", nats_url)).out.count("\n") == 2


async def test_a_view_that_is_none_is_named(opened: Foldlog) -> None:
    await talk(opened)
    await opened.views.put(TENANT, "talk", b"{", revision=0)
    (difference,) = (await verify(opened)).differences
    assert (difference.kind, difference.found) == ("view", "bytes that are no state of a fold")


async def test_a_view_of_another_release_is_no_difference(opened: Foldlog) -> None:
    await talk(opened)
    state = msgspec.structs.replace(
        (await opened.contexts.rebuilt(TENANT, "talk")).state(), shape=99
    )
    await opened.views.put(TENANT, "talk", msgspec.json.encode(state), revision=0)
    assert (await verify(opened)).differences == ()


async def test_a_digest_that_was_never_seen_is_named(opened: Foldlog) -> None:
    session = opened.session("talk")
    await session.append(user("one"))
    view = await session.context()
    right = msgspec.structs.replace(
        assistant("right"), seen=Seen(version=view.version, digest=view.digest)
    )
    wrong = msgspec.structs.replace(
        assistant("wrong"), seen=Seen(version=view.version, digest="sha256:0")
    )
    await session.append(right)
    await session.append(wrong)
    (difference,) = (await verify(opened)).differences
    assert (difference.kind, difference.version) == ("seen", 3)
    assert (difference.expected, difference.found) == (view.digest, "sha256:0")


async def test_an_entry_that_nobody_appended_breaks_the_chain(opened: Foldlog) -> None:
    session = opened.session("talk")
    (first,) = await session.append(user("one"))
    assert isinstance(first.entry, MessageEntry)
    slipped = msgspec.structs.replace(first.entry, id="slipped-in")
    await opened.broker.request(subject_of(TENANT, "talk", "log"), encode(slipped))
    await session.append(user("two"))
    (difference,) = (await verify(opened)).differences
    assert (difference.kind, difference.version) == ("chain", 2)
    assert (difference.expected, difference.found) == ("1", "not recorded")


async def test_an_entry_that_was_taken_out_breaks_the_chain(opened: Foldlog) -> None:
    session = opened.session("talk")
    for text in ("one", "two", "three"):
        await session.append(user(text))
    await opened.broker.api("STREAM.MSG.DELETE.ENTRIES", {"seq": 2})
    (difference,) = (await verify(opened)).differences
    assert (difference.kind, difference.version) == ("chain", 3)
    assert (difference.expected, difference.found) == ("1", "2")


async def test_bytes_that_are_no_entry_are_named(opened: Foldlog) -> None:
    await opened.session("talk").append(user("one"))
    await opened.broker.request(
        subject_of(TENANT, "talk", "log"),
        b"{}",
        headers={"Nats-Expected-Last-Subject-Sequence": "1"},
    )
    await opened.session("other").append(user("one"))
    (difference,) = (await verify(opened)).differences
    assert (difference.conversation, difference.kind) == ("talk", "unreadable")
    assert difference.version == 2
