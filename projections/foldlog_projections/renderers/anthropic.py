"""A view as a request to Anthropic's Messages API.

Roles alternate: what stands side by side in the user's role becomes one message, results first.
Thinking goes back verbatim with its signature, or is left out. Blank texts, which the API
refuses, are left out or named.
"""

from typing import Any

import msgspec

from foldlog_events.messages import (
    AnyPart,
    Blob,
    Content,
    File,
    Message,
    Reasoning,
    ToolCall,
    ToolCallResponse,
    Uri,
)
from foldlog_projections.renderers.common import (
    IMAGE_TYPES,
    OPENING,
    PDF,
    Forms,
    calls_last,
    described,
    function_name,
    inlined,
    is_blank,
    is_image,
    json_schema,
    media_type,
    on_the_web,
    opened,
    split_system,
    system_update,
    unmarked,
    verbatim,
    with_distinct_calls,
    with_whole_reasoning,
)
from foldlog_projections.views import ContextView

LONGEST_CALL_ID = 64
LONGEST_NAME = 128
EMPTY_MESSAGE = "(empty message)"
EMPTY_RESULT = "(no output)"
UNPARSED = "unparsed_arguments"
"""The key that holds a call's arguments where the model wrote no JSON object."""

_DEEPEST_ARGUMENTS = 100
_TEXT: Forms = {"text": {"text": str}}
_SHOWN: Forms = {
    **_TEXT,
    "image": {"source": dict},
    "document": {"source": dict},
    "search_result": {"content": list},
}
_CALL: Forms = {"tool_use": {"name": str, "input": dict}}
_REASONING: Forms = {
    "thinking": {"thinking": str, "signature": str},
    "redacted_thinking": {"data": str},
}

Block = dict[str, Any]


def render(view: ContextView, *, cache_breakpoints: bool = True) -> dict[str, Any]:
    """The request's `system`, `tools` and `messages`.

    With `cache_breakpoints` the stable prefix is marked for the provider's cache: the end of
    the tools, of the system texts, of the last message, and of the user message before it,
    where the previous request ended and where its cache entry is found.
    """
    leading, rest = split_system(view)
    messages: list[dict[str, Any]] = []
    for message in with_distinct_calls(rest, longest=LONGEST_CALL_ID, any_character=False):
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _blocks(message)
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        elif blocks:
            messages.append({"role": role, "content": blocks})
    request: dict[str, Any] = {
        "system": [_text(text) for text in leading],
        "tools": tools(view),
        "messages": opened(messages, {"role": "user", "content": [_text(OPENING)]}),
    }
    if cache_breakpoints:
        _mark(request)
    return request


def tools(view: ContextView) -> list[dict[str, Any]]:
    """The `tools` of a request."""
    return [
        {
            "name": function_name(tool.name, longest=LONGEST_NAME),
            "description": tool.description,
            "input_schema": json_schema(tool),
        }
        for tool in view.tools
    ]


def _mark(request: dict[str, Any]) -> None:
    messages: list[dict[str, Any]] = request["messages"]
    earlier = [message for message in messages[:-1] if message["role"] == "user"]
    ends = [message["content"] for message in (*earlier[-1:], messages[-1])]
    for blocks in (request["tools"], request["system"], *ends):
        if blocks:
            blocks[-1] = blocks[-1] | {"cache_control": {"type": "ephemeral"}}


def _blocks(message: Message) -> list[Block]:
    match message.role:
        case "system":
            update = system_update(message)
            return [_text(update)] if update else []
        case "tool":
            return [_result(part) for part in message.parts if isinstance(part, ToolCallResponse)]
        case "assistant":
            parts = with_whole_reasoning(
                calls_last(message.parts), lambda part: _reasoning(part) is not None
            )
            return [block for part in parts if (block := _said(part))]
        case _:
            return _shown(message.parts) or [_text(EMPTY_MESSAGE)]


def _said(part: AnyPart) -> Block | None:
    match part:
        case Reasoning():
            return _reasoning(part)
        case ToolCall():
            own = _own(part, _CALL) or {
                "type": "tool_use",
                "name": function_name(part.name, longest=LONGEST_NAME),
                "input": _input(part),
            }
            return own | {"id": part.id}
        case ToolCallResponse():
            return None
        case _ if is_blank(part):
            return None
        case _:
            return _own(part, _TEXT) or _text(described(part))


def _reasoning(part: Reasoning) -> Block | None:
    own = verbatim(part, "anthropic", _REASONING)
    signed = own is not None and (own.get("signature") or own.get("data"))
    return own if signed else None


def _input(call: ToolCall) -> dict[str, Any]:
    if not isinstance(call.arguments, str):
        return call.arguments
    if not call.arguments.strip():
        return {}
    try:
        written = msgspec.json.decode(call.arguments)
    except (msgspec.DecodeError, RecursionError):
        written = None
    if isinstance(written, dict) and not _deeper(written, _DEEPEST_ARGUMENTS):
        return written
    return {UNPARSED: call.arguments}


def _deeper(value: Any, levels: int) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return False
    return levels == 0 or any(_deeper(item, levels - 1) for item in value)


def _result(part: ToolCallResponse) -> Block:
    if isinstance(part.result, str):
        content: Any = part.result if part.result.strip() else EMPTY_RESULT
    else:
        content = _shown(part.result, escape=False) or EMPTY_RESULT
    error = {"is_error": True} if part.is_error else {}
    return {"type": "tool_result", "tool_use_id": part.id, "content": content, **error}


def _shown(parts: tuple[AnyPart, ...] | tuple[Content, ...], *, escape: bool = True) -> list[Block]:
    return [
        _content(part, escape) for part in parts if isinstance(part, Content) and not is_blank(part)
    ]


def _content(part: Content, escape: bool) -> Block:
    own = _own(part, _SHOWN)
    if not own and isinstance(part, Blob | File | Uri):
        own = _media(part)
    text = described(part)
    return own or _text(unmarked(text) if escape else text)


def _media(part: Blob | File | Uri) -> Block | None:
    if isinstance(part, File):
        kind = "image" if media_type(part).startswith("image/") else "document"
        return {"type": kind, "source": {"type": "file", "file_id": part.file_id}}
    held = inlined(part)
    kind = "image" if is_image(held) else "document" if media_type(held) == PDF else ""
    match held:
        case Blob(content=content) if media_type(held) in {*IMAGE_TYPES, PDF}:
            source = {"type": "base64", "media_type": media_type(held), "data": content}
            return {"type": kind, "source": source}
        case Uri(uri=uri) if kind and on_the_web(held):
            return {"type": kind, "source": {"type": "url", "url": uri}}
        case _:
            return None


def _own(part: AnyPart, forms: Forms) -> Block | None:
    """The provider's own form, without the cache marks of the request it came with."""
    own = verbatim(part, "anthropic", forms)
    if own is None or (own["type"] == "text" and not own["text"].strip()):
        return None
    own.pop("cache_control", None)
    return own


def _text(text: str) -> Block:
    return {"type": "text", "text": text}
