"""Which format a file has, told from its first lines."""

from collections.abc import Iterable
from typing import Any

from foldlog.importers.errors import UnknownFormat
from foldlog.importers.lines import Line

PI = "pi"
OPENAI_CHAT = "openai-chat"
CLAUDE_CODE = "claude-code"
CODEX = "codex"
FORMATS = (PI, CLAUDE_CODE, CODEX, OPENAI_CHAT)
"""Names of the formats that can be imported."""

DESCRIPTIONS = {
    PI: "pi (sessions of the Pi coding agent)",
    CLAUDE_CODE: "claude-code (sessions of Claude Code)",
    CODEX: "codex (rollouts of Codex)",
    OPENAI_CHAT: "openai-chat (one conversation of OpenAI chat messages a line)",
}
SAMPLE = 50
"""Lines that are looked at; a file may begin with malformed ones."""

PI_TYPES = frozenset(
    {
        "session", "message", "compaction", "thinking_level_change", "model_change",
        "branch_summary", "custom", "custom_message", "label", "session_info", "checkpoint",
    }
)  # fmt: skip

CODEX_TYPES = frozenset(
    {"session_meta", "response_item", "event_msg", "turn_context", "compacted", "world_state"}
)


def detect_format(name: str, lines: Iterable[Line]) -> str:
    """The format of a file, from its first `SAMPLE` lines. Raises UnknownFormat."""
    first = ""
    for line in lines:
        first = first or line.text.decode(errors="replace").strip()
        if found := format_of(line.value):
            return found
    raise UnknownFormat(name, first, tuple(DESCRIPTIONS[known] for known in FORMATS))


def format_of(value: Any) -> str | None:
    """The format that a line's value belongs to; None where it is none of ours."""
    match value:
        case {"type": str() as kind, "timestamp": _} if kind in PI_TYPES and not (
            value.keys() & {"payload", "sessionId"}
        ):
            return PI
        case {"type": str() as kind, "payload": dict()} if kind in CODEX_TYPES:
            return CODEX
        case {"type": str(), "sessionId": str()} | {"type": str(), "parentUuid": _, "uuid": str()}:
            return CLAUDE_CODE
        case {"type": "summary", "leafUuid": _} | {
            "type": "file-history-snapshot",
            "snapshot": _,
        }:
            return CLAUDE_CODE
        case {"messages": [{"role": str()}, *_]} | [{"role": str()}, *_]:
            return OPENAI_CHAT
        case _:
            pass
    return None
