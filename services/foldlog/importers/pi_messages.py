"""Messages of Pi session files, as Pi's own context shows them to a model."""

import json
from collections.abc import Callable
from typing import Any

from foldlog.importers.errors import MalformedRecord
from foldlog_events.messages import (
    AnyPart,
    Blob,
    Content,
    FinishReason,
    Message,
    ProviderPayload,
    Reasoning,
    Text,
    ToolCall,
    ToolCallResponse,
    Usage,
    user,
)

Lost = Callable[[str], None]
"""Told the name of a field that is not carried over."""

FINISH_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "toolUse": "tool_call",
    "length": "length",
    "aborted": "aborted",
    "error": "error",
}
COMPACTION_INTRODUCTION = (
    "The conversation history before this point was compacted into the following summary:"
)
BRANCH_INTRODUCTION = (
    "The following is a summary of a branch that this conversation came back from:"
)

_CARRIED = {
    "user": {"content"},
    "assistant": {"content", "model", "usage", "stopReason", "errorMessage"},
    "toolResult": {"toolCallId", "content", "isError"},
    "bashExecution": {
        "command", "output", "exitCode", "cancelled", "truncated", "fullOutputPath",
        "excludeFromContext",
    },
    "custom": {"content"},
    "branchSummary": {"summary"},
    "compactionSummary": {"summary"},
}  # fmt: skip


def convert_message(message: Any, lost: Lost) -> Message | None:
    """The message that Pi sends to a model for a stored one; None where it sends none.

    Raises MalformedRecord.
    """
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise MalformedRecord("a message needs a role")
    role = "custom" if message["role"] == "hookMessage" else message["role"]
    if role not in _CARRIED or (role == "bashExecution" and message.get("excludeFromContext")):
        return None
    for field in sorted(message.keys() - _CARRIED[role] - {"role"}):
        lost(f"{role}.{field}")
    match role:
        case "assistant":
            return _assistant(message, lost)
        case "toolResult":
            return _tool_result(message, lost)
        case "bashExecution":
            return user(_bash_text(message))
        case "branchSummary":
            return user(summary_text(BRANCH_INTRODUCTION, _text(message, "summary")))
        case "compactionSummary":
            return user(summary_text(COMPACTION_INTRODUCTION, _text(message, "summary")))
        case _:
            return Message(role="user", parts=content_parts(message.get("content"), role, lost))


def summary_text(introduction: str, summary: str) -> str:
    """A summary between its delimiters, none of which it can end itself."""
    escaped = summary.replace("<summary", "&lt;summary").replace("</summary", "&lt;/summary")
    return f"{introduction}\n\n<summary>\n{escaped}\n</summary>"


def convert_usage(usage: Any, lost: Lost, owner: str = "assistant") -> Usage | None:
    """Tokens as Pi counts them: already without overlap."""
    if not isinstance(usage, dict):
        return None
    names = {
        "input": "input_tokens",
        "output": "output_tokens",
        "cacheRead": "cache_read_tokens",
        "cacheWrite": "cache_write_tokens",
        "totalTokens": "total_tokens",
    }
    for field in sorted(usage.keys() - names.keys()):
        lost(f"{owner}.usage.{field}")
    counts = {
        name: usage[field]
        for field, name in names.items()
        if isinstance(usage.get(field), int) and usage[field] >= 0
    }
    return Usage(**counts)


def content_parts(content: Any, owner: str, lost: Lost) -> tuple[Content, ...]:
    """Text and images; empty texts are left out. Raises MalformedRecord."""
    if isinstance(content, str):
        return (Text(content=content),) if content else ()
    parts: list[Content] = []
    for block in _blocks(content):
        match block:
            case {"type": "text", "text": str() as text}:
                _list_lost(block, {"type", "text"}, f"{owner}.text", lost)
                if text:
                    parts.append(Text(content=text))
            case {"type": "image", "data": str() as data, "mimeType": str() as mime_type}:
                _list_lost(block, {"type", "data", "mimeType"}, f"{owner}.image", lost)
                parts.append(Blob(mime_type=mime_type, content=data))
            case _:
                lost(f"{owner}.content of type {block.get('type')!r}")
    return tuple(parts)


def _assistant(message: dict[str, Any], lost: Lost) -> Message:
    parts: list[AnyPart] = []
    anthropic = "anthropic" in (message.get("provider"), str(message.get("api", "")).split("-")[0])
    for block in _blocks(message.get("content")):
        match block:
            case {"type": "text", "text": str() as text}:
                _list_lost(block, {"type", "text"}, "assistant.text", lost)
                if text:
                    parts.append(Text(content=text))
            case {"type": "thinking", "thinking": str()}:
                parts.append(_reasoning(block, anthropic, lost))
            case {"type": "toolCall", "id": str() as call, "name": str() as name}:
                _list_lost(block, {"type", "id", "name", "arguments"}, "toolCall", lost)
                parts.append(ToolCall(id=call, name=name, arguments=_arguments(block)))
            case {"type": "toolCall"}:
                raise MalformedRecord("a tool call needs an id and a name")
            case _:
                lost(f"assistant.content of type {block.get('type')!r}")
    stop = message.get("stopReason")
    reason = FINISH_REASONS.get(stop) if isinstance(stop, str) else None
    if stop is not None and reason is None:
        lost(f"assistant.stopReason {stop!r}")
    model = message.get("model")
    return Message(
        role="assistant",
        parts=tuple(parts),
        finish_reason=reason,
        model=model if isinstance(model, str) else None,
        usage=convert_usage(message.get("usage"), lost),
    )


def _reasoning(block: dict[str, Any], anthropic: bool, lost: Lost) -> Reasoning:
    thinking, signature = block["thinking"], block.get("thinkingSignature")
    _list_lost(block, {"type", "thinking", "thinkingSignature", "redacted"}, "thinking", lost)
    if not signature:
        return Reasoning(content=thinking)
    if not anthropic:
        lost("thinking.thinkingSignature of another provider")
        return Reasoning(content=thinking)
    if block.get("redacted"):
        data = {"type": "redacted_thinking", "data": signature}
    else:
        data = {"type": "thinking", "thinking": thinking, "signature": signature}
    return Reasoning(content=thinking, payload=ProviderPayload("anthropic", data))


def _arguments(block: dict[str, Any]) -> dict[str, Any] | str:
    arguments = block.get("arguments", {})
    if isinstance(arguments, dict | str):
        return arguments
    return json.dumps(arguments)


def _tool_result(message: dict[str, Any], lost: Lost) -> Message:
    call = message.get("toolCallId")
    if not isinstance(call, str):
        raise MalformedRecord("a tool result needs the id of its call")
    parts = content_parts(message.get("content"), "toolResult", lost)
    result: str | tuple[Content, ...] = parts
    if not parts:
        result = ""
    elif len(parts) == 1 and isinstance(parts[0], Text):
        result = parts[0].content
    response = ToolCallResponse(id=call, result=result, is_error=message.get("isError") is True)
    return Message(role="tool", parts=(response,))


def _bash_text(message: dict[str, Any]) -> str:
    output = message.get("output") or ""
    shown = f"```\n{output}\n```" if output else "(no output)"
    text = f"Ran `{_text(message, 'command')}`\n{shown}"
    code = message.get("exitCode")
    if message.get("cancelled"):
        text += "\n\n(command cancelled)"
    elif code:
        text += f"\n\nCommand exited with code {code}"
    if message.get("truncated") and message.get("fullOutputPath"):
        text += f"\n\n[Output truncated. Full output: {message['fullOutputPath']}]"
    return text


def _text(message: dict[str, Any], field: str) -> str:
    value = message.get(field)
    if not isinstance(value, str):
        raise MalformedRecord(f"{field} must be text")
    return value


def _blocks(content: Any) -> list[dict[str, Any]]:
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise MalformedRecord("content must be text or a list of blocks")
    return content


def _list_lost(block: dict[str, Any], carried: set[str], owner: str, lost: Lost) -> None:
    for field in sorted(block.keys() - carried):
        lost(f"{owner}.{field}")
