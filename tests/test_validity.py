"""The checks of requests refuse what the APIs refuse: each case breaks one rule."""

from collections.abc import Callable
from typing import Any

import pytest

from foldlog_events.messages import (
    Message,
    Reasoning,
    Text,
    ToolCall,
    assistant,
    tool_result,
    user,
)
from tests.renderings import PNG, said, system, text, view_of
from tests.validity import (
    check_anthropic,
    check_neutral,
    check_openai_chat,
    check_openai_responses,
)

ASK: dict[str, Any] = {"role": "user", "content": "go"}
CALLS = assistant("", ToolCall(id="a", name="f"), ToolCall(id="b", name="f"))


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ((CALLS, tool_result("a", "")), "have no result"),
        ((CALLS, tool_result("b", ""), tool_result("a", "")), "where 'a' is due"),
        ((CALLS, tool_result("a", ""), user("x"), tool_result("b", "")), "before the results"),
        ((tool_result("a", ""),), "orphan"),
        ((CALLS, *[tool_result(id, "") for id in "abb"]), "orphan"),
        ((said(Reasoning(content="x"), Text(content=" ")),), "empty assistant"),
        ((assistant("x", finish_reason="aborted"),), "aborted"),
        ((user("x"), Message(role="user", parts=())), "without parts"),
        ((Message(role="user", parts=(ToolCall(id="a", name="f"),)),), "a call in"),
        ((assistant("", *[ToolCall(id="a", name="f")] * 2),), "twice"),
    ],
)
def test_neutral(messages: tuple[Message, ...], reason: str) -> None:
    with pytest.raises(AssertionError, match=reason):
        check_neutral(view_of(*messages))


def asking(*ids: str, **more: Any) -> dict[str, Any]:
    function = {"name": "f", "arguments": "{}"}
    calls = [{"id": id, "type": "function", "function": function} for id in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls, **more}


def answer(id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": "r"}


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([{"role": "system", "content": "s"}], "no user message"),
        ([ASK, {"role": "system", "content": "s"}], "does not lead"),
        ([ASK, asking("a")], "have no result"),
        ([ASK, asking("a"), ASK, answer("a")], "before the results"),
        ([ASK, asking("a", "b"), answer("b"), answer("a")], "where 'a' is due"),
        ([ASK, asking("a"), answer("a"), answer("a")], "orphan or second"),
        ([ASK, asking("a"), answer("a"), asking("a"), answer("a")], "used before"),
        ([ASK, asking("a" * 41), answer("a" * 41)], "41 characters"),
        ([ASK, asking()], "empty list of calls"),
        ([ASK, {"role": "assistant", "content": " "}], "empty assistant"),
        ([ASK, {"role": "assistant", "content": []}], "empty list of content"),
        ([{"role": "user", "content": [{"type": "image"}]}], "official client"),
        ([ASK | {"extra": 1}], "has not"),
        ([ASK | {"content": [{**text("x"), "extra": 1}]}], "has not"),
        ([ASK | {"content": ("x",)}], "not plain JSON"),
    ],
)
def test_openai_chat(messages: list[dict[str, Any]], reason: str) -> None:
    with pytest.raises(AssertionError, match=reason):
        check_openai_chat(messages)


def function_call(id: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"}


def output(id: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": id, "output": "r"}


REASONING: dict[str, Any] = {"type": "reasoning", "id": "rs", "summary": []}


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ([], "no user message"),
        ([ASK, function_call("a")], "have no result"),
        ([ASK, function_call("a"), ASK, output("a")], "before the results"),
        ([ASK, function_call("a"), function_call("b"), output("b")], "where 'a' is due"),
        ([ASK, function_call("a"), function_call("b"), output("a"), function_call("c")], "before"),
        ([ASK, output("a")], "orphan"),
        ([ASK, function_call("a"), output("a"), function_call("a")], "used before"),
        ([ASK, REASONING], "leads to nothing"),
        ([ASK, REASONING, ASK], "leads to nothing"),
        ([ASK, {"role": "assistant", "content": ""}], "empty assistant"),
        ([ASK, {"role": "system", "content": "x"}], "role 'system'"),
        ([ASK, {"type": "reasoning", "id": "rs"}], "official client"),
    ],
)
def test_openai_responses(items: list[dict[str, Any]], reason: str) -> None:
    with pytest.raises(AssertionError, match=reason):
        check_openai_responses({"input": items, "tools": []})


def use(id: str, name: str = "f") -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": {}}


def result(id: str, content: Any = "r") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": content}


GO = text("go")
MARKED = GO | {"cache_control": {"type": "ephemeral"}}
SIGNED = {"type": "thinking", "thinking": "x", "signature": "s"}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}


@pytest.mark.parametrize(
    ("contents", "reason"),
    [
        ([], "no message"),
        ([[]], "empty user"),
        ([[GO], []], "empty assistant"),
        ([[text(" ")]], "blank text"),
        ([[GO], [use("a")], [result("a", [text("")])]], "empty result"),
        ([[GO], [use("a")], [result("a", [IMAGE, text("")])]], "blank text"),
        ([[GO], [use("a")]], "have no result"),
        ([[GO], [use("a")], [GO, result("a")]], "before the results"),
        ([[GO], [use("a")], [result("a"), GO, result("a")]], "after other content"),
        ([[GO], [use("a"), use("b")], [result("a")]], "have no result"),
        ([[GO], [use("a"), use("b")], [result("b"), result("a")]], "where 'a' is due"),
        ([[result("a")]], "orphan"),
        ([[GO], [use("a")], [result("a")], [use("a")], [result("a")]], "used before"),
        ([[GO], [use("a.b")], [result("a.b")]], "id 'a.b'"),
        ([[GO], [use("a", "f.g")], [result("a")]], "function name"),
        ([[GO], [use("a"), GO], [result("a")]], "after a call"),
        ([[GO], [GO, SIGNED]], "ends with thinking"),
        ([[GO], [SIGNED | {"signature": ""}, GO]], "without a signature"),
        ([[MARKED] * 5], "5 cache breakpoints"),
        ([[SIGNED]], "a thinking in a user message"),
        ([[GO | {"extra": 1}]], "has not"),
        ([[{"type": "text"}]], "official client"),
    ],
)
def test_anthropic(contents: list[list[dict[str, Any]]], reason: str) -> None:
    messages = [
        {"role": ("user", "assistant")[at % 2], "content": content}
        for at, content in enumerate(contents)
    ]
    with pytest.raises(AssertionError, match=reason):
        check_anthropic({"system": [], "tools": [], "messages": messages})


def test_anthropic_roles_alternate() -> None:
    asked = {"role": "user", "content": [GO]}
    with pytest.raises(AssertionError, match="where 'assistant' is due"):
        check_anthropic({"system": [], "tools": [], "messages": [asked, asked]})
    told = {"role": "assistant", "content": [GO]}
    with pytest.raises(AssertionError, match="not the user's"):
        check_anthropic({"system": [], "tools": [], "messages": [told]})


@pytest.mark.parametrize(
    ("check", "tool"),
    [
        (
            lambda tool: check_anthropic(
                {"system": [], "tools": [tool], "messages": [{"role": "user", "content": [GO]}]}
            ),
            {"name": "f.g", "input_schema": {"type": "object"}},
        ),
        (
            lambda tool: check_openai_responses({"input": [ASK], "tools": [tool]}),
            {"type": "function", "name": "f", "parameters": {}, "strict": False},
        ),
        (
            lambda tool: check_openai_chat([ASK], [tool]),
            {"type": "function", "function": {"name": "", "parameters": {"type": "object"}}},
        ),
    ],
)
def test_tools(check: Callable[[dict[str, Any]], None], tool: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match=r"function name|not an object"):
        check(tool)


def test_a_valid_view_passes() -> None:
    check_neutral(
        view_of(system("s"), user("x"), CALLS, tool_result("a", ""), tool_result("b", ""))
    )
