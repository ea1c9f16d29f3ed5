"""Compactors whose summaries a model makes, over real HTTP, from settings to the record."""

import asyncio
import json
from typing import Any

import pytest

from foldlog import Session, connect
from foldlog.attempt_log import AttemptLog
from foldlog.settings import Settings, load
from foldlog.summarisers.choosing import summariser_of
from foldlog_projections.attempts import CompactionRecord
from foldlog_projections.pressure import assess
from tests.model_server import (
    ModelServer,
    Reply,
    Request,
    anthropic_answer,
    anthropic_error,
    openai_answer,
    openai_error,
)
from tests.served_summarisers import Provider
from tests.test_compactor import LINE, POLICY, talk
from tests.workers import Gated, running_compactor, small_settings

GOOD = {
    "goal": "Find out how the shows went.",
    "constraints": ["Only what the tools say."],
    "progress": ["Show 3 had 1203 orders."],
    "decisions": [],
    "next_steps": ["Ask for the next show."],
    "critical_context": [],
}


@pytest.fixture(params=["openai", "anthropic"])
def provider(request: pytest.FixtureRequest) -> Provider:
    return Provider(request.param)


def model_settings(provider: Provider, server: ModelServer, **values: Any) -> dict[str, Any]:
    url = server.openai_url if provider.name == "openai" else server.anthropic_url
    return {
        "kind": provider.name,
        "model": "served-model",
        "api_key": "k",
        "base_url": url,
        "retries": 0,
        "timeout": 2.0,
        "deadline": 3.0,
        **values,
    }


async def compacted(
    url: str, provider: Provider, answer: Any, *, turns: int = 12, **settings: Any
) -> tuple[CompactionRecord, ModelServer, bool]:
    """One manual compaction with the summariser of settings; whether the view is as it was."""
    async with ModelServer(answer) as server, connect(url) as foldlog:
        session = foldlog.session("c")
        await talk(session, turns)
        before = await session.context()
        of_process = small_settings(
            summariser=model_settings(provider, server, **settings.pop("summariser", {})),
            **settings,
        )
        async with running_compactor(url, of_process, summariser_of(of_process)):
            ended = await session.compact(within=30)
        return ended, server, await session.context() == before


async def test_settings_from_the_environment_reach_the_model_and_its_summary_the_context(
    nats_url: str, provider: Provider
) -> None:
    async with ModelServer([provider.answer(json.dumps(GOOD))]) as server:
        settings = load(
            environment={
                "FOLDLOG_SUMMARISER": json.dumps(model_settings(provider, server)),
                "FOLDLOG_POLICY": '{"preset": "default", "window": 4000}',
                "FOLDLOG_PRICES": '{"served-model": {"input": 3, "output": 15, "cache_read": 0.5}}',
            }
        )
        async with connect(nats_url) as foldlog:
            session = foldlog.session("c")
            await talk(session, 12)
            async with running_compactor(nats_url, settings, summariser_of(settings)):
                ended = await session.compact("Heed the shows.", within=30)
            assert ended.state == "committed", ended
            view = await session.context()
    assert "Show 3 had 1203 orders." in str(view.messages[0])
    assert "Heed the shows." in server.requests[0].prompt
    assert ended.model == "served-model"
    assert ended.calls == len(server.requests) == 1
    assert ended.usage is not None
    assert (ended.usage.input_tokens, ended.usage.cache_read_tokens) == (60, 40)
    assert ended.cost == pytest.approx((60 * 3 + 20 * 15 + 40 * 0.5) / 1_000_000)


REFUSAL = "I cannot help with that."
TOOL = [{"id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}]

OPENAI: dict[str, tuple[Reply, str]] = {
    "a refusal": (openai_answer(None, refusal=REFUSAL), "SummariserRefused"),
    "cut at the limit": (openai_answer(json.dumps(GOOD), finish_reason="length"), "unfinished"),
    "a filter": (openai_answer("", finish_reason="content_filter"), "SummariserRefused"),
    "a tool call": (openai_answer(None, finish_reason="tool_calls", tool_calls=TOOL), "tool_call"),
    "a rate limit": (openai_error(429, "Rate limit reached"), "SummariserUnavailable"),
    "a server's error": (openai_error(500, "Oops"), "SummariserUnavailable"),
    "an overflow": (
        openai_error(
            400,
            "The input exceeds the maximum allowed input length of 1024 tokens.",
        ),
        "SummariserOverflow",
    ),
    "no key": (openai_error(401, "Incorrect API key provided"), "SummariserMisconfigured"),
}
ANTHROPIC: dict[str, tuple[Reply, str]] = {
    "a refusal": (anthropic_answer("No.", stop_reason="refusal"), "SummariserRefused"),
    "cut at the limit": (
        anthropic_answer(json.dumps(GOOD), stop_reason="max_tokens"),
        "unfinished",
    ),
    "a tool call": (
        anthropic_answer(
            None,
            stop_reason="tool_use",
            blocks=[{"type": "tool_use", "id": "t", "name": "f", "input": {}}],
        ),
        "tool_call",
    ),
    "a rate limit": (
        anthropic_error(429, "Too many requests", "rate_limit_error"),
        "SummariserUnavailable",
    ),
    "too busy": (anthropic_error(529, "Overloaded", "overloaded_error"), "SummariserUnavailable"),
    "an overflow": (
        anthropic_error(400, "prompt is too long: 9000 tokens > 4000 maximum"),
        "SummariserOverflow",
    ),
    "a full window": (
        anthropic_answer("## Goal", stop_reason="model_context_window_exceeded"),
        "SummariserOverflow",
    ),
    "no key": (
        anthropic_error(401, "invalid x-api-key", "authentication_error"),
        "SummariserMisconfigured",
    ),
}
BOTH: dict[str, tuple[Reply, str]] = {
    "silence": (Reply(stand_still=True, send=0), "SummariserUnavailable"),
    "a trickle": (Reply(body=b"{" * 4_000, trickle=True), "SummariserUnavailable"),
    "a dropped connection": (Reply(break_off=True, send=0), "SummariserUnavailable"),
    "a connection dropped midway": (
        Reply(body=b"{" * 400, send=20, break_off=True),
        "SummariserUnavailable",
    ),
    "no JSON": (Reply(body=b"<html>hello</html>"), "Summariser"),
}
CASES = [
    (name, what, *case)
    for name, cases in (("openai", OPENAI | BOTH), ("anthropic", ANTHROPIC | BOTH))
    for what, case in cases.items()
]


@pytest.mark.parametrize(
    ("name", "what", "reply", "reason"), CASES, ids=[f"{case[0]}-{case[1]}" for case in CASES]
)
async def test_20_whatever_a_provider_does_ends_in_a_named_reason_and_the_view_stays(
    nats_url: str, name: str, what: str, reply: Reply, reason: str
) -> None:
    ended, server, unchanged = await compacted(nats_url, Provider(name), [reply])
    assert ended.state == "failed", ended
    assert ended.reason.startswith(reason), ended.reason
    assert unchanged
    assert 1 <= len(server.requests) <= 10


async def test_answers_without_any_json_or_sections_are_refused(
    nats_url: str, provider: Provider
) -> None:
    """Rubbish, an echo of the last message, and a summary that invents a figure twice."""
    invented = dict(GOOD, progress=["Show 3 had 987654 orders."])
    for said, reason, calls in (
        ("lorem ipsum", "section_missing", 1),
        (f"Question 1: {LINE}", "section_missing", 1),
        (json.dumps(invented), "ungrounded", 2),
        ("", "empty", 1),
    ):
        ended, server, unchanged = await compacted(nats_url, provider, [provider.answer(said)])
        assert (ended.state, unchanged) == ("failed", True)
        assert reason in ended.reason
        assert len(server.requests) == ended.calls == calls
        assert ended.usage is not None
        assert ended.usage.output_tokens == 20 * calls


async def test_a_model_that_invents_once_is_told_and_asked_again(
    nats_url: str, provider: Provider
) -> None:
    invented = dict(GOOD, progress=["Show 3 had 987654 orders."])
    replies = [provider.answer(json.dumps(one)) for one in (invented, GOOD)]
    ended, server, unchanged = await compacted(nats_url, provider, replies)
    assert (ended.state, unchanged, ended.calls) == ("committed", False, 2)
    assert "987654" in server.requests[1].prompt
    assert ended.usage is not None
    assert ended.usage.output_tokens == 40


async def test_24_input_over_the_models_window_is_folded_in_chunks(
    nats_url: str, provider: Provider
) -> None:
    def answer(request: Request) -> Reply:
        if len(json.dumps(request.body)) > 9_000:
            return provider.error(
                400, "This model's maximum context length is 2000 tokens, however you asked more."
            )
        return provider.answer(json.dumps(dict(GOOD, progress=[])))

    ended, server, _ = await compacted(nats_url, provider, answer, turns=40)
    assert ended.state == "committed", ended
    assert ended.calls == len(server.requests) > 1


async def test_a_rate_limit_says_how_long_a_conversation_is_left_alone(
    nats_url: str, provider: Provider
) -> None:
    reply = provider.error(429, "Rate limit reached", retry_after="120")
    ended, _, _ = await compacted(nats_url, provider, [reply])
    attempt = ended.attempt
    assert attempt is not None
    assert attempt.wait == 120
    assert POLICY.delay(1) < 60
    async with connect(nats_url) as foldlog:
        session = foldlog.session("c")
        await talk(session, 20, start=12)
        view = await session.context()
        last = await AttemptLog(foldlog.records).last("default", "c")
        assert last is not None
        assert assess(view, POLICY, last, last.at + 119) is None
        assert assess(view, POLICY, last, last.at + 121) is not None


async def test_a_summary_that_does_not_come_in_time_is_given_up(
    nats_url: str, provider: Provider
) -> None:
    slow = {"timeout": 600.0, "deadline": 600.0}
    ended, server, unchanged = await compacted(
        nats_url,
        provider,
        [Reply(stand_still=True, send=0)],
        summariser=slow,
        summary_deadline=0.5,
    )
    assert (ended.state, unchanged, len(server.requests)) == ("failed", True, 1)
    assert ended.reason.startswith("timed out: no summary within 0.5 seconds")
    assert ended.calls == 1


async def test_a_compaction_under_way_is_cancelled_and_its_request_with_it(
    nats_url: str,
) -> None:
    gate = Gated()
    async with connect(nats_url) as foldlog:
        session = foldlog.session("c")
        await talk(session, 12)
        before = await session.context()
        async with running_compactor(nats_url, summariser=gate):
            assert not await session.cancel_compaction(within=0.5)
            asking = asyncio.create_task(session.compact(within=30))
            await gate.begun.wait()
            other: Session = foldlog.session("another")
            assert not await other.cancel_compaction(within=0.5)
            assert await session.cancel_compaction()
            ended = await asking
            assert (ended.state, ended.reason) == ("failed", "cancelled on request")
            assert await session.context() == before
            gate.may_end.set()
            assert (await session.compact(within=30)).state == "committed"
    assert gate.calls == 2


async def test_a_worker_told_to_stop_ends_its_attempt_and_another_takes_it_on(
    nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foldlog.work.GRACE", 0.2)
    first, second = Gated(), Gated()
    second.may_end.set()
    settings: Settings = small_settings(compactor_patience=60.0)
    async with connect(nats_url) as foldlog:
        session = foldlog.session("c")
        await talk(session, 12)
        async with running_compactor(nats_url, settings, first):
            asking = asyncio.create_task(session.compact(within=50))
            await first.begun.wait()
        async with running_compactor(nats_url, settings, second):
            await asking
            await second.begun.wait()
            records = await foldlog.attempts.read("default", "c")
            while records[-1].state != "committed":
                records = await foldlog.attempts.read("default", "c")
    assert [record.state for record in records] == ["started", "failed", "started", "committed"]
    assert records[1].reason == "its worker was told to stop"
    assert (first.calls, second.calls) == (1, 1)


def test_a_price_counts_each_kind_of_token() -> None:
    settings = load(environment={"FOLDLOG_PRICES": '{"m": {"input": 2, "output": 8}}'})
    from foldlog_events.messages import Usage

    usage = Usage(input_tokens=1_000_000, output_tokens=500_000, cache_read_tokens=250_000)
    assert settings.prices["m"].of(usage) == 2 + 4 + 0.5
