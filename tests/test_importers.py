"""Importers: every line accounted for, the same ids each time, and the meaning kept."""

import json
import os
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from foldlog.importers import (
    ConversationDiverged,
    FileImport,
    ForkPoint,
    ImportedCompaction,
    ImportedConversation,
    LineReport,
    UnknownFormat,
    UnresolvedReference,
    read_file,
    record_offline,
    remaining,
    resolve,
)
from foldlog_events.entries import (
    BaseVersion,
    CompactionEntry,
    ForkEntry,
    MessageEntry,
    NoteEntry,
    Recorded,
    ResetEntry,
    SystemEntry,
)
from foldlog_events.messages import (
    Blob,
    Message,
    ProviderPayload,
    Reasoning,
    Text,
    ToolCall,
    ToolCallResponse,
    Uri,
    Usage,
)
from foldlog_projections.fold import ContextFold
from foldlog_projections.state import empty
from foldlog_projections.views import ContextView

SAMPLES = Path(__file__).parent / "samples"
CORPUS = Path(
    os.environ.get("FOLDLOG_CORPUS")
    or Path(__file__).resolve().parents[1].parent / "shared" / "corpus"
)
UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def corpus_file(name: str) -> Path:
    path = CORPUS / name
    if not path.is_file():
        pytest.skip(f"the corpus of real transcripts is not here: no {path.name}")
    return path


def imported(path: Path, *, repair: bool = False) -> tuple[list[ImportedConversation], LineReport]:
    file = read_file(path, repair=repair)
    return list(file), file.report


def written(folder: Path, *lines: Any, name: str = "file.jsonl") -> Path:
    path = folder / name
    path.write_bytes(
        b"".join(
            (line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n"
            for line in lines
        )
    )
    return path


def view_of(recorded: list[Recorded], context: ContextFold | None = None) -> ContextView:
    entry = recorded[0].entry
    fold = context or ContextFold(empty(entry.tenant, entry.conversation))
    for one in recorded:
        fold.apply(one.version, one.entry)
    return fold.view()


def shown(view: ContextView) -> list[tuple[str, str]]:
    return [(message.role, said(message)) for message in view.messages]


def said(message: Message) -> str:
    words = []
    for part in message.parts:
        match part:
            case Text(content=content):
                words.append(content)
            case ToolCall(id=call):
                words.append(f"call {call}")
            case ToolCallResponse(id=call, result=result):
                words.append(f"{call}: {result}")
            case _:
                pass
    return " ".join(words)


def versions_of(recorded: list[Recorded]) -> dict[str, int]:
    return {one.entry.id: one.version for one in recorded}


def line_entries(conversation: ImportedConversation, line: int) -> list[Any]:
    return [item.entry for item in conversation.items if item.line == line]


# Pi, version 1


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


def pi_header(**more: Any) -> dict[str, Any]:
    return {"type": "session", "id": "s", "timestamp": "2026-01-01T00:00:00Z", **more}


def pi_record(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "timestamp": "2026-01-01T00:00:00Z", **more}


def pi_user(text: str, **more: Any) -> dict[str, Any]:
    return pi_record("message", message={"role": "user", "content": text}, **more)


# Pi, the tree


def tree() -> tuple[ImportedConversation, ImportedConversation, LineReport]:
    (main, fork), report = imported(SAMPLES / "pi-tree.jsonl")
    return main, fork, report


def test_the_path_to_the_last_record_is_the_main_conversation() -> None:
    main, _, report = tree()
    assert (main.conversation, main.fork_of) == ("stand-8", None)
    messages = shown(view_of(record_offline(main)))
    assert "Right so far." in messages[0][1]
    assert messages[1:] == [
        ("user", "second question"),
        (
            "user",
            "The following is a summary of a branch that this conversation came back from:\n\n"
            "<summary>\nThe left way was tried.\n</summary>",
        ),
        ("user", "mind the weekday"),
        ("assistant", "right answer"),
        ("user", "right on"),
    ]
    (label,) = line_entries(main, 12)
    (labelled,) = line_entries(main, 3)
    assert label.data == {"targetId": "n2", "label": "start", "entry": labelled.id}
    assert report.count("imported") == 15


def test_another_branch_is_a_fork_that_goes_on_from_its_parent() -> None:
    main, fork, _ = tree()
    (point,) = line_entries(main, 4)
    assert fork.conversation == "stand-8/n4"
    assert fork.fork_of == ForkPoint("stand-8", point.id)
    parent = record_offline(main)
    versions = versions_of(parent)
    child = record_offline(fork, start_version=100, versions=versions)
    first = child[0].entry
    assert isinstance(first, ForkEntry)
    assert (first.parent, first.parent_version) == ("stand-8", versions[point.id])

    context = ContextFold(empty("default", "stand-8"))
    for one in parent:
        if one.version <= first.parent_version:
            context.apply(one.version, one.entry)
    context.inherit(child[0].version, first)
    messages = shown(view_of(child[1:], context))
    assert "Left so far." in messages[0][1]
    assert messages[1:] == [
        ("user", "second question"),
        ("assistant", "left answer"),
        ("user", "left on"),
        ("assistant", "left goes on"),
    ]


def test_a_fork_needs_its_parents_versions() -> None:
    _, fork, _ = tree()
    with pytest.raises(UnresolvedReference, match="the conversation that a fork comes from first"):
        resolve(fork.items[0].entry, {}, BaseVersion(0, 0))


def test_branches_of_branches_follow_the_branch_they_leave(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        pi_header(version=3),
        pi_user("root", id="a", parentId=None),
        pi_user("left", id="b", parentId="a"),
        pi_user("left of left", id="c", parentId="b"),
        pi_user("right of left", id="d", parentId="b"),
        pi_user("afresh", id="e", parentId=None),
        pi_user("right", id="f", parentId="a"),
    )
    conversations, _ = imported(path)
    assert [(c.conversation, c.fork_of and c.fork_of.conversation) for c in conversations] == [
        ("s", None),
        ("s/e", None),
        ("s/b", "s"),
        ("s/c", "s/b"),
    ]
    entries: dict[str, int] = {}
    for conversation in conversations:
        entries |= versions_of(record_offline(conversation, len(entries) + 1, entries))
    assert len(entries) == 7 + 2


def test_a_malformed_line_of_a_tree_does_not_lose_the_rest(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        pi_header(version=3),
        pi_user("one", id="a", parentId=None),
        b'{"type": "message", "id": "b", ',
        pi_user("three", id="c", parentId="b"),
        pi_record("message", id="d", parentId="c", message={"content": "no role"}),
        pi_user("five", id="e", parentId="d"),
    )
    (conversation,), report = imported(path)
    assert [text for _, text in shown(view_of(record_offline(conversation)))] == [
        "one", "three", "five",
    ]  # fmt: skip
    assert [fate.line for fate in report.lines if fate.status == "malformed"] == [3, 5]
    assert [remark.line for remark in report.remarks] == [4]


def test_a_compaction_that_holds_what_it_keeps(tmp_path: Path) -> None:
    two = {"role": "user", "content": "two"}
    other = {"role": "user", "content": "shortened"}
    for tail, kind in ([two], CompactionEntry), ([other], ResetEntry):
        path = written(
            tmp_path,
            pi_header(version=3),
            pi_user("one", id="a", parentId=None),
            pi_user("two", id="b", parentId="a"),
            pi_record("compaction", id="c", parentId="b", summary="One.", retainedTail=tail),
            pi_user("three", id="d", parentId="c"),
        )
        (conversation,), _ = imported(path)
        recorded = record_offline(conversation)
        assert isinstance(recorded[3].entry, kind)
        messages = shown(view_of(recorded))
        assert "One." in messages[0][1]
        assert [text for _, text in messages[1:]] == [tail[0]["content"], "three"]


def test_a_shell_command_kept_from_the_model_stays_a_note(tmp_path: Path) -> None:
    hidden = {"role": "bashExecution", "command": "env", "output": "", "excludeFromContext": True}
    path = written(tmp_path, pi_header(), pi_record("message", message=hidden), pi_user("hi"))
    (conversation,), _ = imported(path)
    assert isinstance(conversation.items[1].entry, NoteEntry)
    assert shown(view_of(record_offline(conversation))) == [("user", "hi")]


# OpenAI chat


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


# Bad input


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


@pytest.mark.parametrize("name", ["claude-code-small.jsonl", "codex-rollout-small.jsonl"])
def test_an_unknown_format_is_refused_by_name(name: str) -> None:
    path = corpus_file(name)
    with pytest.raises(UnknownFormat, match=r"known formats are pi .* openai-chat") as caught:
        read_file(path)
    assert name in str(caught.value)
    assert path.read_text().startswith(caught.value.first_line.rstrip("…")[:50])


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


# The same file again


@pytest.mark.parametrize("name", ["pi-linear.jsonl", "pi-tree.jsonl", "openai-chat.jsonl"])
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


# The corpus


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


@pytest.mark.parametrize("name", ["pi-before-compaction.jsonl", "tau-airline-openai-chat.jsonl"])
def test_every_version_of_the_corpus_folds_to_a_valid_view(name: str) -> None:
    conversations, _ = imported(corpus_file(name))
    for conversation in conversations:
        context = ContextFold(empty(conversation.tenant, conversation.conversation))
        for one in record_offline(conversation):
            context.apply(one.version, one.entry)
            check(context.view(), one.version)


def check(view: ContextView, version: int) -> None:
    waiting: list[str] = []
    for message in view.messages:
        results = [p.id for p in message.parts if isinstance(p, ToolCallResponse)]
        if waiting:
            assert results == waiting[:1], f"version {version}: {waiting[0]} is not answered"
            waiting = waiting[1:]
            continue
        assert not results, f"version {version}: orphan {results}"
        assert message.finish_reason not in ("aborted", "error")
        assert message.parts
        waiting = [p.id for p in message.parts if isinstance(p, ToolCall)]
    assert not waiting, f"version {version}: {waiting} are not answered"
    assert not view.faults
    assert sum(message.role == "system" for message in view.messages) <= 1
