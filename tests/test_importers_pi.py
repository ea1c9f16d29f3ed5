"""Pi sessions of version 1: what Pi showed is what the fold shows."""

from pathlib import Path

import pytest

from foldlog.importers import (
    ImportedCompaction,
    record_offline,
)
from foldlog_events.entries import (
    BaseVersion,
    CompactionEntry,
    NoteEntry,
)
from foldlog_events.messages import (
    ProviderPayload,
    Reasoning,
    Usage,
)
from tests.importing import (
    SAMPLES,
    imported,
    line_entries,
    pi_header,
    pi_record,
    pi_user,
    shown,
    versions_of,
    view_of,
    written,
)


def test_a_linear_session_shows_what_pi_showed() -> None:
    (conversation,), report = imported(SAMPLES / "pi-linear.jsonl")
    assert conversation.conversation == "stand-7"
    recorded = record_offline(conversation)
    before, after = recorded[:11], recorded

    assert shown(view_of(before)) == [
        ("user", "why did sales fall?"),
        ("assistant", "Looking. call c1 call c2"),
        ("tool", "c1: 90"),
        ("tool", "c2: 40"),
        ("assistant", "Monday fell."),
        ("user", "and new products?"),
        ("assistant", "call c3"),
        ("tool", "c3: Tool result unavailable: history ends before this call completed."),
    ]
    messages = shown(view_of(after))
    assert messages[0][0] == "user"
    assert "Sales fell from 90 to 40." in messages[0][1]
    assert messages[1:] == [
        ("user", "and new products?"),
        ("assistant", "call c3"),
        ("tool", "c3: 12"),
        ("user", "Ran `ls`\n```\na\nb\n```\n\nCommand exited with code 2"),
        ("assistant", "New products fell too."),
    ]
    assert [fate.status for fate in report.lines] == ["imported"] * 15


def test_a_compaction_covers_all_that_came_before_what_it_keeps() -> None:
    (conversation,), _ = imported(SAMPLES / "pi-linear.jsonl")
    (compaction,) = line_entries(conversation, 11)
    assert isinstance(compaction, ImportedCompaction)
    recorded = record_offline(conversation)
    entry = next(one.entry for one in recorded if isinstance(one.entry, CompactionEntry))
    (kept,) = line_entries(conversation, 9)
    versions = versions_of(recorded)
    assert entry.kept_from is not None
    assert (entry.kept_from.id, entry.kept_from.version) == (kept.id, versions[kept.id])
    assert entry.source_range.first.version == 1
    assert entry.source_range.last.version == versions[kept.id] - 1
    assert entry.source_range.count == versions[kept.id] - 1
    assert entry.base_version == BaseVersion(log=versions[compaction.id] - 1, shape=0)
    assert entry.tokens_before == 900


def test_the_fields_of_a_reply_are_kept() -> None:
    (conversation,), report = imported(SAMPLES / "pi-linear.jsonl")
    aborted, note = line_entries(conversation, 3)
    assert aborted.messages[0].finish_reason == "aborted"
    assert (note.name, note.causation) == ("pi.error", aborted.id)
    assert note.data == {"errorMessage": "Request was aborted."}

    (thinking,) = line_entries(conversation, 8)
    (message,) = thinking.messages
    assert message.parts[0] == Reasoning(
        content="compare the days",
        payload=ProviderPayload(
            "anthropic",
            {"type": "thinking", "thinking": "compare the days", "signature": "c2lnbmVk"},
        ),
    )
    assert message.finish_reason == "stop"
    assert message.model == "model-a"
    assert message.usage == Usage(
        input_tokens=10,
        output_tokens=5,
        cache_read_tokens=100,
        cache_write_tokens=7,
        total_tokens=122,
    )
    (calling,) = line_entries(conversation, 4)
    assert calling.messages[0].finish_reason == "tool_call"

    lost = {loss.what: (loss.count, loss.first_line) for loss in report.lost}
    assert lost["toolResult.details"] == (1, 5)
    assert lost["assistant.usage.cost"] == (5, 3)


def test_what_no_model_saw_becomes_notes_with_its_data() -> None:
    (conversation,), _ = imported(SAMPLES / "pi-linear.jsonl")
    notes = {
        item.line: (item.entry.name, item.entry.data)
        for item in conversation.items
        if isinstance(item.entry, NoteEntry)
    }
    assert notes[1][0] == "pi.session"
    assert notes[1][1]["cwd"] == "/srv/stand"
    assert notes[7] == ("pi.thinking_level_change", {"thinkingLevel": "high"})
    assert notes[14] == ("pi.model_change", {"provider": "anthropic", "modelId": "model-b"})


@pytest.mark.parametrize(
    ("index", "kept"),
    [(0, ["one", "two", "three"]), (1, ["one", "two", "three"]), (3, ["three"]), (9, [])],
)
def test_a_boundary_by_index_counts_the_header(tmp_path: Path, index: int, kept: list[str]) -> None:
    path = written(
        tmp_path,
        pi_header(),
        *(pi_user(text) for text in ("one", "two", "three")),
        {**pi_record("compaction"), "summary": "So far.", "firstKeptEntryIndex": index},
        pi_user("four"),
    )
    (conversation,), _ = imported(path)
    messages = shown(view_of(record_offline(conversation)))
    assert [text for _, text in messages[1:]] == [*kept, "four"]


def test_a_boundary_by_index_passes_over_unreadable_lines_as_pi_does(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        pi_header(),
        b'{"type":"message","timest',
        b"",
        *(pi_user(text) for text in ("one", "two", "three")),
        {**pi_record("compaction"), "summary": "So far.", "firstKeptEntryIndex": 2},
    )
    (conversation,), report = imported(path)
    messages = shown(view_of(record_offline(conversation)))
    assert [text for _, text in messages[1:]] == ["two", "three"]
    assert [fate.status for fate in report.lines] == [
        "imported", "malformed", "skipped", *["imported"] * 4,
    ]  # fmt: skip


def test_a_second_compaction_cannot_bring_back_what_the_first_removed(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        pi_header(),
        *(pi_user(text) for text in ("one", "two", "three")),
        {**pi_record("compaction"), "summary": "First.", "firstKeptEntryIndex": 3},
        {**pi_record("compaction"), "summary": "Second.", "firstKeptEntryIndex": 1},
    )
    (conversation,), report = imported(path)
    view = view_of(record_offline(conversation))
    assert view.stale_compactions == 0
    assert "Second." in shown(view)[0][1]
    assert [text for _, text in shown(view)[1:]] == ["three"]
    assert [remark.line for remark in report.remarks] == [6]
