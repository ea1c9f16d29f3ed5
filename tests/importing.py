"""Short ways to import files, to fold what they hold, and to write Pi sessions."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from foldlog.importers import (
    ImportedConversation,
    LineReport,
    read_file,
)
from foldlog_events.entries import (
    Recorded,
)
from foldlog_events.messages import (
    Message,
    Text,
    ToolCall,
    ToolCallResponse,
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


def pi_header(**more: Any) -> dict[str, Any]:
    return {"type": "session", "id": "s", "timestamp": "2026-01-01T00:00:00Z", **more}


def pi_record(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "timestamp": "2026-01-01T00:00:00Z", **more}


def pi_user(text: str, **more: Any) -> dict[str, Any]:
    return pi_record("message", message={"role": "user", "content": text}, **more)
