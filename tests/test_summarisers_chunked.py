"""Folding what is larger than the summariser's window, over HTTP. Design §8.3; cases 23, 24."""

import re

import msgspec
import pytest

from foldlog.summarisers import (
    SummariserMisconfigured,
    SummariserOverflow,
    SummaryRequest,
)
from foldlog.summarisers.chunked import Chunked
from foldlog_events.messages import Usage, assistant, user
from foldlog_projections.tokens import estimate_text
from tests.model_server import (
    Answer,
    Reply,
    Request,
)
from tests.served_summarisers import ASKED, FILLER, GOOD, GOOD_JSON, Provider, served, sources


@pytest.fixture(params=["openai", "anthropic"])
def provider(request: pytest.FixtureRequest) -> Provider:
    return Provider(request.param)


def facts_of(prompt: str) -> list[str]:
    return sorted(set(re.findall(r"PRODUCT-\d{4}", prompt)))


def collecting(provider: Provider, window: int | None = None) -> Answer:
    """A model that keeps every product id it reads, and refuses more than its window holds."""

    def answer(request: Request) -> Reply:
        prompt = request.prompt
        if window is not None and estimate_text(prompt) > window:
            wording = "prompt is too long: 9999 tokens > 999 maximum"
            return provider.error(400, wording)
        kept = msgspec.structs.replace(GOOD, progress=tuple(facts_of(prompt)), critical_context=())
        return provider.answer(msgspec.json.encode(kept).decode())

    return answer


LONG = tuple(
    user(f"PRODUCT-{at:04} {FILLER * 10}") if at % 2 else assistant(f"PRODUCT-{at:04} {FILLER}")
    for at in range(40)
)
ALL = tuple(f"PRODUCT-{at:04}" for at in range(40))


async def test_case_24_input_over_the_window_is_folded_in_chunks(provider: Provider) -> None:
    asked = SummaryRequest(messages=sources(*LONG), budget=700)
    window = 4_000
    async with served(provider, collecting(provider, window - 700 - 175)) as (server, inner):
        result = await Chunked(inner, window=window).summarise(asked)
    assert result.structured is not None
    assert result.structured.progress == ALL
    assert len(server.requests) > 2
    assert result.calls == len(server.requests)
    assert result.usage == Usage(
        input_tokens=60 * result.calls,
        cache_read_tokens=40 * result.calls,
        output_tokens=20 * result.calls,
    )
    assert all(request.prompt.count("<previous-summary>") <= 1 for request in server.requests)
    assert "<previous-summary>" in server.requests[-1].prompt


async def test_an_unknown_window_is_found_out(provider: Provider) -> None:
    asked = SummaryRequest(messages=sources(*LONG), budget=700)
    async with served(provider, collecting(provider, 2_500)) as (server, inner):
        result = await Chunked(inner).summarise(asked)
    assert result.structured is not None
    assert result.structured.progress == ALL
    assert 3 < len(server.requests) < 20


async def test_case_23_one_message_over_the_window_is_read_in_pieces(provider: Provider) -> None:
    said = user(" ".join(f"PRODUCT-{at:04} {FILLER * 3}" for at in range(40)))
    asked = SummaryRequest(messages=sources(said), budget=700)
    async with served(provider, collecting(provider, 3_200)) as (_, inner):
        result = await Chunked(inner, window=4_000).summarise(asked)
    assert result.structured is not None
    assert result.structured.progress == ALL


async def test_input_within_the_window_takes_one_call(provider: Provider) -> None:
    async with served(provider, [provider.answer(GOOD_JSON)]) as (server, inner):
        await Chunked(inner, window=100_000).summarise(ASKED)
    assert len(server.requests) == 1


async def test_a_window_too_small_for_anything_is_an_overflow(provider: Provider) -> None:
    async with served(provider, [provider.answer(GOOD_JSON)]) as (server, inner):
        with pytest.raises(SummariserOverflow, match="larger window"):
            await Chunked(inner, window=3_000).summarise(ASKED)
    assert server.requests == []


async def test_a_model_that_always_overflows_is_asked_a_bounded_number_of_times(
    provider: Provider,
) -> None:
    asked = SummaryRequest(messages=sources(*LONG))
    async with served(provider, collecting(provider, 0)) as (server, inner):
        with pytest.raises(SummariserOverflow) as failed:
            await Chunked(inner).summarise(asked)
    assert len(server.requests) <= 5
    assert failed.value.calls == len(server.requests)


async def test_a_chunk_that_fails_ends_the_fold_with_what_it_cost(provider: Provider) -> None:
    cut = "length" if provider.name == "openai" else "max_tokens"
    reason = "finish_reason" if provider.name == "openai" else "stop_reason"
    replies = [provider.answer(GOOD_JSON), provider.answer("{", **{reason: cut})]
    asked = SummaryRequest(messages=sources(*LONG), budget=700)
    async with served(provider, replies) as (server, inner):
        result = await Chunked(inner, window=4_000).summarise(asked)
    assert (result.finish_reason, result.calls, len(server.requests)) == ("length", 2, 2)
    failing = [provider.answer(GOOD_JSON), provider.error(401, "key withdrawn")]
    async with served(provider, failing) as (_, inner):
        with pytest.raises(SummariserMisconfigured) as failed:
            await Chunked(inner, window=4_000).summarise(asked)
    assert failed.value.calls == 2
    assert failed.value.usage is not None


async def test_a_split_turn_is_summarised_apart_and_merged(provider: Provider) -> None:
    asked = SummaryRequest(
        messages=sources(user("PRODUCT-0001 of the history")),
        turn_prefix=sources(user("PRODUCT-0002 of the turn")),
        previous_summary=GOOD.to_text(),
    )
    async with served(provider, collecting(provider)) as (server, inner):
        result = await Chunked(inner).summarise(asked)
    history, turn = (facts_of(request.prompt) for request in server.requests)
    assert (history, turn) == (["PRODUCT-0001"], ["PRODUCT-0002"])
    assert "<previous-summary>" not in server.requests[1].prompt
    assert result.structured is not None
    assert result.structured.progress == ("PRODUCT-0001", "PRODUCT-0002")
    assert result.text == result.structured.to_text()
    assert result.calls == 2


async def test_a_split_turn_after_a_summary_alone_costs_one_call(provider: Provider) -> None:
    asked = SummaryRequest(
        messages=(),
        turn_prefix=sources(user("PRODUCT-0002 of the turn")),
        previous_summary=GOOD.to_text(),
    )
    async with served(provider, collecting(provider)) as (server, inner):
        result = await Chunked(inner).summarise(asked)
    assert len(server.requests) == 1
    assert result.structured is not None
    assert result.structured.progress == (*GOOD.progress, "PRODUCT-0002")
