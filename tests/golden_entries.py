"""One entry of every kind with every field set, as golden files hold them."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from foldlog_events.entries import (
    ActionEntry,
    Baseline,
    BaseVersion,
    CompactionEntry,
    Edit,
    EditEntry,
    Entry,
    EntryReference,
    ErasedEntry,
    ExactValue,
    ForkEntry,
    MessageEntry,
    NoteEntry,
    OtherEntry,
    ResetEntry,
    Section,
    SectionInForce,
    SourceRange,
    SystemEntry,
)
from foldlog_events.messages import (
    ArtifactReference,
    Blob,
    File,
    Message,
    ProviderPayload,
    Reasoning,
    Seen,
    Text,
    Tool,
    ToolCall,
    ToolCallResponse,
    Uri,
    Usage,
)

GOLDEN = Path(__file__).with_name("golden")
TIME = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=timezone(timedelta(hours=5, minutes=30)))
DIGEST = f"sha256:{'0123456789abcdef' * 4}"

_envelope: dict[str, Any] = {
    "conversation": "user 7 · 客服",
    "tenant": "acme.example",
    "time": TIME,
    "actor": "agent-1",
    "causation": "0198c000-0000-7000-8000-00000000000f",
}


def _id(number: int) -> str:
    return f"0198c000-0000-7000-8000-{number:012d}"


TOOL = Tool(name="orders", description="Orders of a show.", parameters={"type": "object"})
USAGE = Usage(
    input_tokens=12,
    output_tokens=34,
    cache_read_tokens=56,
    cache_write_tokens=78,
    total_tokens=180,
)
ARTIFACT = ArtifactReference(digest=DIGEST, mime_type="text/csv", size=123456, preview="a,b\n1,2")
CALL = ToolCall(
    id="call_1",
    name="orders",
    arguments={"show": "evening", "limit": 3, "share": 0.5, "deep": [{"a": None, "b": True}]},
)
USER = Message(
    role="user",
    name="Ann",
    parts=(
        Text(content="What did we sell? \u0000\u2028 \U0001f600"),
        Blob(mime_type="image/png", content="iVBORw0KGgo="),
        File(mime_type="application/pdf", file_id="file_1"),
        Uri(mime_type="image/jpeg", uri="https://example.org/a.jpg"),
        ARTIFACT,
    ),
)
ASSISTANT = Message(
    role="assistant",
    parts=(
        Reasoning(
            content="Look it up.",
            payload=ProviderPayload(provider="anthropic", data={"signature": "c2ln"}),
        ),
        Text(content="One moment."),
        CALL,
        ToolCall(id="call_2", name="orders", arguments="not { json"),
    ),
    finish_reason="tool_call",
    model="model-1",
    usage=USAGE,
    seen=Seen(version=41, digest=DIGEST),
)
RESULT = Message(
    role="tool",
    parts=(
        ToolCallResponse(id="call_1", result="42 orders"),
        ToolCallResponse(
            id="call_2", result=(Text(content="no such show"), ARTIFACT), is_error=True
        ),
    ),
)
BASELINE = Baseline(
    sections=(
        SectionInForce(
            name="role",
            text="You are an analyst.",
            exact=True,
            entry=_id(2),
            actor="agent-1",
            time=TIME,
            replaced=_id(1),
        ),
    ),
    tools=(TOOL,),
)

ENTRIES: dict[str, Entry] = {
    "message": MessageEntry(**_envelope, id=_id(1), messages=(USER, ASSISTANT, RESULT)),
    "message-least": MessageEntry(
        id="x",
        conversation="c",
        time=datetime(2026, 3, 1, tzinfo=UTC),
        messages=(Message(role="user", parts=()),),
    ),
    "system": SystemEntry(
        **_envelope,
        id=_id(2),
        sections=(
            Section(name="role", text="You are an analyst.", exact=True),
            Section(name="old", text=None),
        ),
        tools_removed=("search",),
        tools_added=(TOOL,),
    ),
    "note": NoteEntry(**_envelope, id=_id(3), name="rating", data={"stars": 5, "by": ["Ann"]}),
    "action": ActionEntry(
        **_envelope,
        id=_id(4),
        action="refund-1",
        step="approved",
        name="refund",
        arguments={"order": "A-1", "cents": 1999},
        arguments_digest=DIGEST,
        expires=TIME + timedelta(hours=1),
        result={"ok": True},
        reason="within policy",
    ),
    "fork": ForkEntry(**_envelope, id=_id(5), parent="user 6", parent_version=40),
    "edit": EditEntry(
        **_envelope,
        id=_id(6),
        edits=(Edit(target=_id(1), replace=(USER,)), Edit(target=_id(2))),
        reason="typo",
    ),
    "compaction": CompactionEntry(
        **_envelope,
        id=_id(7),
        base_version=BaseVersion(log=40, shape=39),
        source_range=SourceRange(
            first=EntryReference(_id(1), 1),
            last=EntryReference(_id(4), 30),
            count=17,
            digest=DIGEST,
        ),
        kept_from=EntryReference(_id(5), 31),
        summary="## Goal\nSell more.",
        exact_values=(ExactValue(text="A-1", kind="id", entry=_id(4)),),
        baseline=BASELINE,
        tokens_before=12_000,
        tokens_after=900,
        calibration=1.25,
        model="model-1",
        usage=USAGE,
        policy="default",
        attempt=_id(70),
    ),
    "reset": ResetEntry(
        **_envelope, id=_id(8), handoff=(USER,), baseline=BASELINE, reason="new topic"
    ),
    "erased": ErasedEntry(
        **_envelope, id=_id(9), target=_id(1), target_version=12, reason="request 17"
    ),
    "other": OtherEntry(
        **_envelope,
        id=_id(10),
        kind="app.consent",
        data={"given": True},
        messages=(USER,),
        required=True,
    ),
}
