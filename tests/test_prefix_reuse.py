"""Where the conversation's own model summarises, its request begins as the agent's own did."""

import json
from typing import Any

import pytest

from foldlog import Section, Session, ToolCall, assistant, connect, tool_result, user
from foldlog.summarisers.choosing import summariser_of
from foldlog_events.messages import Tool
from foldlog_projections.renderers import anthropic as anthropic_messages
from foldlog_projections.renderers import openai_chat
from foldlog_projections.views import ContextView
from tests.model_server import ModelServer, Reply, Request
from tests.served_summarisers import Provider
from tests.test_compactor import GOOD as GOOD_TEXT
from tests.test_compactor import LINE
from tests.test_compactor_models import model_settings
from tests.workers import running_compactor, small_settings

ROLE = Section(name="role", text="You are an analyst.")
TOOL = Tool(name="figures", description="Figures of a show.", parameters={"type": "object"})


@pytest.fixture(params=["openai", "anthropic"])
def provider(request: pytest.FixtureRequest) -> Provider:
    return Provider(request.param)


async def talk_as(session: Session, model: str) -> ContextView:
    """Turns with a call each; the context of the agent's last request."""
    await session.prepare([ROLE], [TOOL])
    for turn in range(18):
        call = ToolCall(id=f"call-{turn}", name="figures", arguments={"show": turn})
        await session.append(user(f"Question {turn}: {LINE}"))
        found = tool_result(call.id, f"show {turn}: 12{turn:02} orders. {LINE}")
        await session.append(assistant("", call, model=model), found)
        view = await session.prepare([ROLE], [TOOL])
        await session.append(assistant(f"Show {turn} had 12{turn:02} orders.", model=model))
    return view


def own_request(provider: Provider, view: ContextView) -> dict[str, Any]:
    if provider.name == "openai":
        return {"messages": openai_chat.render(view), "tools": openai_chat.tools(view)}
    return anthropic_messages.render(view)


def in_order(body: dict[str, Any]) -> bytes:
    """What a provider's cache is keyed by: tools, system and messages, without the marks."""

    def bare(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: bare(one) for key, one in value.items() if key != "cache_control"}
        return [bare(one) for one in value] if isinstance(value, list) else value

    parts = [body.get("tools") or [], body.get("system") or [], *body["messages"]]
    return b"\n".join(json.dumps(bare(part)).encode() for part in parts)


def shared(one: bytes, other: bytes) -> int:
    return next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )


async def summarised(
    url: str, provider: Provider, answer: Any, model: str = "served-model", **settings: Any
) -> tuple[ContextView, list[Request], str]:
    """The agent's last context, what the summariser asked for, and how the attempt ended."""
    async with ModelServer(answer) as server, connect(url) as foldlog:
        session = foldlog.session("c")
        view = await talk_as(session, model)
        of_process = small_settings(summariser=model_settings(provider, server, **settings))
        async with running_compactor(url, of_process, summariser_of(of_process)):
            ended = await session.compact("Heed the shows.", within=30)
        return view, server.requests, ended.state


async def test_the_request_begins_with_the_agents_own_up_to_the_cut(
    nats_url: str, provider: Provider
) -> None:
    view, requests, state = await summarised(nats_url, provider, [provider.answer(GOOD_TEXT)])
    assert state == "committed"
    (request,) = requests
    own, asked = in_order(own_request(provider, view)), in_order(request.body)
    *_, last = request.body["messages"]
    wish = last["content"] if isinstance(last["content"], str) else last["content"][-1]["text"]
    assert "write the summary from which the work will go on" in wish
    assert "Heed the shows." in wish
    before_the_wish = asked.index(json.dumps(wish)[1:40].encode())
    assert before_the_wish > 2_000
    assert shared(own, asked) >= before_the_wish - 60
    assert "response_format" not in request.body
    assert "output_config" not in request.body


@pytest.mark.parametrize("why", ["another model", "the setting", "a window"])
async def test_else_the_source_is_fenced_text(nats_url: str, provider: Provider, why: str) -> None:
    answer = [provider.answer(GOOD_TEXT)]
    model = "another-model" if why == "another model" else "served-model-2026-01-01"
    settings: dict[str, Any] = {}
    if why == "the setting":
        settings["reuse_prefix"] = False
    if why == "a window":
        settings |= {"window": 2_650, "spare_output_tokens": 500}
    _, requests, _ = await summarised(nats_url, provider, answer, model, **settings)
    assert "<conversation>" in requests[0].prompt


async def test_a_model_that_goes_on_with_the_work_is_asked_about_fenced_text(
    nats_url: str, provider: Provider
) -> None:
    def answer(request: Request) -> Reply:
        fenced = "<conversation>" in request.prompt
        return provider.answer(GOOD_TEXT if fenced else "Show 18 will be better.")

    _, requests, state = await summarised(nats_url, provider, answer)
    assert state == "committed"
    first, *others = ["<conversation>" in one.prompt for one in requests]
    assert (first, all(others), len(others) > 0) == (False, True, True)


async def test_an_overflow_of_the_prefix_leads_to_fenced_chunks(
    nats_url: str, provider: Provider
) -> None:
    def answer(request: Request) -> Reply:
        if "<conversation>" not in request.prompt:
            return provider.error(400, "prompt is too long: 9000 tokens > 4000 maximum")
        return provider.answer(GOOD_TEXT)

    _, requests, state = await summarised(nats_url, provider, answer)
    assert state == "committed"
    first, *others = ["<conversation>" in one.prompt for one in requests]
    assert (first, all(others), len(others) > 0) == (False, True, True)
