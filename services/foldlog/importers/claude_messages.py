"""Messages of Claude Code session files."""

import json
from collections.abc import Callable, Iterable
from typing import Any

from foldlog.importers.claude_tree import blocks_of
from foldlog.importers.errors import MalformedRecord
from foldlog_events.messages import (
    AnyPart,
    Blob,
    Content,
    File,
    FinishReason,
    Message,
    ProviderPayload,
    Reasoning,
    Text,
    ToolCall,
    ToolCallResponse,
    Uri,
    Usage,
)
from foldlog_projections.usage import normalise_usage

Lost = Callable[[str], None]
"""Told the name of a field that is not carried over."""

FINISH_REASONS: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_call",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
_ENVELOPE = {"type", "uuid", "parentUuid", "timestamp", "sessionId", "isSidechain", "message"}
_SAID = {"id", "type", "role", "model", "content", "stop_reason", "usage"}


def user_messages(record: dict[str, Any], lost: Lost) -> tuple[Message, ...]:
    """Results first, then what the user said beside them. Raises MalformedRecord."""
    list_lost(record, _ENVELOPE | {"isCompactSummary", "sourceToolAssistantUUID"}, "user", lost)
    blocks = _blocks(record)
    results = [block for block in blocks if block.get("type") == "tool_result"]
    said = content_parts([b for b in blocks if b.get("type") != "tool_result"], "user", lost)
    responses = tuple(_result(record, block, lost) for block in results)
    messages = []
    if responses:
        messages.append(Message(role="tool", parts=responses))
    if said or not responses:
        messages.append(Message(role="user", parts=said))
    return tuple(messages)


def summary_of(record: dict[str, Any], lost: Lost) -> str:
    """The text of a compact summary. Raises MalformedRecord."""
    list_lost(record, _ENVELOPE | {"isCompactSummary"}, "user", lost)
    parts = content_parts(_blocks(record), "user", lost)
    text = "\n".join(part.content for part in parts if isinstance(part, Text))
    if not text.strip():
        raise MalformedRecord("a compact summary needs its text")
    return text


def reply_parts(record: dict[str, Any], lost: Lost) -> tuple[AnyPart, ...]:
    """What the record adds to its reply. Raises MalformedRecord."""
    carried = _ENVELOPE | {"isAbortedMidStream", "isApiErrorMessage", "requestId", "error"}
    list_lost(record, carried, "assistant", lost)
    if isinstance(record.get("message"), dict):
        list_lost(record["message"], _SAID, "message", lost)
    parts: list[AnyPart] = []
    unnamed = 0
    for block in _blocks(record):
        match block:
            case {"type": "thinking", "thinking": str() as thinking}:
                signed = isinstance(block.get("signature"), str) and block["signature"]
                payload = ProviderPayload("anthropic", dict(block)) if signed else None
                parts.append(Reasoning(content=thinking, payload=payload))
            case {"type": "redacted_thinking", "data": str()}:
                payload = ProviderPayload("anthropic", dict(block))
                parts.append(Reasoning(content="", payload=payload))
            case {"type": "tool_use", "name": str() as name}:
                list_lost(block, {"type", "id", "name", "input"}, "tool_use", lost)
                if not isinstance(block.get("id"), str):
                    unnamed += 1
                call = block.get("id") or unnamed_call(record.get("uuid"), unnamed)
                parts.append(ToolCall(id=call, name=name, arguments=_arguments(block)))
            case {"type": "tool_use"}:
                raise MalformedRecord("a tool call needs a name")
            case _:
                parts += content_parts([block], "assistant", lost)
    return tuple(parts)


def unnamed_call(uuid: Any, number: int = 1) -> str:
    """The id of a call that states none, told by its record: results name that record."""
    return f"call-{uuid}-{number}"


def finish_reason(record: dict[str, Any], lost: Lost) -> FinishReason | None:
    """How the reply ended, as far as this record says."""
    if record.get("isAbortedMidStream") is True:
        return "aborted"
    if record.get("isApiErrorMessage") is True or record.get("error"):
        return "error"
    message = record.get("message")
    stop = message.get("stop_reason") if isinstance(message, dict) else None
    details = message.get("stop_details") if isinstance(message, dict) else None
    if isinstance(details, dict) and details.get("type") == "refusal":
        return "content_filter"
    reason = FINISH_REASONS.get(stop) if isinstance(stop, str) else None
    if stop is not None and reason is None:
        lost(f"message.stop_reason {stop!r}")
    return reason


def model_and_usage(record: dict[str, Any]) -> tuple[str | None, Usage | None]:
    """Which model replied, and the tokens that it took; a count of nothing is none."""
    message = record.get("message")
    if not isinstance(message, dict):
        return None, None
    model, usage = message.get("model"), normalise_usage(message.get("usage"))
    return (
        model if isinstance(model, str) else None,
        usage if usage is not None and usage.context_tokens else None,
    )


def content_parts(blocks: Iterable[dict[str, Any]], owner: str, lost: Lost) -> tuple[Content, ...]:
    """Texts, images and documents; empty texts are left out, other blocks are reported."""
    parts: list[Content] = []
    for block in blocks:
        match block:
            case {"type": "text", "text": str() as text}:
                list_lost(block, {"type", "text"}, f"{owner}.text", lost)
                if text:
                    parts.append(Text(content=text))
            case {"type": "image" | "document" as kind, "source": dict() as source}:
                list_lost(block, {"type", "source"}, f"{owner}.{kind}", lost)
                if (part := _sourced(source)) is not None:
                    parts.append(part)
                else:
                    lost(f"{owner}.{kind} of source {source.get('type')!r}")
            case _:
                lost(f"{owner}.content of type {block.get('type')!r}")
    return tuple(parts)


def _sourced(source: dict[str, Any]) -> Content | None:
    match source:
        case {"type": "base64", "media_type": str() as mime_type, "data": str() as data}:
            return Blob(mime_type=mime_type, content=data)
        case {"type": "url", "url": str() as url}:
            return Uri(uri=url)
        case {"type": "file", "file_id": str() as file_id}:
            return File(file_id=file_id)
        case {"type": "text", "data": str() as text}:
            return Text(content=text)
        case _:
            return None


def _result(record: dict[str, Any], block: dict[str, Any], lost: Lost) -> ToolCallResponse:
    carried = {"type", "tool_use_id", "content", "is_error"}
    list_lost(block, carried, "tool_result", lost)
    call = block.get("tool_use_id")
    if not isinstance(call, str) or not call:
        call = unnamed_call(record.get("sourceToolAssistantUUID") or record.get("parentUuid"))
    content = block.get("content")
    if not isinstance(content, str | list | None):
        raise MalformedRecord("a result is text, or a list of blocks")
    pieces = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    if not all(isinstance(piece, dict) for piece in pieces):
        raise MalformedRecord("a result is text, or a list of blocks")
    parts = content_parts(pieces, "tool_result", lost)
    result: str | tuple[Content, ...] = parts
    if not parts:
        result = ""
    elif len(parts) == 1 and isinstance(parts[0], Text):
        result = parts[0].content
    return ToolCallResponse(id=call, result=result, is_error=block.get("is_error") is True)


def _arguments(block: dict[str, Any]) -> dict[str, Any] | str:
    arguments = block.get("input", {})
    if isinstance(arguments, dict | str):
        return arguments
    return json.dumps(arguments)


def _blocks(record: dict[str, Any]) -> list[dict[str, Any]]:
    message = record.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    blocks = blocks_of(record)
    if not isinstance(content, str | list) or (
        isinstance(content, list) and len(blocks) < len(content)
    ):
        raise MalformedRecord("a message's content is text, or a list of blocks")
    return blocks


def list_lost(record: dict[str, Any], carried: set[str], owner: str, lost: Lost) -> None:
    """Report the fields that hold something and are not carried over."""
    for name in sorted(record.keys() - carried):
        if record[name] not in (None, False, "", [], {}):
            lost(f"{owner}.{name}")
