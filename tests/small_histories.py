"""Histories written by hand, and what is seen of them in short.

A history is a list of entries with their versions; an entry's id is `e` and its version. What is
seen reads `user: hi`, `assistant: hi a()`, `tool: a=text`, and `tool: a=!text` for an error.
"""

from collections.abc import Sequence
from typing import Any

from foldlog_events.entries import (
    Baseline,
    BaseVersion,
    CompactionEntry,
    Edit,
    EditEntry,
    Entry,
    EntryReference,
    ErasedEntry,
    ForkEntry,
    MessageEntry,
    Recorded,
    ResetEntry,
    Section,
    SourceRange,
    SystemEntry,
)
from foldlog_events.messages import (
    FinishReason,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolCallResponse,
    assistant,
    user,
)
from foldlog_projections.fold import ContextFold, empty, render
from foldlog_projections.views import ContextView
from tests.histories import TENANT, TIME
from tests.reference_fold import INTRODUCTION, ReferenceView, reference_view
from tests.reference_pairing import UNAVAILABLE
from tests.test_fold_agrees import as_reference

LAST = 1_000
SOURCE = SourceRange(
    first=EntryReference("e1", 1), last=EntryReference("e1", 1), count=1, digest="sha256:0"
)
LOST = f"tool: a=!{UNAVAILABLE}"


def at(version: int, entry: Entry) -> Recorded:
    return Recorded(version, entry)


def common(entry_id: str) -> dict[str, Any]:
    return {"id": entry_id, "conversation": "c", "time": TIME}


def said(version: int, *messages: Message, id: str = "") -> Recorded:
    return at(version, MessageEntry(**common(id or f"e{version}"), messages=messages))


def system(version: int, *sections: Section, id: str = "", **tools: Any) -> Recorded:
    return at(version, SystemEntry(**common(id or f"e{version}"), sections=sections, **tools))


def edit(
    version: int, target: str, *replace: Message, omit: bool = False, id: str = ""
) -> Recorded:
    edits = (Edit(target=target, replace=None if omit else replace),)
    return at(version, EditEntry(**common(id or f"e{version}"), edits=edits))


def erased(version: int, target: str) -> Recorded:
    return at(
        version, ErasedEntry(**common(f"e{version}"), target=target, target_version=int(target[1:]))
    )


def compaction(
    version: int, kept: int | None, *, log: int, shape: int = 0, **fields: Any
) -> Recorded:
    kept_from = None if kept is None else EntryReference(f"e{kept}", kept)
    base = BaseVersion(log=log, shape=shape)
    stored: dict[str, Any] = {"summary": f"S{version}", "source_range": SOURCE, **fields}
    entry = CompactionEntry(
        **common(f"e{version}"), base_version=base, kept_from=kept_from, **stored
    )
    return at(version, entry)


def reset(version: int, *handoff: Message, baseline: Baseline | None = None) -> Recorded:
    return at(version, ResetEntry(**common(f"e{version}"), handoff=handoff, baseline=baseline))


def fork(version: int, parent: str, parent_version: int) -> Recorded:
    entry = ForkEntry(**common(f"e{version}"), parent=parent, parent_version=parent_version)
    return at(version, entry)


def section(name: str, text: str | None) -> Section:
    return Section(name=name, text=text)


def call(call_id: str) -> ToolCall:
    return ToolCall(id=call_id, name="read")


def calls(*ids: str, text: str = "", finish_reason: FinishReason | None = None) -> Message:
    return assistant(text, *map(call, ids), finish_reason=finish_reason)


def short(message: Message) -> str:
    words = []
    for part in message.parts:
        match part:
            case Text(content=content):
                words.append(content)
            case ToolCall(id=call_id):
                words.append(f"{call_id}()")
            case ToolCallResponse(id=call_id, result=result, is_error=failed):
                words.append(f"{call_id}={'!' if failed else ''}{result}")
            case Reasoning():
                words.append("(reasoning)")
    return f"{message.role}: {' '.join(words)}"


def view(history: Sequence[Recorded], version: int = LAST) -> ReferenceView:
    """The reference's view, which the fold agrees to."""
    expected = reference_view(history, version)
    if not (history and isinstance(history[0].entry, ForkEntry)):
        assert as_reference(folded_view(history, version)) == expected
    return expected


def folded_view(history: Sequence[Recorded], version: int = LAST) -> ContextView:
    """The fold's own view: going on in place and from its stored state, it is the same."""
    context = ContextFold(empty(TENANT, "c"))
    for recorded in history:
        if recorded.version <= version:
            context.apply(recorded.version, recorded.entry)
    shown = context.view()
    assert render(context.state()) == shown
    return shown


def seen(history: Sequence[Recorded], version: int = LAST) -> list[str]:
    shown = [short(message) for message in view(history, version).messages]
    opening, closing = f"user: {INTRODUCTION}\n\n<summary>\n", "\n</summary>"
    return [text.replace(opening, "K: ").replace(closing, "") for text in shown]


U1, U2, U3 = (said(n, user(f"u{n}")) for n in (1, 2, 3))
