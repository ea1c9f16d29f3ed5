"""OpenAI chat conversations."""

from pathlib import Path

from foldlog.importers import (
    record_offline,
)
from foldlog_events.entries import (
    MessageEntry,
    NoteEntry,
    SystemEntry,
)
from foldlog_events.messages import (
    Blob,
    ProviderPayload,
    Text,
    ToolCall,
    Uri,
)
from tests.importing import SAMPLES, imported, shown, view_of, written


def test_openai_conversations_keep_prompt_calls_and_content() -> None:
    (first, second, third), report = imported(SAMPLES / "openai-chat.jsonl")
    assert [c.conversation for c in (first, second, third)] == [
        "shop-1", "openai-chat-2", "openai-chat-3",
    ]  # fmt: skip
    entries = [item.entry for item in first.items]
    assert isinstance(entries[0], SystemEntry)
    assert [(s.name, s.text) for s in entries[0].sections] == [("system", "Be brief.")]
    assert isinstance(entries[1], MessageEntry)
    assert entries[1].messages[0].parts == (
        Text(content="what is this?"),
        Blob(mime_type="image/png", content="aGk="),
        Uri(uri="https://example.org/a.png"),
    )
    assert isinstance(entries[2], MessageEntry)
    assert [p.arguments for p in entries[2].messages[0].parts if isinstance(p, ToolCall)] == [
        {"sku": 7}, "not json",
    ]  # fmt: skip
    assert isinstance(entries[5], SystemEntry)
    assert entries[5].sections[0].name == "system-2"
    assert shown(view_of(record_offline(first)))[3:5] == [
        ("tool", "x: a shoe"),
        ("tool", "y: a hat"),
    ]
    assert {loss.what for loss in report.lost} == {"image_url.detail", "tool.name", "tool.strict"}


def test_openai_refusals_and_old_function_calls() -> None:
    (_, second, third), _ = imported(SAMPLES / "openai-chat.jsonl")
    refusal = second.items[1].entry
    assert isinstance(refusal, MessageEntry)
    assert refusal.messages[0].parts == (
        Text(
            content="I cannot.",
            payload=ProviderPayload("openai", {"type": "refusal", "refusal": "I cannot."}),
        ),
    )
    view = view_of(record_offline(third))
    assert [tool.name for tool in view.tools] == ["price"]
    assert shown(view) == [
        ("system", "Use tools. Now."),
        ("user", "price?"),
        ("assistant", "call function-3"),
        ("tool", "function-3: 9"),
        ("assistant", "9"),
    ]
    note = third.items[0].entry
    assert isinstance(note, NoteEntry)
    assert note.data == {"metadata": {"split": "test"}}


def test_two_lines_of_one_id_are_two_conversations(tmp_path: Path) -> None:
    line = {"id": "x", "messages": [{"role": "user", "content": "hi"}]}
    conversations, report = imported(written(tmp_path, line, line))
    assert [c.conversation for c in conversations] == ["x", "x#2"]
    assert "line 1 has the id 'x' too" in report.remarks[0].text
