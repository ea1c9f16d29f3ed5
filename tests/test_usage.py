"""Usage objects as providers send them, and the size of the context they speak of."""

from typing import Any

import anthropic.types
import openai.types
import pytest

from foldlog_events.messages import Usage
from foldlog_projections.usage import normalise_usage

TABLE: dict[str, tuple[dict[str, Any], Usage, int]] = {
    "openai chat, cached tokens are part of the prompt": (
        {
            "prompt_tokens": 2006,
            "completion_tokens": 300,
            "total_tokens": 2306,
            "prompt_tokens_details": {"cached_tokens": 1920, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 192, "audio_tokens": 0},
        },
        Usage(input_tokens=86, cache_read_tokens=1920, output_tokens=300),
        2306,
    ),
    "openai chat, tokens written to the cache are part of the prompt": (
        {
            "prompt_tokens": 5000,
            "completion_tokens": 100,
            "total_tokens": 5100,
            "prompt_tokens_details": {"cached_tokens": 3000, "cache_write_tokens": 1500},
        },
        Usage(input_tokens=500, cache_read_tokens=3000, cache_write_tokens=1500, output_tokens=100),
        5100,
    ),
    "openai chat, no details": (
        {"prompt_tokens": 9, "completion_tokens": 12, "total_tokens": 21},
        Usage(input_tokens=9, output_tokens=12),
        21,
    ),
    "openai chat, details are null": (
        {
            "prompt_tokens": 9,
            "completion_tokens": 12,
            "total_tokens": 21,
            "prompt_tokens_details": None,
        },
        Usage(input_tokens=9, output_tokens=12),
        21,
    ),
    "openai responses": (
        {
            "input_tokens": 12_051,
            "input_tokens_details": {"cached_tokens": 11_776},
            "output_tokens": 423,
            "output_tokens_details": {"reasoning_tokens": 384},
            "total_tokens": 12_474,
        },
        Usage(input_tokens=275, cache_read_tokens=11_776, output_tokens=423),
        12_474,
    ),
    "codex rollout": (
        {
            "input_tokens": 16_341,
            "cached_input_tokens": 3_584,
            "cache_write_input_tokens": 0,
            "output_tokens": 81,
            "reasoning_output_tokens": 63,
            "total_tokens": 16_422,
        },
        Usage(input_tokens=12_757, cache_read_tokens=3_584, output_tokens=81),
        16_422,
    ),
    "anthropic, the fields exclude each other": (
        {
            "input_tokens": 4,
            "cache_creation_input_tokens": 1_271,
            "cache_read_input_tokens": 53_817,
            "cache_creation": {
                "ephemeral_5m_input_tokens": 1_271,
                "ephemeral_1h_input_tokens": 0,
            },
            "output_tokens": 503,
            "service_tier": "standard",
        },
        Usage(
            input_tokens=4,
            cache_write_tokens=1_271,
            cache_read_tokens=53_817,
            output_tokens=503,
        ),
        55_595,
    ),
    "anthropic, no cache": (
        {"input_tokens": 2_095, "output_tokens": 503},
        Usage(input_tokens=2_095, output_tokens=503),
        2_598,
    ),
    "anthropic, cache fields are null": (
        {
            "input_tokens": 25,
            "cache_creation_input_tokens": None,
            "cache_read_input_tokens": None,
            "output_tokens": 7,
        },
        Usage(input_tokens=25, output_tokens=7),
        32,
    ),
    "anthropic, several passes in one call": (
        {
            "input_tokens": 10,
            "cache_read_input_tokens": 90_000,
            "cache_creation_input_tokens": 2_000,
            "output_tokens": 700,
            "iterations": [
                {"input_tokens": 5, "cache_read_input_tokens": 44_000, "output_tokens": 300},
                {
                    "input_tokens": 5,
                    "cache_read_input_tokens": 46_000,
                    "cache_creation_input_tokens": 2_000,
                    "output_tokens": 400,
                },
            ],
        },
        Usage(
            input_tokens=10,
            cache_read_tokens=90_000,
            cache_write_tokens=2_000,
            output_tokens=700,
            total_tokens=48_405,
        ),
        48_405,
    ),
    "google, thoughts are apart from candidates": (
        {
            "promptTokenCount": 10_309,
            "candidatesTokenCount": 160,
            "totalTokenCount": 10_779,
            "cachedContentTokenCount": 8_168,
            "thoughtsTokenCount": 310,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 10_309}],
        },
        Usage(input_tokens=2_141, cache_read_tokens=8_168, output_tokens=470),
        10_779,
    ),
    "google, by its python client": (
        {
            "prompt_token_count": 40,
            "candidates_token_count": 10,
            "cached_content_token_count": None,
            "thoughts_token_count": None,
            "tool_use_prompt_token_count": 30,
            "total_token_count": 80,
        },
        Usage(input_tokens=70, output_tokens=10),
        80,
    ),
    "google, a prompt that was blocked": (
        {"promptTokenCount": 17, "totalTokenCount": 17},
        Usage(input_tokens=17),
        17,
    ),
    "deepseek": (
        {
            "prompt_tokens": 8_218,
            "completion_tokens": 44,
            "total_tokens": 8_262,
            "prompt_cache_hit_tokens": 8_192,
            "prompt_cache_miss_tokens": 26,
        },
        Usage(input_tokens=26, cache_read_tokens=8_192, output_tokens=44),
        8_262,
    ),
    "xai, reasoning is apart from the completion": (
        {
            "prompt_tokens": 32,
            "completion_tokens": 9,
            "total_tokens": 135,
            "prompt_tokens_details": {"cached_tokens": 6},
            "completion_tokens_details": {"reasoning_tokens": 94},
        },
        Usage(input_tokens=26, cache_read_tokens=6, output_tokens=9, total_tokens=135),
        135,
    ),
    "a gateway that adds anthropic's cache fields to openai's": (
        {
            "prompt_tokens": 55_092,
            "completion_tokens": 503,
            "total_tokens": 55_595,
            "cache_creation_input_tokens": 1_271,
            "cache_read_input_tokens": 53_817,
        },
        Usage(
            input_tokens=4,
            cache_write_tokens=1_271,
            cache_read_tokens=53_817,
            output_tokens=503,
        ),
        55_595,
    ),
    "bedrock, whose total may leave out what was cached": (
        {
            "inputTokens": 30,
            "outputTokens": 628,
            "totalTokens": 658,
            "cacheReadInputTokens": 4_000,
            "cacheWriteInputTokens": 0,
        },
        Usage(input_tokens=30, cache_read_tokens=4_000, output_tokens=628),
        4_658,
    ),
    "pi, one call": (
        {
            "input": 1,
            "output": 179,
            "cacheRead": 78_920,
            "cacheWrite": 829,
            "totalTokens": 79_929,
            "cost": {"input": 5e-06, "output": 0.004475, "total": 0.04912125},
        },
        Usage(input_tokens=1, output_tokens=179, cache_read_tokens=78_920, cache_write_tokens=829),
        79_929,
    ),
    "case 27: fields summed over 12 calls, and the context's own size": (
        {
            "input": 12,
            "output": 15_104,
            "cacheRead": 819_661,
            "cacheWrite": 0,
            "totalTokens": 163_978,
        },
        Usage(
            input_tokens=12,
            output_tokens=15_104,
            cache_read_tokens=819_661,
            total_tokens=163_978,
        ),
        163_978,
    ),
    "an aborted reply": (
        {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0},
        Usage(),
        0,
    ),
    "already normalised": (
        {"input_tokens": 5, "cache_read_tokens": 7, "output_tokens": 3},
        Usage(input_tokens=5, cache_read_tokens=7, output_tokens=3),
        15,
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_usage_is_normalised(name: str) -> None:
    """Case 27: what is cached counts once, whether or not the prompt's count includes it."""
    given, expected, context = TABLE[name]
    usage = normalise_usage(given)
    assert usage == expected
    assert usage is not None
    assert usage.context_tokens == context


@pytest.mark.parametrize("given", [None, {}, "12", {"tokens": 3}, [1], {"cost": 0.1}])
def test_what_is_no_usage_is_none(given: object) -> None:
    assert normalise_usage(given) is None


@pytest.mark.parametrize("bad", [None, -5, "12", True, float("nan"), float("inf"), {}])
def test_a_count_that_is_none_counts_nothing(bad: object) -> None:
    usage = normalise_usage({"prompt_tokens": 10, "completion_tokens": bad})
    assert usage == Usage(input_tokens=10)


def test_more_cached_than_sent_does_not_make_the_input_negative() -> None:
    usage = normalise_usage(
        {"prompt_tokens": 10, "completion_tokens": 1, "prompt_cache_hit_tokens": 64}
    )
    assert usage == Usage(cache_read_tokens=10, output_tokens=1)


def test_the_official_clients_objects_are_read() -> None:
    chat = openai.types.CompletionUsage.model_validate(
        {
            "prompt_tokens": 100,
            "completion_tokens": 5,
            "total_tokens": 105,
            "prompt_tokens_details": {"cached_tokens": 64},
        }
    )
    assert normalise_usage(chat) == Usage(input_tokens=36, cache_read_tokens=64, output_tokens=5)
    reply = anthropic.types.Usage(input_tokens=3, cache_read_input_tokens=9, output_tokens=5)
    assert normalise_usage(reply) == Usage(input_tokens=3, cache_read_tokens=9, output_tokens=5)
