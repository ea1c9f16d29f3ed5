"""Summarisers over a server on loopback, and a small range for them to summarise."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from foldlog.summarisers import Summariser, SummaryRequest
from foldlog.summarisers.anthropic import AnthropicSettings, AnthropicSummariser
from foldlog.summarisers.openai import OpenAISettings, OpenAISummariser
from foldlog_events.messages import Message, assistant, user
from foldlog_projections.summary_source import SourceMessage, StructuredSummary
from tests.model_server import (
    Answer,
    ModelServer,
    Reply,
    anthropic_answer,
    anthropic_error,
    openai_answer,
    openai_error,
)

GOOD = StructuredSummary(
    goal="Explain the fall in sales",
    constraints=("only new products",),
    progress=("looked at CHF 1,204.50",),
    decisions=(),
    next_steps=("compare with last week",),
    critical_context=(),
)
GOOD_JSON = msgspec.json.encode(GOOD).decode()
FILLER = "The show went on and the presenter talked about many things for quite some time. "


def sources(*said: Message) -> tuple[SourceMessage, ...]:
    return tuple(SourceMessage(f"e{at}", at, one) for at, one in enumerate(said, start=1))


ASKED = SummaryRequest(
    messages=sources(
        user("Explain the fall in sales, only new products. " + FILLER * 20),
        assistant("I looked at CHF 1,204.50 and will compare with last week."),
    )
)


class Provider:
    """One of the two protocols, with what differs between them."""

    def __init__(self, name: str) -> None:
        self.name = name
        openai = name == "openai"
        self.answer: Callable[..., Reply] = openai_answer if openai else anthropic_answer
        self.error: Callable[..., Reply] = openai_error if openai else anthropic_error

    def summariser(
        self, server: ModelServer, **settings: Any
    ) -> OpenAISummariser | AnthropicSummariser:
        given: dict[str, Any] = {
            "model": "m",
            "api_key": "k",
            "timeout": 20.0,
            "retries": 0,
        } | settings
        if self.name == "openai":
            url = server.openai_url
            return OpenAISummariser(OpenAISettings(base_url=url, **given))
        return AnthropicSummariser(AnthropicSettings(base_url=server.anthropic_url, **given))


@asynccontextmanager
async def served(
    provider: Provider, answer: Answer | list[Reply], **settings: Any
) -> AsyncIterator[tuple[ModelServer, Summariser]]:
    async with ModelServer(answer) as server:
        summariser = provider.summariser(server, **settings)
        try:
            yield server, summariser
        finally:
            await summariser.close()
