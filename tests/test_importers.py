"""Importers: bad input is named, and the same file gives the same entries."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from foldlog.importers import (
    ConversationDiverged,
    FileImport,
    UnknownFormat,
    read_file,
    record_offline,
    remaining,
)
from foldlog_events.entries import (
    MessageEntry,
)
from foldlog_events.messages import (
    ToolCall,
)
from tests.importing import (
    SAMPLES,
    UUID7,
    imported,
    pi_header,
    pi_user,
    shown,
    versions_of,
    view_of,
    written,
)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "not JSON"),
        (b"\xff\xfe", "not UTF-8 at byte 1"),
        (b'[{"role": "user", "content": NaN}]', "NaN is no JSON number"),
        (rb'[{"role": "user", "content": "\ud800"}]', "lone surrogate"),
        (b"[" * 5000 + b"]" * 5000, "nested too deep"),
        (b'{"messages": []}', "a list of messages"),
        (b'[{"content": "hi"}]', "an object with a role"),
        (b'[{"role": "oracle", "content": "hi"}]', "'oracle'"),
        (b'[{"role": "assistant", "tool_calls": [{"id": "c"}]}]', r"messages\[0\]"),
        (b'[{"role": "tool", "content": "hi"}]', "needs the call"),
        (b"17", "a list of messages"),
    ],
)
def test_a_malformed_line_is_named_and_the_rest_is_imported(
    tmp_path: Path, line: bytes, reason: str
) -> None:
    good = {"messages": [{"role": "user", "content": "hi"}]}
    conversations, report = imported(written(tmp_path, good, line, b"", good))
    assert [item.line for c in conversations for item in c.items] == [1, 4]
    malformed = [fate for fate in report.lines if fate.status == "malformed"]
    assert [fate.line for fate in malformed] == [2]
    assert re.search(reason, malformed[0].reason)
    assert [fate.status for fate in report.lines] == [
        "imported", "malformed", "skipped", "imported",
    ]  # fmt: skip


def test_repair_imports_what_strict_readers_refuse(tmp_path: Path) -> None:
    surrogate = rb'[{"role": "user", "content": "a\ud800b"}]'
    function = b'{"name": "f", "arguments": {"x": Infinity}}'
    number = b'[{"role": "assistant", "tool_calls": [{"id": "c", "function": %b}]}]' % function
    conversations, report = imported(written(tmp_path, surrogate, number), repair=True)
    assert report.count("malformed") == 0
    assert shown(view_of(record_offline(conversations[0]))) == [("user", "a\ufffdb")]
    entry = conversations[1].items[0].entry
    assert isinstance(entry, MessageEntry)
    call = entry.messages[0].parts[0]
    assert isinstance(call, ToolCall)
    assert call.arguments == {"x": None}


def test_an_unknown_format_is_refused_by_name(tmp_path: Path) -> None:
    line = {"kind": "chat", "text": "x" * 500}
    with pytest.raises(UnknownFormat, match=r"known formats are pi .* codex .* openai-chat") as e:
        read_file(written(tmp_path, line, name="strange.jsonl"))
    assert "strange.jsonl" in str(e.value)
    assert json.dumps(line).startswith(e.value.first_line.rstrip("…"))


@pytest.mark.parametrize("content", [b"", b"\n\n", b"hello\n", b'{"type": "user"}\n'])
def test_a_file_of_no_known_format_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "strange.jsonl"
    path.write_bytes(content)
    with pytest.raises(UnknownFormat, match=r"strange\.jsonl: unknown format"):
        read_file(path)


def test_a_file_may_begin_with_a_malformed_line(tmp_path: Path) -> None:
    file = read_file(written(tmp_path, b"{", pi_header(), pi_user("hi")))
    assert isinstance(file, FileImport)
    assert file.format == "pi"
    assert len(list(file)) == 1
    assert file.report.count("malformed") == 1


SOMETHING_ELSE = ("null", "7", "true", '""', '"x"', "[]", "{}", "[7]", '{"type": "x"}', "[null]")


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each container in a value, with each of its keys."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places(value[key])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", [path.name for path in sorted(SAMPLES.glob("*.jsonl"))])
def test_any_value_anywhere_is_imported_or_named(tmp_path: Path, name: str, seed: int) -> None:
    random = Random(seed)
    for _ in range(25):
        lines = [json.loads(line) for line in (SAMPLES / name).read_bytes().splitlines()]
        for _ in range(random.randint(1, 5)):
            container, key = random.choice([*places(lines)])
            container[key] = json.loads(random.choice(SOMETHING_ELSE))
        try:
            conversations, report = imported(written(tmp_path, *lines))
        except UnknownFormat:
            continue
        assert [fate.line for fate in report.lines] == list(range(1, len(lines) + 1))
        versions: dict[str, int] = {}
        for conversation in conversations:
            recorded = record_offline(conversation, len(versions) + 1, versions)
            versions |= versions_of(recorded)
        named = {entry for fate in report.lines for entry in fate.entries}
        assert named == set(versions)


@pytest.mark.parametrize(
    "name",
    [
        "pi-linear.jsonl",
        "pi-tree.jsonl",
        "openai-chat.jsonl",
        "claude-code.jsonl",
        "claude-code-compacted.jsonl",
        "codex.jsonl",
    ],
)
def test_importing_twice_gives_the_same_entries(name: str) -> None:
    once, _ = imported(SAMPLES / name)
    again, _ = imported(SAMPLES / name)
    assert once == again
    ids = [item.entry.id for conversation in once for item in conversation.items]
    assert len(set(ids)) == len(ids)
    assert all(UUID7.fullmatch(entry) for entry in ids)
    for conversation in once:
        assert remaining(conversation, [item.entry.id for item in conversation.items]) == ()


def test_a_file_that_has_grown_continues_its_conversation(tmp_path: Path) -> None:
    (before,), _ = imported(written(tmp_path, pi_header(), pi_user("one")))
    (after,), _ = imported(written(tmp_path, pi_header(), pi_user("one"), pi_user("two")))
    held = [item.entry.id for item in before.items]
    assert [item.line for item in remaining(after, held)] == [3]
    with pytest.raises(ConversationDiverged, match="another tenant or into a fresh log"):
        remaining(before, [*held, "something-else"])
