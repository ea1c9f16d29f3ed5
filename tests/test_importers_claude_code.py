"""Claude Code sessions: what Claude Code showed is what the fold shows."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from foldlog.importers import ForkPoint, ImportedCompaction, ImportedConversation, record_offline
from foldlog_events.entries import CompactionEntry, EditEntry, ForkEntry, NoteEntry, ResetEntry
from foldlog_events.messages import (
    Blob,
    ProviderPayload,
    Reasoning,
    Text,
    ToolCallResponse,
    Usage,
)
from foldlog_projections.fold import ContextFold
from foldlog_projections.state import empty
from tests.importing import (
    SAMPLES,
    corpus_file,
    imported,
    line_entries,
    shown,
    versions_of,
    view_of,
    written,
)


def session() -> tuple[dict[str, ImportedConversation], Any]:
    conversations, report = imported(SAMPLES / "claude-code.jsonl")
    return {c.conversation: c for c in conversations}, report


def record(kind: str, uuid: str, parent: str | None, **more: Any) -> dict[str, Any]:
    stated = "2026-01-01T00:00:00Z"
    return {
        "type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": "s", "timestamp": stated,
        **more,
    }  # fmt: skip


def asks(uuid: str, parent: str | None, content: Any = "hi", **more: Any) -> dict[str, Any]:
    return record("user", uuid, parent, message={"role": "user", "content": content}, **more)


def says(uuid: str, parent: str, *blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": list(blocks), **more.pop("message", {})}
    return record("assistant", uuid, parent, message=message, **more)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def test_the_blocks_of_a_reply_and_the_results_of_parallel_calls_stay_together() -> None:
    conversations, report = session()
    main = conversations["stand-9"]
    assert shown(view_of(record_offline(main))) == [
        ("user", "why did sales fall?"),
        ("assistant", "Looking. call t1 call t2"),
        ("tool", "t1: 90"),
        (
            "tool",
            f"t2: {(Text(content='no figures'), Blob(mime_type='image/png', content='aGk='))}",
        ),
        ("assistant", "Monday fell."),
        ("user", "second wording"),
        ("assistant", "Second answer."),
        ("user", "and new products?"),
    ]
    assert [fate.status for fate in report.lines] == ["imported"] * 19


def test_a_reply_of_several_lines_is_one_entry_named_by_each() -> None:
    conversations, report = session()
    (reply,) = line_entries(conversations["stand-9"], 3)
    fates = {fate.line: fate.entries for fate in report.lines}
    assert [fates[line] for line in (3, 4, 5, 7)] == [(reply.id,)] * 4
    (message,) = reply.messages
    assert message.parts[0] == Reasoning(
        content="compare the days",
        payload=ProviderPayload(
            "anthropic",
            {"type": "thinking", "thinking": "compare the days", "signature": "c2lnbmVk"},
        ),
    )
    assert (message.finish_reason, message.model) == ("tool_call", "model-a")
    assert message.usage == Usage(
        input_tokens=10, output_tokens=5, cache_read_tokens=100, cache_write_tokens=7
    )
    (result,) = line_entries(conversations["stand-9"], 8)
    response = result.messages[0].parts[0]
    assert isinstance(response, ToolCallResponse)
    assert response.is_error
    lost = {loss.what: (loss.count, loss.first_line) for loss in report.lost}
    assert lost["user.toolUseResult"] == (1, 6)
    assert report.entries == sum(len(c.items) for c in conversations.values())


def test_a_rewound_turn_is_a_fork_and_its_cut_reply_is_aborted() -> None:
    conversations, _ = session()
    main, fork = conversations["stand-9"], conversations["stand-9/u2"]
    (point,) = line_entries(main, 11)
    assert fork.fork_of == ForkPoint("stand-9", point.id)
    (aborted,) = line_entries(fork, 13)
    assert aborted.messages[0].finish_reason == "aborted"

    parent = record_offline(main)
    child = record_offline(fork, 100, versions_of(parent))
    first = child[0].entry
    assert isinstance(first, ForkEntry)
    context = ContextFold(empty("default", "stand-9"))
    for one in parent:
        if one.version <= first.parent_version:
            context.apply(one.version, one.entry)
    context.inherit(child[0].version, first)
    assert shown(view_of(child[1:], context))[-2:] == [
        ("assistant", "Monday fell."),
        ("user", "first wording"),
    ]


def test_a_sidechain_with_a_root_of_its_own_is_a_conversation() -> None:
    conversations, _ = session()
    agent = conversations["stand-9/g1"]
    assert agent.fork_of is None
    assert shown(view_of(record_offline(agent))) == [
        ("user", "agent's task"),
        ("assistant", "Agent's answer."),
    ]


def test_records_that_no_model_sees_are_notes_in_their_place() -> None:
    conversations, _ = session()
    main = conversations["stand-9"]
    notes = {i.line: i.entry.name for i in main.items if isinstance(i.entry, NoteEntry)}
    assert notes == {
        1: "claude-code.file-history-snapshot",
        11: "claude-code.system",
        19: "claude-code.summary",
    }
    assert [item.line for item in main.items] == sorted(item.line for item in main.items)


def test_a_compact_summary_replaces_everything_but_what_its_boundary_keeps() -> None:
    (conversation,), report = imported(SAMPLES / "claude-code-compacted.jsonl")
    recorded = record_offline(conversation)
    lines = {item.entry.id: item.line for item in conversation.items}

    def after(line: int) -> list[tuple[str, str]]:
        view = view_of([one for one in recorded if lines[one.entry.id] <= line])
        assert view.stale_compactions == 0
        return shown(view)

    assert "First summary." in after(7)[0][1]
    assert after(7)[1:] == [("user", "two"), ("assistant", "answer two"), ("user", "three")]
    assert "Second summary." in after(10)[0][1]
    assert after(10)[1:] == [("user", "four")]
    assert after(12) == [("user", "five")]
    kinds = [type(e.entry) for e in recorded if not isinstance(e.entry, NoteEntry)]
    assert kinds.count(CompactionEntry) == 2
    assert kinds.count(ResetEntry) == 1
    first = next(i.entry for i in conversation.items if isinstance(i.entry, ImportedCompaction))
    assert (first.tokens_before, first.source_count) == (900, 2)
    assert [remark.line for remark in report.remarks] == [11]


def test_a_summary_that_begins_a_file_is_its_beginning(tmp_path: Path) -> None:
    path = written(tmp_path, asks("c", None, "So far.", isCompactSummary=True), asks("u", "c"))
    (conversation,), _ = imported(path)
    assert isinstance(conversation.items[0].entry, ResetEntry)
    assert shown(view_of(record_offline(conversation))) == [("user", "So far."), ("user", "hi")]


def test_what_a_refused_request_took_back_is_omitted(tmp_path: Path) -> None:
    retraction = record("system", "x", "a", subtype="api_refusal", retractedMessageUuids=["a", "?"])
    path = written(
        tmp_path, asks("u", None), says("a", "u", text("no")), retraction, asks("v", "x", "so?")
    )
    (conversation,), report = imported(path)
    assert shown(view_of(record_offline(conversation))) == [("user", "hi"), ("user", "so?")]
    assert any(isinstance(item.entry, EditEntry) for item in conversation.items)
    assert "takes back '?'" in report.remarks[0].text


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"message": {"stop_reason": "end_turn"}}, "stop"),
        ({"message": {"stop_reason": "max_tokens"}}, "length"),
        ({"message": {"stop_reason": "refusal"}}, "content_filter"),
        ({"message": {"stop_reason": "tool_use", "stop_details": {"type": "refusal"}}},
         "content_filter"),
        ({"isApiErrorMessage": True}, "error"),
        ({"isAbortedMidStream": True, "message": {"stop_reason": "end_turn"}}, "aborted"),
        ({"message": {"stop_reason": None}}, None),
    ],
)  # fmt: skip
def test_how_a_reply_ended(tmp_path: Path, fields: dict[str, Any], reason: str | None) -> None:
    path = written(tmp_path, asks("u", None), says("a", "u", text("so"), **fields))
    (conversation,), _ = imported(path)
    assert conversation.items[1].entry.messages[0].finish_reason == reason  # type: ignore[union-attr]


def test_calls_and_results_without_ids_find_each_other(tmp_path: Path) -> None:
    call = {"type": "tool_use", "name": "Bash", "input": {"command": "ls"}}
    path = written(
        tmp_path,
        asks("u", None),
        says("a", "u", call),
        asks("r", "a", [{"type": "tool_result", "content": "ok"}]),
        asks("d", "a", [{"type": "tool_result", "content": "again"}]),
        says("b", "r", text("Done.")),
    )
    (conversation,), _ = imported(path)
    assert shown(view_of(record_offline(conversation)))[1:] == [
        ("assistant", "call call-a-1"),
        ("tool", "call-a-1: ok"),
        ("assistant", "Done."),
    ]


def test_bad_records_are_named_and_the_rest_is_imported(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        asks("u", None),
        b'{"type":"user","uuid":"lost",',
        asks("v", "lost", "two"),
        asks("v", "lost", "two"),
        says("a", "v", {"type": "tool_use", "input": {}}),
        record("user", "w", "a", message={"role": "user", "content": 7}),
        [1],
        b"",
        asks("x", "w", "three"),
    )
    (conversation,), report = imported(path)
    assert [words for _, words in shown(view_of(record_offline(conversation)))] == [
        "hi", "two", "three",
    ]  # fmt: skip
    assert [fate.status for fate in report.lines] == [
        "imported", "malformed", "imported", "skipped", "malformed", "malformed", "malformed",
        "skipped", "imported",
    ]  # fmt: skip
    assert {fate.line: fate.reason for fate in report.lines}[4] == "repeats line 3"
    assert "follows line 1" in report.remarks[0].text


def test_a_file_of_metadata_only_is_a_conversation_of_notes(tmp_path: Path) -> None:
    (conversation,), _ = imported(
        written(
            tmp_path, {"type": "summary", "summary": "Sales", "leafUuid": "x"}, name="old.jsonl"
        )
    )
    assert conversation.conversation == "old"
    assert isinstance(conversation.items[0].entry, NoteEntry)


def test_every_line_of_the_real_session_is_accounted_for() -> None:
    conversations, report = imported(corpus_file("claude-code-small.jsonl"))
    assert [fate.line for fate in report.lines] == list(range(1, 90))
    assert report.count("imported") == 89
    assert {e for fate in report.lines for e in fate.entries} == {
        item.entry.id for c in conversations for item in c.items
    }
    counts = Counter(type(item.entry).__name__ for c in conversations for item in c.items)
    assert counts["ImportedCompaction"] == 1
    reasons = Counter(
        message.finish_reason
        for conversation in conversations
        for item in conversation.items
        for message in getattr(item.entry, "messages", ())
        if message.role == "assistant"
    )
    assert reasons["aborted"] == 1
    assert sum(reasons.values()) == 10
    (aborted,) = (c for c in conversations if any(i.line == 22 for i in c.items))
    first, second = (line_entries(aborted, line)[0].messages[0].parts[0] for line in (9, 10))
    assert first.id == second.id
    assert (first.is_error, second.is_error) == (False, True)
