"""Codex rollouts: what Codex showed is what the fold shows."""

from pathlib import Path
from typing import Any

import pytest

from foldlog.importers import ImportedConversation, LineReport, record_offline
from foldlog_events.entries import EditEntry, MessageEntry, NoteEntry, ResetEntry
from foldlog_events.messages import (
    Blob,
    Message,
    ProviderPayload,
    Reasoning,
    Text,
    ToolCall,
    ToolCallResponse,
    Usage,
)
from foldlog_projections.renderers import openai_responses
from tests.importing import SAMPLES, corpus_file, imported, line_entries, shown, view_of, written

ENVIRONMENT = "<environment_context>\n<cwd>/srv/stand</cwd>\n</environment_context>"
SUMMARY = "A summary follows.\nSales fell on Monday."


def rollout() -> tuple[ImportedConversation, LineReport]:
    (conversation,), report = imported(SAMPLES / "codex.jsonl")
    return conversation, report


def after(conversation: ImportedConversation, line: int) -> list[tuple[str, str]]:
    lines = {item.entry.id: item.line for item in conversation.items}
    recorded = [one for one in record_offline(conversation) if lines[one.entry.id] <= line]
    return shown(view_of(recorded))


def item(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "response_item", "payload": {"type": kind, **fields}}


def said(role: str, *content: Any) -> dict[str, Any]:
    pieces = [{"type": "input_text", "text": c} if isinstance(c, str) else c for c in content]
    return item("message", role=role, content=pieces)


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "event_msg", "payload": {"type": kind, **fields}}


def compacted(**fields: Any) -> dict[str, Any]:
    return {"type": "compacted", "payload": fields}


def folded(path: Path) -> list[tuple[str, str]]:
    (conversation,), _ = imported(path)
    return shown(view_of(record_offline(conversation)))


def test_items_of_one_response_are_one_reply() -> None:
    conversation, report = rollout()
    assert conversation.conversation == "stand-10"
    assert after(conversation, 13) == [
        ("system", "Be brief."),
        ("system", 'Prompt section "developer-1" is now:\nNever write.\nAsk first.'),
        ("user", ENVIRONMENT),
        ("user", "why did sales fall?"),
        ("assistant", "call c1 call c2"),
        ("tool", "c1: 90"),
        ("tool", "c2: refused"),
    ]
    (reply,) = line_entries(conversation, 7)
    fates = {fate.line: fate.entries for fate in report.lines}
    assert [fates[line] for line in (7, 9, 10)] == [(reply.id,)] * 3
    (message,) = reply.messages
    assert (message.finish_reason, message.model) == ("tool_call", "model-a")
    assert message.usage == Usage(input_tokens=20, output_tokens=9, cache_read_tokens=100)
    assert [fate.status for fate in report.lines] == ["imported"] * 27


def test_encrypted_reasoning_and_calls_keep_the_providers_form() -> None:
    conversation, _ = rollout()
    (reply,) = line_entries(conversation, 7)
    reasoning, call, patch = reply.messages[0].parts
    data = {
        "type": "reasoning", "id": "rs_1", "encrypted_content": "c2VhbGVk",
        "summary": [{"type": "summary_text", "text": "compare the days"}],
    }  # fmt: skip
    assert reasoning == Reasoning(
        content="compare the days", payload=ProviderPayload("openai", data)
    )
    assert isinstance(call, ToolCall)
    assert call.arguments == {"command": ["cat", "monday"]}
    assert patch == ToolCall(id="c2", name="apply_patch", arguments="*** Begin Patch")
    view = view_of(record_offline(conversation)[:12])
    sent = openai_responses.render(view)["input"]
    assert data in sent
    assert [i["id"] for i in sent if i.get("type") == "function_call" and "id" in i] == ["fc_1"]


def test_results_and_images_are_kept() -> None:
    conversation, _ = rollout()
    (asked,) = line_entries(conversation, 5)
    assert asked.messages[0].parts == (
        Text(content="why did sales fall?"),
        Blob(mime_type="image/png", content="aGk="),
    )
    (refused,) = line_entries(conversation, 13)
    assert refused.messages[0].parts == (
        ToolCallResponse(id="c2", result="refused", is_error=True),
    )


def test_a_reply_that_came_to_nothing_is_aborted() -> None:
    conversation, _ = rollout()
    (cut,) = line_entries(conversation, 14)
    assert cut.messages[0].finish_reason == "aborted"


def test_an_interrupted_turn_keeps_what_was_finished(tmp_path: Path) -> None:
    call = item("function_call", call_id="c", name="f", arguments="{}")
    path = written(tmp_path, said("user", "hi"), call, event("turn_aborted"), said("user", "on"))
    assert folded(path)[1] == ("assistant", "call c")


def test_an_older_compaction_keeps_context_questions_and_summary() -> None:
    conversation, report = rollout()
    assert after(conversation, 19) == [
        ("system", "Be brief. Never write.\nAsk first."),
        ("user", ENVIRONMENT),
        ("user", "why did sales fall?"),
        ("user", "go on"),
        ("user", SUMMARY),
    ]
    assert "rebuilt as Codex does" in {r.line: r.text for r in report.remarks}[19]


def test_a_second_older_compaction_drops_the_first_summary(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        said("user", "one"),
        compacted(message="Prefix\nFirst."),
        said("user", "two"),
        compacted(message="Prefix\nSecond."),
    )
    assert folded(path) == [("user", "one"), ("user", "two"), ("user", "Prefix\nSecond.")]


def test_an_older_compaction_keeps_the_newest_questions_within_its_room(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        said("user", "old"),
        said("user", "x" * 80_000),
        said("user", "new"),
        compacted(message="So far."),
    )
    kept = [words for _, words in folded(path)]
    assert [len(words) for words in kept] == [79_997, 3, 7]


def test_a_compaction_with_its_history_replaces_everything() -> None:
    conversation, report = rollout()
    assert after(conversation, 27) == [
        ("system", "Be brief. Never write.\nAsk first."),
        ("user", "and old products?"),
        ("user", "(A summary of the conversation so far that only its provider can read.)"),
        ("user", "go on"),
        ("assistant", "Done."),
    ]
    reset, note = line_entries(conversation, 25)
    assert isinstance(reset, ResetEntry)
    assert reset.handoff[1].parts[0].payload == ProviderPayload(
        "openai", {"type": "compaction", "encrypted_content": "c2VhbGVk"}
    )
    assert note.data == {"message": "", "window_id": "w-2"}
    assert "only OpenAI can read it" in {r.line: r.text for r in report.remarks}[25]
    assert "response_item of type 'ghost_snapshot'" in {loss.what for loss in report.lost}


def test_a_replies_parts_in_a_history_are_one_message(tmp_path: Path) -> None:
    history = [
        said("user", "hi")["payload"],
        item("reasoning", id="r", summary=[])["payload"],
        item("function_call", call_id="c", name="f", arguments="{}")["payload"],
        item("function_call_output", call_id="c", output="ok")["payload"],
        said("assistant", {"type": "output_text", "text": "so"})["payload"],
    ]
    path = written(tmp_path, compacted(message="", replacement_history=history))
    (conversation,), _ = imported(path)
    reset = conversation.items[0].entry
    assert isinstance(reset, ResetEntry)
    assert [(m.role, m.finish_reason, len(m.parts)) for m in reset.handoff] == [
        ("user", None, 1),
        ("assistant", "tool_call", 2),
        ("tool", None, 1),
        ("assistant", "stop", 1),
    ]


def test_a_rollback_takes_back_the_newest_turn() -> None:
    conversation, _ = rollout()
    assert ("assistant", "They fell too.") in after(conversation, 21)
    assert after(conversation, 22) == after(conversation, 19)
    assert any(isinstance(e, EditEntry) for e in line_entries(conversation, 22))


def test_a_rollback_into_a_replaced_history_begins_anew(tmp_path: Path) -> None:
    history = [said("user", words)["payload"] for words in ("one", "two")]
    path = written(
        tmp_path,
        said("developer", "Mind."),
        compacted(
            message="", replacement_history=[said("developer", "Mind.")["payload"], *history]
        ),
        said("user", "three"),
        event("thread_rolled_back", num_turns=2),
        said("user", "four"),
    )
    assert folded(path) == [("system", "Mind."), ("user", "one"), ("user", "four")]


def test_only_the_sessions_own_meta_sets_the_prompt(tmp_path: Path) -> None:
    metas = [
        {"type": "session_meta", "payload": {"id": name, "base_instructions": {"text": name}}}
        for name in ("child", "parent")
    ]
    (conversation,), _ = imported(written(tmp_path, *metas, said("user", "hi")))
    assert conversation.conversation == "child"
    view = view_of(record_offline(conversation))
    assert shown(view) == [("system", "child"), ("user", "hi")]
    assert [n.data["id"] for n in (i.entry for i in conversation.items)
            if isinstance(n, NoteEntry)] == ["child", "parent"]  # fmt: skip


def test_what_only_the_provider_did_is_a_note_and_reported() -> None:
    conversation, report = rollout()
    (note,) = line_entries(conversation, 17)
    assert (note.name, note.data["action"]["query"]) == ("codex.web_search_call", "sales")
    assert {loss.what for loss in report.lost} >= {"response_item of type 'web_search_call'"}


def test_messages_between_agents_say_who_wrote_them(tmp_path: Path) -> None:
    content = [
        {"type": "input_text", "text": "look"},
        {"type": "encrypted_content", "encrypted_content": "eA=="},
    ]
    path = written(tmp_path, item("agent_message", author="a", recipient="b", content=content))
    (conversation,), _ = imported(path)
    entry = conversation.items[0].entry
    assert isinstance(entry, MessageEntry)
    (message,) = entry.messages
    assert message == Message(
        role="user",
        parts=(
            Text(content="Message from a to b:"),
            Text(content="look"),
            Text(
                content="(Content that only its provider can read.)",
                payload=ProviderPayload("openai", content[1]),
            ),
        ),
    )


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b'{"type":"response_item",', "not JSON"),
        ({"type": "response_item"}, "a type and a payload"),
        (item("function_call", name="f"), "needs its call_id"),
        (item("function_call", call_id="c"), "needs what it calls"),
        (item("function_call_output", output="x"), "needs the call that it answers"),
        (item("message", role="oracle", content=[]), "'oracle'"),
        (item("message", role="user", content=[7]), "a list of pieces"),
        ({"type": "response_item", "payload": {}}, "needs a type"),
        (compacted(), "a message or a replacement_history"),
        (compacted(replacement_history=[7]), "needs a type"),
    ],
)
def test_bad_records_are_named_and_the_rest_is_imported(
    tmp_path: Path, bad: Any, reason: str
) -> None:
    path = written(tmp_path, said("user", "one"), bad, b"", said("user", "two"))
    (conversation,), report = imported(path)
    assert shown(view_of(record_offline(conversation))) == [("user", "one"), ("user", "two")]
    assert [fate.status for fate in report.lines] == [
        "imported", "malformed", "skipped", "imported",
    ]  # fmt: skip
    assert reason in report.lines[1].reason


def test_every_line_of_the_real_rollout_is_accounted_for() -> None:
    (conversation,), report = imported(corpus_file("codex-rollout-small.jsonl"))
    assert [fate.line for fate in report.lines] == list(range(1, 119))
    assert report.count("imported") == 118
    made = {item.entry.id for item in conversation.items}
    assert {e for fate in report.lines for e in fate.entries} == made
    assert report.entries == len(conversation.items)
    resets = [i for i in conversation.items if isinstance(i.entry, ResetEntry)]
    assert [reset.line for reset in resets] == [26, 47, 69, 81, 89, 111]
    assert all(reset.entry.handoff for reset in resets)  # type: ignore[union-attr]
