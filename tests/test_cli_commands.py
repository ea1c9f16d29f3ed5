"""The commands on a conversation: what they print, for people and for programs."""

import asyncio
import os
import re
import shlex
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import nats
import pytest

from foldlog.data_folder import DataFolder
from foldlog.session import Foldlog, connect
from foldlog_events.messages import ToolCall, assistant, tool_result, user
from tests.command_line import FOLDLOG, Outcome, environment, foldlog
from tests.conftest import Server


@pytest.fixture
async def opened(nats_url: str) -> AsyncIterator[Foldlog]:
    async with connect(nats_url) as found:
        yield found


async def some_talk(opened: Foldlog, conversation: str = "talk") -> None:
    session = opened.session(conversation)
    await session.append(user("read a"))
    await session.context()
    await session.append(assistant("", ToolCall(id="c1", name="read", arguments={"path": "a"})))
    await session.append(tool_result("c1", "the text of a"))
    await session.append(assistant("a says: the text of a"))


def refused(outcome: Outcome, code: int, said: str) -> None:
    assert outcome.code == code, outcome
    assert outcome.err.count("\n") == 1, outcome.err
    assert outcome.err.startswith("foldlog: ")
    assert re.search(said, outcome.err), outcome.err


async def test_appended_lines_are_in_the_log_and_in_the_context(nats_url: str) -> None:
    lines = b"""
{"role":"user","content":"read a"}
{"kind":"message","messages":[{"role":"assistant","parts":[{"type":"text","content":"yes"}]}]}
{"kind":"note","name":"cost","data":{"cents":3}}
"""
    done = await foldlog("append", "talk", "--json", "--url", nats_url, stdin=lines)
    assert done.code == 0, done.err
    assert done.json == {"conversation": "talk", "appended": 3, "versions": [1, 2, 3]}
    listed = await foldlog("log", "talk", "--json", FOLDLOG_URL=nats_url)
    assert [line["version"] for line in listed.json_lines] == [1, 2, 3]
    assert [line["predecessor"] for line in listed.json_lines] == [0, 1, 2]
    assert [line["entry"]["kind"] for line in listed.json_lines] == ["message", "message", "note"]
    context = await foldlog("context", "talk", "--json", "--url", nats_url)
    assert list(context.json) == [
        "conversation",
        "version",
        "head",
        "tokens",
        "digest",
        "messages",
    ]
    assert context.json["version"] == 3
    assert context.json["head"] is None
    assert [message["role"] for message in context.json["messages"]] == ["user", "assistant"]


async def test_lines_come_from_a_file_too_and_a_table_shows_them(
    nats_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "lines.jsonl"
    file.write_text('{"role":"user","content":"read\\u001b[2J a"}\n')
    done = await foldlog("append", "talk", str(file), "--url", nats_url)
    assert (done.code, done.out) == (0, "appended 1 entries to talk\n")
    listed = await foldlog("log", "talk", "--url", nats_url)
    assert listed.code == 0
    assert "user: read" in listed.out
    assert "\x1b" not in listed.out, "what is in the log must not steer the terminal"


async def test_one_bad_line_keeps_all_lines_out(nats_url: str) -> None:
    lines = b'{"role":"user","content":"a"}\n{"role":"user"}\n'
    done = await foldlog("append", "talk", "--url", nats_url, stdin=lines)
    refused(done, 1, r"standard input, line 2: .*nothing was appended")
    refused(await foldlog("log", "talk", "--url", nats_url), 1, "has no entries")


async def test_an_entry_over_the_limit_is_refused_by_its_line(nats_url: str) -> None:
    large = msgspec.json.encode({"role": "user", "content": "x" * 9_000_000})
    lines = b'{"role":"user","content":"a"}\n' + large + b"\n"
    done = await foldlog("append", "talk", "--url", nats_url, stdin=lines)
    refused(done, 1, r"line 2: .*9,\d{3},\d{3} bytes")
    refused(await foldlog("log", "talk", "--url", nats_url), 1, "has no entries")


async def test_an_expected_version_that_is_passed_is_a_refusal(
    nats_url: str, opened: Foldlog
) -> None:
    await some_talk(opened)
    line = b'{"role":"user","content":"a"}'
    done = await foldlog("append", "talk", "--expect", "2", "--url", nats_url, stdin=line)
    assert done.code == 1
    assert "expected version 2 and the lane is at 4" in done.err
    done = await foldlog("append", "talk", "--expect", "4", "--url", nats_url, stdin=line)
    assert done.code == 0


async def test_a_context_can_be_had_of_any_moment_and_in_any_form(
    nats_url: str, opened: Foldlog
) -> None:
    await some_talk(opened)

    async def context(*arguments: str) -> Any:
        done = await foldlog("context", "talk", "--json", "--url", nats_url, *arguments)
        assert done.code == 0, done.err
        return done.json

    entries = await opened.log.read_all("default", "talk")
    now = await context()
    assert [message["role"] for message in now["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    first = await context("--at", "1")
    assert (first["version"], len(first["messages"])) == (1, 1)
    named = await context("--at", entries[1].entry.id)  # type: ignore[union-attr]
    assert named["version"] == 2
    assert named["messages"][-1]["parts"][0]["is_error"], "the result came later"
    assert (await context("--at", "2000-01-01"))["messages"] == []
    assert await context("--at", "2199-01-01T00:00:00+01:00") == now
    chat = await context("--render", "openai")
    assert [message["role"] for message in chat] == ["user", "assistant", "tool", "assistant"]
    request = await context("--render", "anthropic")
    assert list(request) == ["system", "tools", "messages"]
    refused(
        await foldlog("context", "talk", "--at", "no-such-id", "--url", nats_url), 1, "no-such-id"
    )


async def test_conversations_are_listed_with_their_last_version(
    nats_url: str, opened: Foldlog
) -> None:
    names = ["a.b", "*", "user 7", "🙂", "x" * 5000]
    for name in names:
        await opened.session(name).append(user("hello"))
    await opened.session("elsewhere", tenant="other").append(user("hello"))
    found = (await foldlog("conversations", "--json", "--url", nats_url)).json["conversations"]
    assert [one["conversation"] for one in found] == sorted(names)
    assert {one["entries"] for one in found} == {1}
    assert {one["version"] for one in found} == {1, 2, 3, 4, 5}
    others = await foldlog("conversations", "--json", "--tenant", "other", "--url", nats_url)
    assert [one["conversation"] for one in others.json["conversations"]] == ["elsewhere"]
    assert (await foldlog("conversations", "--url", nats_url)).code == 0


@pytest.mark.parametrize("command", ["log", "context", "verify"])
async def test_an_unknown_conversation_is_named(nats_url: str, command: str) -> None:
    refused(await foldlog(command, "nobody", "--url", nats_url), 1, "'nobody'.*has no entries")
    failed = await foldlog(command, "nobody", "--url", nats_url, "--json")
    assert failed.json["error"]["type"] == "UnknownConversation"


async def test_a_wrong_address_ends_with_three(tmp_path: Path) -> None:
    outcome = await foldlog("conversations", "--url", "nats://127.0.0.1:1")
    refused(outcome, 3, "127.0.0.1:1 cannot be reached")
    refused(await foldlog("conversations", "--url", "nonsense://"), 3, "nonsense")


async def test_a_broker_without_jetstream_ends_with_three(tmp_path: Path) -> None:
    server = Server(tmp_path, jetstream=False)
    server.start()
    try:
        outcome = await foldlog("conversations", "--url", server.url)
    finally:
        server.stop()
    refused(outcome, 3, "JetStream does not answer")


async def test_a_stream_configured_otherwise_is_named_and_left_alone(nats_url: str) -> None:
    client = await nats.connect(nats_url)
    await client.jetstream().add_stream(name="ENTRIES", subjects=["entry.>"], max_age=60)
    await client.close()
    refused(await foldlog("conversations", "--url", nats_url), 1, "ENTRIES has discard")


async def test_without_an_address_a_command_serves_itself(tmp_path: Path) -> None:
    line = b'{"role":"user","content":"kept"}'
    for _ in range(2):
        done = await foldlog("append", "talk", stdin=line, FOLDLOG_DATA=str(tmp_path))
        assert done.code == 0, done.err
    listed = await foldlog("log", "talk", "--json", FOLDLOG_DATA=str(tmp_path))
    assert len(listed.json_lines) == 2
    assert DataFolder(tmp_path).read_address() is None


async def test_a_closed_pipe_is_no_error(nats_url: str, opened: Foldlog) -> None:
    for _ in range(3):
        await opened.session("talk").append(*(user("x" * 200_000) for _ in range(5)))
    command = shlex.join([*FOLDLOG, "log", "talk", "--json", "--url", nats_url])
    shell = await asyncio.create_subprocess_shell(
        f"{command} | head -c 1",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(),
    )
    out, err = await shell.communicate()
    assert (out, err) == (b"{", b"")


CHAT = (
    b'{"messages":[{"role":"user","content":"fly me"},'
    b'{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function",'
    b'"function":{"name":"book","arguments":"{}"}}]},'
    b'{"role":"tool","tool_call_id":"c","content":"booked"},'
    b'{"role":"assistant","content":"done"}]}\n'
)


async def test_an_import_accounts_for_every_line_and_is_done_once(
    nats_url: str, tmp_path: Path
) -> None:
    good, bad, other = (tmp_path / name for name in ("good.jsonl", "bad.jsonl", "other.jsonl"))
    good.write_bytes(CHAT)
    bad.write_bytes(CHAT + b'{"messages": [\n' + CHAT.replace(b"fly", b"drive"))
    other.write_bytes(b'{"what":"is this"}\n')
    once = await foldlog("import", str(good), "--json", "--url", nats_url)
    assert once.code == 0, once
    (account,) = once.json["files"]
    assert (account["lines"], account["imported"], account["malformed"]) == (1, 1, [])
    assert (account["conversations"], account["entries"], account["appended"]) == (1, 4, 4)
    again = await foldlog("import", str(good), "--json", "--url", nats_url)
    assert (again.code, again.json["files"][0]["appended"]) == (0, 0)
    some = await foldlog("import", str(bad), str(other), "--json", "--url", nats_url)
    assert some.code == 1
    account, unknown = some.json["files"]
    assert [fate["line"] for fate in account["malformed"]] == [2]
    assert (account["imported"], account["conversations"], account["appended"]) == (2, 2, 8)
    assert unknown["error"]["type"] == "UnknownFormat"
    told = await foldlog("import", str(bad), str(other), "--url", nats_url)
    assert "  line 2 is malformed: " in told.out
    assert "other.jsonl: unknown format" in told.out
    assert (await foldlog("verify", "--url", nats_url)).code == 0
    refused(await foldlog("import", "--url", nats_url), 2, "give the files")
    refused(await foldlog("import", "none.jsonl", "--url", nats_url), 2, "none.jsonl is no file")


@pytest.fixture
def corpus() -> list[Path]:
    folder = Path(
        os.environ.get("FOLDLOG_CORPUS", Path(__file__).parents[1].parent / "shared" / "corpus")
    )
    return sorted(folder.glob("*.jsonl")) or pytest.skip(f"no corpus in {folder}")


async def test_every_line_of_the_corpus_is_accounted_for(nats_url: str, corpus: list[Path]) -> None:
    done = await foldlog("import", *map(str, corpus), "--json", "--url", nats_url)
    assert [account["file"] for account in done.json["files"]] == [str(file) for file in corpus]
    for file, account in zip(corpus, done.json["files"], strict=True):
        if "error" in account:
            assert account["error"]["type"] == "UnknownFormat"
            continue
        fates = account["imported"] + len(account["skipped"]) + len(account["malformed"])
        assert fates == account["lines"] == len(file.read_bytes().splitlines())
        assert account["appended"] == account["entries"]
        assert account["refused"] == []
    verdict = await foldlog("verify", "--json", "--url", nats_url)
    assert verdict.json["differences"] == []
    assert verdict.json["entries"] == sum(
        account.get("appended", 0) for account in done.json["files"]
    )


async def test_a_compaction_can_be_asked_for(nats_url: str, opened: Foldlog) -> None:
    session = opened.session("talk")
    for turn in range(40):
        await session.append(user(f"question {turn}: " + "why? " * 50))
        await session.append(assistant(f"answer {turn}: " + "because. " * 200))
    policy = '{"window": 8000, "reserve_output": 1000, "keep_recent": 2000}'
    done = await foldlog("compact", "talk", "--json", "--url", nats_url, FOLDLOG_POLICY=policy)
    assert done.code == 0, done
    assert list(done.json) == [
        "conversation",
        "state",
        "reason",
        "entry",
        "tokens_before",
        "tokens_after",
    ]
    assert done.json["state"] == "committed"
    assert done.json["tokens_after"] < done.json["tokens_before"]
    context = (await foldlog("context", "talk", "--json", "--url", nats_url)).json
    assert context["head"]["id"] == done.json["entry"]
    await some_talk(opened, "short")
    declined = await foldlog("compact", "short", "--url", nats_url)
    assert declined.code == 1
    assert declined.out.startswith("short: declined: ")
    refused(await foldlog("compact", "nobody", "--url", nats_url), 1, "has no entries")
