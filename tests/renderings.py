"""Short ways to write views, their renderings (checked as they are made) and blocks."""

from typing import Any

from foldlog_events.entries import BaseVersion
from foldlog_events.messages import (
    AnyPart,
    Content,
    Message,
    ProviderPayload,
    Reasoning,
    Text,
    Tool,
    ToolCall,
    ToolCallResponse,
)
from foldlog_projections.renderers import anthropic, openai_chat, openai_responses
from foldlog_projections.views import ContextView
from tests.validity import (
    check_anthropic,
    check_neutral,
    check_openai_chat,
    check_openai_responses,
)

PNG = "iVBORw0KGgo="


def view_of(*messages: Message, tools: tuple[Tool, ...] = ()) -> ContextView:
    return ContextView(
        tenant="t",
        conversation="c",
        version=1,
        base_version=BaseVersion(log=1, shape=0),
        head=None,
        tokens=0,
        estimated_tokens=0,
        digest="sha256:" + "0" * 64,
        messages=messages,
        tools=tools,
    )


def chat(*messages: Message) -> list[dict[str, Any]]:
    view = view_of(*messages)
    check_neutral(view)
    rendered = openai_chat.render(view)
    check_openai_chat(rendered)
    return rendered


def responses(*messages: Message) -> list[dict[str, Any]]:
    view = view_of(*messages)
    check_neutral(view)
    rendered = openai_responses.render(view)
    check_openai_responses(rendered)
    items: list[dict[str, Any]] = rendered["input"]
    return items


def blocks(*messages: Message) -> list[tuple[str, dict[str, Any]]]:
    """The Anthropic rendering as (role, block) pairs."""
    view = view_of(*messages)
    check_neutral(view)
    check_anthropic(anthropic.render(view))
    rendered = anthropic.render(view, cache_breakpoints=False)
    check_anthropic(rendered)
    return flat(rendered)


def flat(request: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(m["role"], block) for m in request["messages"] for block in m["content"]]


def system(*texts: str) -> Message:
    return Message(role="system", parts=tuple(Text(content=text) for text in texts))


def said(*parts: AnyPart) -> Message:
    return Message(role="assistant", parts=parts, finish_reason="stop")


def asked(*parts: AnyPart) -> Message:
    return Message(role="user", parts=parts)


def returned(id: str, *result: Content, is_error: bool = False) -> Message:
    return Message(role="tool", parts=(ToolCallResponse(id=id, result=result, is_error=is_error),))


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "text": content}


def call(id: str = "c1", **arguments: Any) -> ToolCall:
    return ToolCall(id=id, name="read", arguments=arguments)


def own(provider: str, **data: Any) -> ProviderPayload:
    return ProviderPayload(provider=provider, data=data)


THINKING = Reasoning(
    content="hm", payload=own("anthropic", type="thinking", thinking="hm", signature="sig")
)
REDACTED = Reasoning(content="", payload=own("anthropic", type="redacted_thinking", data="xx"))
REASONED = Reasoning(content="hm", payload=own("openai", type="reasoning", id="rs_1", summary=[]))
UNSIGNED = Reasoning(
    content="hm", payload=own("anthropic", type="thinking", thinking="hm", signature="")
)
BARE = Reasoning(content="hm")


BASE64 = {"type": "base64", "media_type": "image/png", "data": PNG}
DATA_URL = f"data:image/png;base64,{PNG}"
WEB = "https://example.org/a.png"
