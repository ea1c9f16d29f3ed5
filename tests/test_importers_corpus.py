"""Importers on real transcripts: every line accounted for, and the meaning kept."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foldlog.importers import (
    ImportedCompaction,
    record_offline,
)
from foldlog_events.entries import (
    MessageEntry,
)
from foldlog_events.messages import (
    ToolCall,
)
from tests.importing import (
    corpus_file,
    imported,
    shown,
    view_of,
)


def corpus_counts(path: Path) -> Mapping[str, int]:
    conversations, report = imported(path)
    with path.open("rb") as file:
        total = sum(1 for _ in file)
    assert [fate.line for fate in report.lines] == list(range(1, total + 1))
    named = Counter(entry for fate in report.lines for entry in fate.entries)
    made = Counter(item.entry.id for c in conversations for item in c.items)
    assert named == made
    assert set(made.values()) == {1}
    counts = Counter({"lines": total, "conversations": len(conversations)})
    for conversation in conversations:
        for item in conversation.items:
            if isinstance(item.entry, ImportedCompaction):
                counts["compactions"] += 1
            if isinstance(item.entry, MessageEntry):
                for message in item.entry.messages:
                    counts[message.role] += 1
                    counts[str(message.finish_reason)] += 1
                    counts["calls"] += sum(isinstance(p, ToolCall) for p in message.parts)
    counts["imported"] = report.count("imported")
    return counts


def test_every_line_of_the_real_pi_session_is_accounted_for() -> None:
    counts = corpus_counts(corpus_file("pi-before-compaction.jsonl"))
    shell_commands = 3
    assert counts["lines"] == counts["imported"] == 1003
    assert counts["user"] == 55 + shell_commands
    assert counts["assistant"] == 484
    assert counts["tool"] == 448
    assert counts["calls"] == 454
    assert counts["aborted"] == 18
    assert counts["error"] == 1
    assert counts["compactions"] == 2


def test_every_line_of_the_real_chats_is_accounted_for() -> None:
    path = corpus_file("tau-airline-openai-chat.jsonl")
    counts = corpus_counts(path)
    assert counts["lines"] == counts["imported"] == counts["conversations"] == 60
    with path.open() as file:
        stored = Counter(m["role"] for line in file for m in json.loads(line)["messages"])
    assert {role: counts[role] for role in ("user", "assistant", "tool")} == {
        role: stored[role] for role in ("user", "assistant", "tool")
    }


def pi_loads(records: list[dict[str, Any]]) -> list[str]:
    """The messages that Pi's own loader of the time shows after a summary, as their words."""
    place = max(at for at, record in enumerate(records) if record["type"] == "compaction")
    kept = records[records[place]["firstKeptEntryIndex"] :]
    said_words = []
    for record in kept:
        message = record.get("message") or {}
        if message.get("role") == "user":
            said_words.append(" ".join(block["text"] for block in message["content"]))
    return said_words


def test_the_real_compactions_keep_what_pi_kept() -> None:
    path = corpus_file("pi-before-compaction.jsonl")
    with path.open() as file:
        records = [json.loads(line) for line in file]
    (conversation,), _ = imported(path)
    recorded = record_offline(conversation)
    line_of = {item.entry.id: item.line for item in conversation.items}
    for compaction in (359, 628):
        upto = [one for one in recorded if line_of[one.entry.id] <= compaction + 40]
        view = view_of(upto)
        assert view.stale_compactions == 0
        users = [text for role, text in shown(view) if role == "user"][1:]
        users = [text for text in users if not text.startswith("Ran `")]
        assert users == pi_loads(records[: compaction + 40])
