"""OpenAI chat messages and tools, as foldlog's."""

import json
import re
from collections.abc import Callable
from itertools import chain
from typing import Any

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
    Tool,
    ToolCall,
    ToolCallResponse,
    Uri,
)

SYSTEM_ROLES = frozenset({"system", "developer"})
Lost = Callable[[str], None]
"""Told the name of a field that is not carried over."""

FINISH_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_call",
    "function_call": "tool_call",
    "content_filter": "content_filter",
}
_DATA_URL = re.compile(r"data:([^;,]+)(?:;[^;,]+)*;base64,(.*)", re.DOTALL)
_CARRIED = {
    "user": {"content", "name"},
    "assistant": {
        "content", "name", "tool_calls", "function_call", "refusal", "reasoning_content",
        "finish_reason", "model",
    },
    "tool": {"content", "tool_call_id"},
    "function": {"content", "name"},
}  # fmt: skip


class MessageReader:
    """Converts a conversation's messages in order; the old function calls have no ids, so it
    remembers which one is waiting.
    """

    def __init__(self, lost: Lost) -> None:
        self._lost = lost
        self._function_call = ""

    def convert(self, index: int, message: dict[str, Any]) -> Message:
        """One message, at `index` in its conversation. Raises MalformedRecord."""
        role = message["role"]
        if role not in _CARRIED:
            raise MalformedRecord(f"the role {role!r} is none of OpenAI's chat roles")
        for key in sorted(message.keys() - _CARRIED[role] - {"role"}):
            if message[key] is not None:
                self._lost(f"{role}.{key}")
        match role:
            case "user":
                parts = _content_parts(message.get("content"), self._lost)
                return Message(role="user", parts=parts, name=_name(message))
            case "assistant":
                return self._assistant(index, message)
            case "tool":
                return _result(message.get("tool_call_id"), message, self._lost)
            case _:
                return _result(self._function_call, message, self._lost)

    def _assistant(self, index: int, message: dict[str, Any]) -> Message:
        parts: list[AnyPart] = []
        if isinstance(reasoning := message.get("reasoning_content"), str) and reasoning:
            parts.append(Reasoning(content=reasoning))
        parts.extend(_content_parts(message.get("content"), self._lost))
        if isinstance(refusal := message.get("refusal"), str) and refusal:
            parts.append(_refusal(refusal))
        calls = message.get("tool_calls") or []
        if not isinstance(calls, list):
            raise MalformedRecord("tool_calls is a list")
        parts.extend(_call(call, self._lost) for call in calls)
        if (function := message.get("function_call")) is not None:
            self._function_call = f"function-{index}"
            parts.append(_named_call(self._function_call, function))
        model = message.get("model")
        return Message(
            role="assistant",
            parts=tuple(parts),
            name=_name(message),
            finish_reason=FINISH_REASONS.get(str(message.get("finish_reason"))),
            model=model if isinstance(model, str) else None,
        )


def convert_tools(record: dict[str, Any], lost: Lost) -> tuple[Tool, ...]:
    """The tools on offer, in either form that OpenAI has had. Raises MalformedRecord."""
    tools = []
    lists = [record.get("tools") or [], record.get("functions") or []]
    if not all(isinstance(offers, list) for offers in lists):
        raise MalformedRecord("the tools on offer are a list")
    for offered in chain(*lists):
        function = offered.get("function", offered) if isinstance(offered, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            lost("a tool that is no function")
            continue
        for key in sorted(function.keys() - {"name", "description", "parameters", "type"}):
            lost(f"tool.{key}")
        parameters = function.get("parameters")
        tools.append(
            Tool(
                name=function["name"],
                description=function.get("description") or "",
                parameters=parameters if isinstance(parameters, dict) else {},
            )
        )
    return tuple(tools)


def text_of(content: Any) -> str:
    """The text of a system message. Raises MalformedRecord where it is anything else."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list) and all(
        isinstance(part, dict) and isinstance(part.get("text"), str) for part in content
    ):
        return "\n".join(part["text"] for part in content)
    raise MalformedRecord("a system message is text")


def _content_parts(content: Any, lost: Lost) -> tuple[Content, ...]:
    if content is None or content == "":
        return ()
    if isinstance(content, str):
        return (Text(content=content),)
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise MalformedRecord("content is text, or a list of parts")
    parts: list[Content] = []
    for part in content:
        match part:
            case {"type": "text", "text": str() as text}:
                if text:
                    parts.append(Text(content=text))
            case {"type": "refusal", "refusal": str() as refusal}:
                parts.append(_refusal(refusal))
            case {"type": "image_url", "image_url": {"url": str() as url} as image}:
                if "detail" in image:
                    lost("image_url.detail")
                parts.append(linked(url))
            case {"type": "image_url", "image_url": str() as url}:
                parts.append(linked(url))
            case {"type": "input_audio", "input_audio": {"data": str() as data, "format": kind}}:
                parts.append(Blob(mime_type=f"audio/{kind}", content=data))
            case {"type": "file", "file": {"file_id": str() as file_id}}:
                parts.append(File(file_id=file_id))
            case {"type": "file", "file": {"file_data": str() as url}}:
                parts.append(linked(url))
            case _:
                lost(f"content of type {part.get('type')!r}")
    return tuple(parts)


def linked(url: str) -> Blob | Uri:
    """What stands behind an address: its content where it is a data URL, else the address."""
    if found := _DATA_URL.fullmatch(url):
        return Blob(mime_type=found[1], content=found[2])
    return Uri(uri=url)


def _refusal(text: str) -> Text:
    payload = ProviderPayload("openai", {"type": "refusal", "refusal": text})
    return Text(content=text, payload=payload)


def _call(call: Any, lost: Lost) -> ToolCall:
    if not isinstance(call, dict) or not isinstance(call.get("id"), str):
        raise MalformedRecord("a tool call needs an id")
    for key in sorted(call.keys() - {"id", "type", "function", "custom", "index"}):
        lost(f"tool_calls.{key}")
    if isinstance(custom := call.get("custom"), dict):
        return _named_call(call["id"], {**custom, "arguments": custom.get("input", "")})
    return _named_call(call["id"], call.get("function"))


def _named_call(call_id: str, function: Any) -> ToolCall:
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise MalformedRecord("a tool call needs the name of its function")
    arguments = function.get("arguments")
    return ToolCall(id=call_id, name=function["name"], arguments=parsed_arguments(arguments))


def parsed_arguments(arguments: Any) -> dict[str, Any] | str:
    """The object where the text is one; else the text, as the model wrote it."""
    if isinstance(arguments, dict):
        return arguments
    if arguments is None:
        return ""
    if not isinstance(arguments, str):
        return json.dumps(arguments)
    try:
        value = json.loads(arguments, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _result(call_id: Any, message: dict[str, Any], lost: Lost) -> Message:
    if not isinstance(call_id, str) or not call_id:
        raise MalformedRecord("a result needs the call that it answers")
    parts = _content_parts(message.get("content"), lost)
    result: str | tuple[Content, ...] = parts
    if not parts:
        result = ""
    elif len(parts) == 1 and isinstance(parts[0], Text):
        result = parts[0].content
    return Message(role="tool", parts=(ToolCallResponse(id=call_id, result=result),))


def _name(message: dict[str, Any]) -> str | None:
    name = message.get("name")
    return name if isinstance(name, str) and name else None
