"""Reasoning and other parts that carry a provider's own form."""

from typing import Any

import pytest

from foldlog_events.messages import (
    File,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolCallResponse,
    Uri,
    assistant,
    tool_result,
    user,
)
from tests.renderings import (
    BARE,
    REASONED,
    REDACTED,
    THINKING,
    UNSIGNED,
    asked,
    blocks,
    call,
    chat,
    own,
    responses,
    said,
    text,
)


@pytest.mark.parametrize(
    ("reasoning", "to_anthropic", "to_responses"),
    [
        ((THINKING,), 1, 0),
        ((THINKING, REDACTED), 2, 0),
        ((REASONED,), 0, 1),
        ((THINKING, BARE), 0, 0),
        ((THINKING, UNSIGNED), 0, 0),
        ((THINKING, REASONED), 0, 0),
        ((BARE,), 0, 0),
    ],
)
def test_reasoning_is_sent_whole_or_not_at_all(
    reasoning: tuple[Reasoning, ...], to_anthropic: int, to_responses: int
) -> None:
    history = (user("go"), said(*reasoning, Text(content="so"), call()), tool_result("c1", "r"))
    sent = [r.payload.data for r in reasoning if r.payload]
    kept = [b for _, b in blocks(*history) if "thinking" in b["type"]]
    assert kept == sent[:to_anthropic]
    items = [i for i in responses(*history) if i.get("type") == "reasoning"]
    assert items == sent[:to_responses]
    assert "hm" not in str(chat(*history))


@pytest.mark.parametrize("reasoning", [THINKING, REASONED])
def test_reasoning_that_leads_to_nothing_is_left_out(reasoning: Reasoning) -> None:
    history = (user("go"), said(reasoning, Text(content="so"), reasoning, Text(content=" ")))
    assert blocks(*history)[1:] == [("assistant", text("so"))]
    assert responses(*history)[1:] == [{"role": "assistant", "content": "so"}]


def test_a_providers_own_form_is_sent_as_it_was_to_that_provider_only() -> None:
    spoken = {"type": "text", "text": "own", "citations": None}
    used = {"type": "tool_use", "id": "c1", "name": "own", "input": {"x": 1}}
    history = (
        user("go"),
        said(
            Text(content="neutral", payload=own("anthropic", **spoken)),
            ToolCall(id="c1", name="read", payload=own("anthropic", **used)),
        ),
        tool_result("c1", "r"),
        assistant("", ToolCall(id="c1", name="read", payload=own("anthropic", **used))),
        tool_result("c1", "r"),
    )
    assert [b for _, b in blocks(*history)[1:3]] == [spoken, used]
    assert blocks(*history)[4][1] == used | {"id": "c1-2"}
    assert chat(*history)[1]["content"] == "neutral"
    assert responses(*history)[2]["name"] == "read"


def test_openai_forms_are_sent_where_the_api_has_them() -> None:
    item = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "own", "annotations": []}],
    }
    asking = {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "c1",
        "name": "read",
        "arguments": "{ }",
    }
    parts = (
        Text(content="neutral", payload=own("openai", **item)),
        ToolCall(id="c1", name="read", payload=own("openai", **asking)),
    )
    whole = (user("go"), said(REASONED, *parts), tool_result("c1", "r"))
    assert responses(*whole)[1:4] == [REASONED.payload and REASONED.payload.data, item, asking]
    assert chat(*whole)[1]["content"] == "neutral"

    without = (user("go"), said(BARE, *parts), tool_result("c1", "r"))
    assert responses(*without)[1:3] == [
        {"role": "assistant", "content": "neutral"},
        {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"},
    ]

    function = {"name": "own", "arguments": "{ }"}
    in_chat = {"type": "function", "id": "c1", "function": function}
    made = said(ToolCall(id="c1", name="read", payload=own("openai", **in_chat)))
    assert chat(user("go"), made, tool_result("c1", "r"))[1]["tool_calls"] == [in_chat]


@pytest.mark.parametrize(
    "data",
    [
        {"type": "tool_use", "id": "zz", "name": "x", "input": {}},
        {"type": "text"},
        {"type": "text", "text": " "},
        {"type": ["text"]},
        {},
    ],
)
def test_a_form_that_does_not_fit_its_place_is_not_sent(data: dict[str, Any]) -> None:
    part = Text(content="neutral", payload=own("anthropic", **data))
    assert blocks(user("go"), said(part))[-1] == ("assistant", text("neutral"))


def test_cache_marks_of_an_earlier_request_are_not_sent_again() -> None:
    marked = own("anthropic", type="text", text="own", cache_control={"type": "ephemeral"})
    history = [asked(Text(content="own", payload=marked)) for _ in range(9)]
    assert blocks(*history) == [("user", text("own"))] * 9


def test_openai_forms_of_what_people_wrote() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://x/1", "detail": "low"}}
    written = asked(
        Text(content="a", payload=own("openai", type="text", text="chat's")),
        Text(content="b", payload=own("openai", type="input_text", text="responses'")),
        File(file_id="f", payload=own("openai", type="input_file", file_id="f", detail="low")),
        Uri(uri="https://x/1", payload=own("openai", **image)),
    )
    assert chat(written)[0]["content"] == [
        text("chat's"),
        text("b"),
        {"type": "file", "file": {"file_id": "f"}},
        image,
    ]
    assert responses(written)[0]["content"] == [
        {"type": "input_text", "text": "a"},
        {"type": "input_text", "text": "responses'"},
        {"type": "input_file", "file_id": "f", "detail": "low"},
        {"type": "input_text", "text": "[content at https://x/1]"},
    ]


def test_a_results_own_form_never_hides_an_edit() -> None:
    stale = own("anthropic", type="tool_result", tool_use_id="c1", content="long")
    edited = ToolCallResponse(id="c1", result="short", payload=stale)
    history = (user("go"), assistant("", call()), Message(role="tool", parts=(edited,)))
    assert blocks(*history)[-1][1]["content"] == "short"
