"""Strict checks of what a model would be sent, written against the APIs' rules.

Each `check_*` raises AssertionError with the place and the reason. They share no code with the
renderers or the fold, and also hold requests against the official clients' own types.
"""

import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from anthropic.types import MessageParam, TextBlockParam, ToolParam
from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionMessageParam
from openai.types.responses import FunctionToolParam, ResponseInputItemParam
from pydantic import TypeAdapter, ValidationError

from foldlog_events.messages import Message, Reasoning, Text, ToolCall, ToolCallResponse
from foldlog_projections.views import ContextView

ANTHROPIC_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
FUNCTION_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ANTHROPIC_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
DEAD_REASONS = {"aborted", "error", "deferred"}


def check_neutral(view: ContextView) -> None:
    """A view in the sense of the fold's rules: pairing, system messages, replies that count."""
    pending: list[str] = []
    for at, message in enumerate(view.messages):
        place = f"messages[{at}]"
        assert message.parts, f"{place}: a {message.role} message without parts"
        calls = [part for part in message.parts if isinstance(part, ToolCall)]
        results = [part for part in message.parts if isinstance(part, ToolCallResponse)]
        if message.role == "tool":
            assert len(message.parts) == len(results) == 1, f"{place}: not exactly one response"
            assert pending, f"{place}: orphan result of {results[0].id!r}"
            assert results[0].id == pending[0], (
                f"{place}: result of {results[0].id!r} where {pending[0]!r} is due"
            )
            pending.pop(0)
            continue
        assert not pending, f"{place}: {message.role} message before the results of {pending}"
        assert not results, f"{place}: a result in a {message.role} message"
        if message.role == "assistant":
            _check_reply(message, place)
            pending = [call.id for call in calls]
            assert len(set(pending)) == len(pending), f"{place}: a call id twice in a message"
        else:
            assert not calls, f"{place}: a call in a {message.role} message"
        if message.role == "system":
            assert all(isinstance(part, Text) for part in message.parts), f"{place}: not text"
    assert not pending, f"the end: calls {pending} have no result"


def _check_reply(message: Message, place: str) -> None:
    assert message.finish_reason not in DEAD_REASONS, f"{place}: {message.finish_reason} shown"
    assert any(
        not isinstance(part, Reasoning) and not (isinstance(part, Text) and _blank(part.content))
        for part in message.parts
    ), f"{place}: empty assistant message"


def check_openai_chat(
    messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] = ()
) -> None:
    """The `messages` (and `tools`) of a Chat Completions request."""
    _plain_json(messages)
    assert any(m["role"] == "user" for m in messages), "no user message"
    seen: set[str] = set()
    pending: list[str] = []
    for at, message in enumerate(messages):
        place, role = f"messages[{at}]", message["role"]
        _typed(ChatCompletionMessageParam, message, place)
        assert role in ("system", "user", "assistant", "tool"), f"{place}: role {role!r}"
        assert role != "system" or at == 0, f"{place}: a system message that does not lead"
        if role == "tool":
            _answers(pending, message["tool_call_id"], place)
            assert isinstance(message["content"], str), f"{place}: tool content is not text"
            continue
        assert not pending, f"{place}: {role} message before the results of {pending}"
        content = message["content"]
        assert content != [], f"{place}: an empty list of content"
        if role == "system":
            assert not _blank(content), f"{place}: a blank system message"
        if role == "assistant":
            calls = message.get("tool_calls", [])
            assert "tool_calls" not in message or calls, f"{place}: an empty list of calls"
            assert calls or not _nothing(content), f"{place}: empty assistant message"
            pending = [call["id"] for call in calls]
            for call in calls:
                _check_name(FUNCTION_NAME, call["function"]["name"], place)
            _new_ids(seen, pending, place, longest=40)
    assert not pending, f"the end: calls {pending} have no result"
    for at, tool in enumerate(tools):
        _typed(ChatCompletionFunctionToolParam, tool, f"tools[{at}]")
        _check_tool(tool["function"]["name"], tool["function"]["parameters"], f"tools[{at}]")


def check_openai_responses(request: dict[str, Any]) -> None:
    """The `instructions`, `input` and `tools` of a Responses request."""
    _plain_json(request)
    assert request.keys() <= {"instructions", "input", "tools"}, f"fields {list(request)}"
    assert not _blank(request.get("instructions", "something")), "blank instructions"
    items = request["input"]
    assert any(item.get("role") == "user" for item in items), "no user message"
    seen: set[str] = set()
    pending: list[str] = []
    answering = False
    thinking = False
    for at, item in enumerate(items):
        place, kind = f"input[{at}]", item.get("type", "message")
        _typed(ResponseInputItemParam, item, place)
        assert (
            not thinking
            or kind in ("reasoning", "function_call")
            or (item.get("role") == "assistant")
        ), f"{place}: reasoning leads to nothing"
        thinking = kind == "reasoning"
        if kind == "function_call_output":
            answering = True
            _answers(pending, item["call_id"], place)
        elif kind == "function_call":
            assert not (answering and pending), f"{place}: a call before results of {pending}"
            answering = False
            _check_name(FUNCTION_NAME, item["name"], place)
            _new_ids(seen, [item["call_id"]], place, longest=64)
            pending.append(item["call_id"])
        elif kind == "reasoning":
            assert not (answering and pending), f"{place}: between the results of {pending}"
        else:
            assert kind == "message", f"{place}: item of type {kind!r}"
            assert not pending, f"{place}: a message before the results of {pending}"
            assert item["role"] in ("user", "assistant"), f"{place}: role {item['role']!r}"
            assert item["role"] != "assistant" or not _nothing(item["content"]), (
                f"{place}: empty assistant message"
            )
            assert item["content"] != [], f"{place}: an empty list of content"
    assert not pending, f"the end: calls {pending} have no result"
    assert not thinking, "the end: reasoning leads to nothing"
    for at, tool in enumerate(request["tools"]):
        _typed(FunctionToolParam, tool, f"tools[{at}]")
        _check_tool(tool["name"], tool["parameters"], f"tools[{at}]")


def check_anthropic(request: dict[str, Any]) -> None:
    """The `system`, `tools` and `messages` of a Messages request."""
    _plain_json(request)
    assert request.keys() == {"system", "tools", "messages"}, f"fields {list(request)}"
    for at, block in enumerate(request["system"]):
        _typed(TextBlockParam, block, f"system[{at}]")
    for at, tool in enumerate(request["tools"]):
        _typed(ToolParam, tool, f"tools[{at}]")
        _check_tool(tool["name"], tool["input_schema"], f"tools[{at}]", ANTHROPIC_NAME)
    messages = request["messages"]
    assert messages, "no message"
    assert messages[0]["role"] == "user", "the first message is not the user's"
    seen: set[str] = set()
    pending: list[str] = []
    for at, message in enumerate(messages):
        place = f"messages[{at}]"
        _typed(MessageParam, message, place)
        due = ("user", "assistant")[at % 2]
        assert message["role"] == due, f"{place}: role {message['role']!r} where {due!r} is due"
        blocks = message["content"]
        assert isinstance(blocks, list), f"{place}: content is no list of blocks"
        assert blocks, f"{place}: empty {due} message"
        if due == "user":
            _check_results_first(blocks, pending, place)
            pending = []
        else:
            _check_assistant_blocks(blocks, place)
            pending = [block["id"] for block in blocks if block["type"] == "tool_use"]
            for id in pending:
                assert ANTHROPIC_ID.fullmatch(id), f"{place}: id {id!r}"
            _new_ids(seen, pending, place, longest=64)
    assert not pending, f"the end: calls {pending} have no result"
    _check_marks(request)


def _check_results_first(blocks: list[dict[str, Any]], pending: list[str], place: str) -> None:
    waiting = list(pending)
    said = False
    for at, block in enumerate(blocks):
        here = f"{place}.content[{at}]"
        assert block["type"] in ("text", "image", "document", "search_result", "tool_result"), (
            f"{here}: a {block['type']} in a user message"
        )
        if block["type"] == "tool_result":
            assert not said, f"{here}: a result after other content"
            _answers(waiting, block["tool_use_id"], here)
            assert not _nothing(block.get("content")), f"{here}: an empty result"
        else:
            said = True
            assert not waiting, f"{here}: content before the results of {waiting}"
    assert not waiting, f"{place}: calls {waiting} have no result"


def _check_assistant_blocks(blocks: list[dict[str, Any]], place: str) -> None:
    kinds = [block["type"] for block in blocks]
    assert "thinking" not in kinds[-1], f"{place}: ends with thinking"
    for at, block in enumerate(blocks):
        here = f"{place}.content[{at}]"
        assert block["type"] not in ("tool_result", "image"), f"{here}: {block['type']}"
        if block["type"] == "tool_use":
            _check_name(ANTHROPIC_NAME, block["name"], here)
        elif "tool_use" in kinds[:at]:
            assert "thinking" in block["type"], f"{here}: {block['type']} after a call"
        if block["type"] == "thinking":
            assert block["signature"], f"{here}: thinking without a signature"


def _check_marks(request: dict[str, Any]) -> None:
    blocks = [
        *request["system"],
        *request["tools"],
        *(block for message in request["messages"] for block in message["content"]),
    ]
    for block in _nested_texts(blocks):
        assert not _blank(block["text"]), f"a blank text block: {block!r}"
    marked = [block for block in blocks if "cache_control" in block]
    assert len(marked) <= 4, f"{len(marked)} cache breakpoints"
    for block in marked:
        assert "thinking" not in block.get("type", ""), "a cache breakpoint on thinking"


def _nested_texts(blocks: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    for block in blocks:
        if block.get("type") == "text":
            yield block
        elif block.get("type") == "tool_result" and isinstance(block.get("content"), list):
            yield from _nested_texts(block["content"])


def _answers(pending: list[str], id: str, place: str) -> None:
    assert pending, f"{place}: orphan or second result of {id!r}"
    assert id == pending[0], f"{place}: result of {id!r} where {pending[0]!r} is due"
    pending.pop(0)


def _new_ids(seen: set[str], ids: Sequence[str], place: str, *, longest: int) -> None:
    for id in ids:
        assert 0 < len(id) <= longest, f"{place}: call id of {len(id)} characters"
        assert id not in seen, f"{place}: call id {id!r} was used before"
        seen.add(id)


def _check_name(pattern: re.Pattern[str], name: str, place: str) -> None:
    assert pattern.fullmatch(name), f"{place}: function name {name!r}"


def _check_tool(
    name: str, schema: dict[str, Any], place: str, pattern: re.Pattern[str] = FUNCTION_NAME
) -> None:
    _check_name(pattern, name, place)
    assert schema.get("type") == "object", f"{place}: the schema is not an object's"


def _blank(text: str) -> bool:
    return not text.strip()


def _nothing(content: Any) -> bool:
    if content is None or isinstance(content, str):
        return _blank(content or "")
    return all(_blank(part.get("text", "something")) for part in content)


def _plain_json(request: Any) -> None:
    assert json.loads(json.dumps(request, allow_nan=False)) == request, "not plain JSON"


def _typed(kind: Any, value: Any, place: str) -> None:
    """The value is of the official client's type, and has no field that the type has not."""
    try:
        known = _exhausted(_adapter(kind).validate_python(value))
    except ValidationError as error:
        raise AssertionError(f"{place}: not what the official client types: {error}") from None
    assert known == value, f"{place}: fields that the official client's type has not: {value!r}"


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _exhausted(value: Any) -> Any:
    """Pydantic validates an Iterable only as it is read."""
    if isinstance(value, dict):
        return {key: _exhausted(item) for key, item in value.items()}
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    return [_exhausted(item) for item in value]
