"""Response items of Codex rollouts, as foldlog's messages and parts."""

import json
from collections.abc import Callable, Iterable
from typing import Any

from foldlog.importers.errors import MalformedRecord
from foldlog.importers.openai_messages import linked, parsed_arguments
from foldlog_events.messages import (
    AnyPart,
    Content,
    Message,
    ProviderPayload,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolCallResponse,
)

Lost = Callable[[str], None]
"""Told the name of a field that is not carried over."""

Converted = Message | tuple[AnyPart, ...] | None
"""A message of its own, parts of a reply, or nothing that a model can be shown."""

ENCRYPTED_SUMMARY = "(A summary of the conversation so far that only its provider can read.)"
ENCRYPTED_CONTENT = "(Content that only its provider can read.)"

_ROLES: dict[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "developer": "system",
    "system": "system",
}
_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output", "tool_search_output"})
_SILENT = frozenset({"ghost_snapshot", "web_search_call", "image_generation_call"})
_INTERNAL = {"internal_chat_message_metadata_passthrough", "metadata"}
_CONTEXT_MARKS = (
    "<environment_context>", "<user_instructions>", "# agents.md instructions", "<turn_aborted>",
    "<user_shell_command>", "<skill>", "<subagent_notification>",
)  # fmt: skip


def convert_item(item: Any, lost: Lost) -> Converted:
    """What a model is shown of one item. Raises MalformedRecord."""
    if not isinstance(item, dict) or not isinstance(item.get("type"), str):
        raise MalformedRecord("a response item needs a type")
    kind = item["type"]
    if kind in _OUTPUTS:
        return _output(item, lost)
    match kind:
        case "message":
            return _message(item, lost)
        case "agent_message":
            return _agent_message(item, lost)
        case "reasoning":
            return (_reasoning(item, lost),)
        case "function_call" | "custom_tool_call" | "tool_search_call" | "local_shell_call":
            return (_call(item, lost),)
        case "compaction" | "compaction_summary":
            payload = ProviderPayload("openai", _without_internal(item))
            text = Text(content=ENCRYPTED_SUMMARY, payload=payload)
            return Message(role="user", parts=(text,))
        case _:
            # What the provider did by itself has no call and result that another one could take.
            lost(f"response_item of type {kind!r}" + ("" if kind in _SILENT else ", unknown"))
            return None


def convert_history(items: Iterable[Any], lost: Lost) -> tuple[Message, ...]:
    """The messages that a list of items makes; what belongs to one reply is one message."""
    messages: list[Message] = []
    parts: list[AnyPart] = []

    def flush() -> None:
        if parts:
            messages.append(reply_of(tuple(parts)))
            parts.clear()

    for item in items:
        match convert_item(item, lost):
            case tuple() as said:
                parts += said
            case Message() as message:
                flush()
                if message.parts:
                    messages.append(message)
            case None:
                pass
    flush()
    return tuple(messages)


def reply_of(parts: tuple[AnyPart, ...]) -> Message:
    """A finished reply."""
    asks = any(isinstance(part, ToolCall) for part in parts)
    return Message(role="assistant", parts=parts, finish_reason="tool_call" if asks else "stop")


def is_context(message: Message) -> bool:
    """Whether Codex itself wrote the user's message: the environment, instructions, notices."""
    return any(
        isinstance(part, Text) and part.content.lstrip().lower().startswith(_CONTEXT_MARKS)
        for part in message.parts
    )


def _message(item: dict[str, Any], lost: Lost) -> Converted:
    role = _ROLES.get(str(item.get("role")))
    if role is None:
        raise MalformedRecord(f"the role {item.get('role')!r} is none of Codex's")
    _list_lost(item, {"role", "content"}, "message", lost)
    parts = content_parts(item.get("content"), "message", lost)
    if role == "assistant":
        return parts
    if role == "system":
        parts = tuple(part for part in parts if isinstance(part, Text))
    return Message(role=role, parts=parts)


def _agent_message(item: dict[str, Any], lost: Lost) -> Message:
    _list_lost(item, {"author", "recipient", "content"}, "agent_message", lost)
    head = f"Message from {item.get('author')} to {item.get('recipient')}:"
    parts = content_parts(item.get("content"), "agent_message", lost)
    return Message(role="user", parts=(Text(content=head), *parts))


def content_parts(content: Any, owner: str, lost: Lost) -> tuple[Content, ...]:
    """Texts and images; empty ones are left out. Raises MalformedRecord."""
    if content is None or isinstance(content, str):
        return (Text(content=content),) if content else ()
    pieces = [content] if isinstance(content, dict) else content
    if not isinstance(pieces, list) or not all(isinstance(piece, dict) for piece in pieces):
        raise MalformedRecord("content is text, or a list of pieces")
    parts: list[Content] = []
    for piece in pieces:
        match piece:
            case {"type": "input_text" | "output_text" | "text", "text": str() as text}:
                if text:
                    parts.append(Text(content=text))
            case {"type": "input_image", "image_url": str() as url}:
                if "detail" in piece:
                    lost(f"{owner}.input_image.detail")
                parts.append(linked(url))
            case {"type": "encrypted_content"}:
                payload = ProviderPayload("openai", dict(piece))
                parts.append(Text(content=ENCRYPTED_CONTENT, payload=payload))
            case _:
                lost(f"{owner}.content of type {piece.get('type')!r}")
    return tuple(parts)


def _reasoning(item: dict[str, Any], lost: Lost) -> Reasoning:
    _list_lost(item, {"summary", "content", "encrypted_content", "id"}, "reasoning", lost)
    told = [item.get("summary") or [], item.get("content") or []]
    if not all(isinstance(pieces, list) for pieces in told):
        raise MalformedRecord("reasoning is told in lists of texts")
    shown = [piece for pieces in told for piece in pieces]
    texts = [str(piece["text"]) for piece in shown if isinstance(piece, dict) and "text" in piece]
    payload = ProviderPayload("openai", _without_internal(item))
    return Reasoning(content="\n".join(texts), payload=payload)


def _call(item: dict[str, Any], lost: Lost) -> ToolCall:
    kind, call_id = item["type"], item.get("call_id") or item.get("id")
    if not isinstance(call_id, str) or not call_id:
        raise MalformedRecord(f"a {kind} needs its call_id")
    _list_lost(item, {"call_id", "id", "name", "arguments", "input", "action"}, kind, lost)
    match item:
        case {"type": "function_call", "name": str() as name}:
            arguments = parsed_arguments(item.get("arguments"))
            return ToolCall(id=call_id, name=name, arguments=arguments, payload=_own_call(item))
        case {"type": "custom_tool_call", "name": str() as name}:
            return ToolCall(id=call_id, name=name, arguments=parsed_arguments(item.get("input")))
        case {"type": "local_shell_call", "action": dict() as action}:
            return ToolCall(id=call_id, name="local_shell", arguments=action)
        case {"type": "tool_search_call"}:
            arguments = parsed_arguments(item.get("arguments"))
            return ToolCall(id=call_id, name="tool_search", arguments=arguments)
        case _:
            raise MalformedRecord(f"a {kind} needs what it calls")


def _own_call(item: dict[str, Any]) -> ProviderPayload | None:
    """The provider's form of the call: its own id binds it to the reasoning that led to it."""
    fields = ("type", "id", "call_id", "name", "arguments", "status")
    own = {name: item[name] for name in fields if isinstance(item.get(name), str)}
    return ProviderPayload("openai", own) if {"id", "arguments"} <= own.keys() else None


def _output(item: dict[str, Any], lost: Lost) -> Message:
    call_id = item.get("call_id")
    if not isinstance(call_id, str) or not call_id:
        raise MalformedRecord("an output needs the call that it answers")
    _list_lost(item, {"call_id", "output", "tools"}, item["type"], lost)
    output, failed = item.get("output"), False
    if item["type"] == "tool_search_output":
        output = json.dumps(item.get("tools") or [])
    elif isinstance(output, dict) and "type" not in output:
        # Older rollouts: the text, and whether it worked.
        failed = output.get("success") is False
        output = output.get("content_items") or output.get("content")
    parts = content_parts(output, "output", lost)
    result: str | tuple[Content, ...] = parts
    if not parts:
        result = ""
    elif len(parts) == 1 and isinstance(parts[0], Text) and parts[0].payload is None:
        result = parts[0].content
    response = ToolCallResponse(id=call_id, result=result, is_error=failed)
    return Message(role="tool", parts=(response,))


def _without_internal(item: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in item.items()
        if name not in _INTERNAL and not (name == "content" and value is None)
    }


def _list_lost(item: dict[str, Any], carried: set[str], owner: str, lost: Lost) -> None:
    for name in sorted(item.keys() - carried - {"type"}):
        if item[name] is not None:
            lost(f"{owner}.{name}")
