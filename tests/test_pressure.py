"""Pressure: when it is published, and when again."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog_events.entries import BaseVersion, SectionInForce
from foldlog_projections.overflow import is_overflow
from foldlog_projections.policy import Policy, default, pi
from foldlog_projections.pressure import (
    Attempt,
    Outcome,
    Pressure,
    Unreachable,
    assess,
    attempted,
    is_left_alone,
    level_of,
    manual,
    overflow,
    tokens_of,
)
from foldlog_projections.views import ContextView, Head

POLICY = Policy(
    window=100_000,
    reserve_output=10_000,
    background_margin=15_000,
    keep_recent=20_000,
    max_attempts=3,
    backoff=10,
    cooldown=1_000,
)


def view(tokens: int, version: int = 10, head: str | None = None, prompt: str = "") -> ContextView:
    return ContextView(
        tenant="default",
        conversation="c",
        version=version,
        base_version=BaseVersion(log=version, shape=0),
        head=Head(head, 5, "compaction") if head else None,
        tokens=tokens,
        estimated_tokens=tokens,
        digest="sha256:" + "0" * 64,
        messages=(),
        sections=(SectionInForce(name="role", text=prompt),) if prompt else (),
    )


def after(
    found: Pressure | Unreachable | None,
    outcome: Outcome,
    *,
    last: Attempt | None = None,
    head: str | None = None,
    now: float = 0,
    version: int | None = None,
) -> Attempt:
    assert found is not None
    return attempted(found, POLICY, outcome, last, head=head, now=now, version=version)


@pytest.mark.parametrize(
    ("tokens", "level"),
    [(0, None), (75_000, None), (75_001, "soft"), (90_000, "soft"), (90_001, "hard")],
)
def test_a_limit_is_crossed_above_it(tokens: int, level: str | None) -> None:
    assert level_of(tokens, POLICY) == level


def test_pressure_says_where_and_by_how_much() -> None:
    found = assess(view(95_000, version=12, head="k1"), POLICY, None, now=0)
    assert found == Pressure(
        tenant="default",
        conversation="c",
        version=12,
        base_version=BaseVersion(log=12, shape=0),
        head="k1",
        tokens=95_000,
        soft=75_000,
        hard=90_000,
        level="hard",
    )


def test_pressure_survives_the_queue() -> None:
    found = manual(view(95_000), POLICY, "keep the figures")
    assert msgspec.json.decode(msgspec.json.encode(found), type=Pressure) == found


def test_nothing_is_said_twice_about_the_same_view() -> None:
    found = assess(view(80_000), POLICY, None, now=0)
    failed = after(found, "failed")
    assert assess(view(80_000), POLICY, failed, now=10_000_000) is None


def test_a_new_entry_is_a_reason_to_try_again_once_the_back_off_is_over() -> None:
    failed = after(assess(view(80_000), POLICY, None, now=0), "failed")
    assert assess(view(80_500, version=11), POLICY, failed, now=9.9) is None
    assert assess(view(80_500, version=11), POLICY, failed, now=10) is not None


def test_each_failure_waits_longer_and_the_last_allowed_one_until_the_cool_down() -> None:
    last: Attempt | None = None
    waits = []
    now = 0.0
    for version in range(10, 15):
        found = assess(view(80_000, version=version), POLICY, last, now)
        last = after(found, "failed", last=last, now=now)
        later = view(80_000, version=version + 1)
        wait = next(w for w in (0, 10, 20, 1_000) if assess(later, POLICY, last, now + w))
        waits.append(wait)
        now += wait
    assert waits == [10, 20, 1_000, 1_000, 1_000]
    assert is_left_alone(view(80_000), POLICY, last)


@given(st.lists(st.floats(min_value=0, max_value=100), min_size=1, max_size=200))
def test_a_summariser_that_always_fails_is_called_no_more_often_than_the_policy_says(
    pauses: list[float],
) -> None:
    """With a new entry at every step."""
    last: Attempt | None = None
    now, attempts = 0.0, 0
    for step, pause in enumerate(pauses):
        now += pause
        found = assess(view(95_000, version=10 + step), POLICY, last, now)
        if found is not None:
            attempts += 1
            last = after(found, "failed", last=last, now=now)
    assert attempts <= POLICY.most_attempts(now)


def test_a_committed_compaction_clears_the_failures() -> None:
    failed = after(assess(view(80_000), POLICY, None, now=0), "failed")
    found = assess(view(80_000, version=11), POLICY, failed, now=10)
    committed = after(found, "committed", last=failed, head="k1", now=11, version=12)
    assert committed.failures == 0
    assert assess(view(80_000, version=13, head="k1"), POLICY, committed, now=11) is not None


def test_a_fruitless_compaction_is_not_repeated_because_of_its_own_entry() -> None:
    """Case 18: not a compaction at every step."""
    found = assess(view(95_000), POLICY, None, now=0)
    fruitless = after(found, "fruitless", head="k1", now=1, version=11)
    assert assess(view(94_000, version=11, head="k1"), POLICY, fruitless, now=9_999) is None
    assert assess(view(94_100, version=12, head="k1"), POLICY, fruitless, now=2) is None
    assert assess(view(94_100, version=12, head="k1"), POLICY, fruitless, now=11) is not None


def test_a_reset_by_another_is_judged_afresh() -> None:
    failed = after(assess(view(80_000), POLICY, None, now=0), "failed")
    assert assess(view(80_000, version=11, head="r1"), POLICY, failed, now=0) is not None
    assert not is_left_alone(view(80_000, head="r1"), POLICY, failed)


def test_another_model_or_policy_is_judged_at_once() -> None:
    """Case 24: the same view, moved to a model with a smaller window."""
    quiet = view(60_000)
    assert assess(quiet, POLICY, None, now=0) is None
    assert assess(quiet, default(64_000), None, now=0) is not None
    failed = after(assess(view(80_000), POLICY, None, now=0), "failed")
    assert assess(view(80_000), default(64_000), failed, now=0) is not None


def test_crossing_the_hard_limit_does_not_wait_for_the_background_to_be_tried_again() -> None:
    failed = after(assess(view(80_000), POLICY, None, now=0), "failed")
    found = assess(view(91_000, version=11), POLICY, failed, now=1)
    assert isinstance(found, Pressure)
    assert found.level == "hard"
    failed_again = after(found, "failed", last=failed, now=1)
    assert assess(view(91_000, version=12), POLICY, failed_again, now=2) is None


def test_a_prompt_over_the_limit_is_reported_once() -> None:
    """Case 18: 29k of prompt in a window of 32k."""
    policy = default(32_000)
    large = view(30_000, prompt="word " * 30_200)
    found = assess(large, policy, None, now=0)
    assert isinstance(found, Unreachable)
    assert found.fixed > 28_000
    assert found.hard == 26_000
    said = attempted(found, policy, "unreachable", None, head=None, now=0)
    for version in range(11, 20):
        again = view(30_000 + version, version=version, prompt="word " * 30_200)
        assert assess(again, policy, said, now=version * 10_000) is None


def test_a_prompt_over_the_limit_is_reported_again_for_another_policy_or_once_it_fits() -> None:
    policy = default(32_000)
    prompt = "word " * 30_200
    found = assess(view(30_000, prompt=prompt), policy, None, now=0)
    assert found is not None
    said = attempted(found, policy, "unreachable", None, head=None, now=0)
    assert isinstance(
        assess(view(30_000, prompt=prompt), default(16_000), said, now=0), Unreachable
    )
    assert isinstance(assess(view(27_000, version=11, prompt="x"), policy, said, now=0), Pressure)


def test_a_prompt_over_the_soft_limit_leaves_only_the_hard_one() -> None:
    prompt = "word " * 83_000
    assert assess(view(85_000, prompt=prompt), POLICY, None, now=0) is None
    assert isinstance(assess(view(91_000, prompt=prompt), POLICY, None, now=0), Pressure)


def test_a_manual_request_is_always_made() -> None:
    found = manual(view(100), POLICY, "only the decisions")
    assert (found.reason, found.instructions, found.level) == (
        "manual",
        "only the decisions",
        "soft",
    )


def test_an_overflow_is_answered_once_for_a_view() -> None:
    found = overflow(view(50_000), POLICY, None)
    assert found is not None
    assert (found.reason, found.level) == ("overflow", "hard")
    declined = after(found, "declined")
    assert overflow(view(50_000), POLICY, declined) is None
    assert overflow(view(50_000, version=11), POLICY, declined) is not None
    failed = after(assess(view(80_000), POLICY, None, now=0), "failed")
    assert overflow(view(80_000), POLICY, failed) is not None


def test_the_preset_pi_triggers_where_it_is_documented_to() -> None:
    policy = pi(200_000)
    assert assess(view(200_000 - 16_384 - 32_768), policy, None, now=0) is None
    soft = assess(view(200_000 - 16_384), policy, None, now=0)
    hard = assess(view(200_000 - 16_384 + 1), policy, None, now=0)
    assert isinstance(soft, Pressure)
    assert isinstance(hard, Pressure)
    assert (soft.level, hard.level) == ("soft", "hard")


def test_a_measurement_over_the_window_is_void_and_the_estimate_counts() -> None:
    """Case 27: a sum over several calls, reported as if it were one."""
    policy = default(200_000)
    summed = msgspec.structs.replace(view(834_777), estimated_tokens=60_000)
    assert tokens_of(summed, policy) == 60_000
    assert assess(summed, policy, None, now=0) is None
    real = msgspec.structs.replace(view(834_777), estimated_tokens=790_000)
    assert tokens_of(real, policy) == 834_777


OVERFLOWS: list[dict[str, Any]] = [
    {"message": "prompt is too long: 213462 tokens > 200000 maximum"},
    {
        "message": "input length and `max_tokens` exceed context limit: 156321 + 48000 > 200000, "
        "decrease input length or `max_tokens` and try again"
    },
    {"message": "Your input exceeds the context window of this model."},
    {
        "message": "This model's maximum context length is 128000 tokens. However, you requested "
        "139812 tokens (123428 in the messages, 16384 in the completion). Please reduce the "
        "length of the messages or completion."
    },
    {"message": "Bad request", "code": "context_length_exceeded"},
    {
        "message": "The input token count (1196265) exceeds the maximum number of tokens allowed "
        "(1048575)."
    },
    {
        "message": "This model's maximum prompt length is 131072 but the request contains 537812 "
        "tokens."
    },
    {"message": "Input is too long for requested model."},
    {
        "message": "Prompt contains 65673 tokens and 0 draft tokens, too large for model with "
        "32768 maximum context length"
    },
    {"message": "request (9021 tokens) exceeds the available context size (8192 tokens)"},
    {"message": "Please reduce the length of the messages or completion."},
    {"message": "prompt token count of 139211 exceeds the limit of 128000"},
    {"message": "invalid params, context window exceeds limit"},
    {"message": "Your request exceeded model token limit: 262144 (requested: 291351)"},
    {"message": "", "status": 413},
]


@pytest.mark.parametrize("error", OVERFLOWS, ids=lambda error: error["message"][:40])
def test_every_providers_words_for_an_overflow_are_recognised(error: dict[str, Any]) -> None:
    """Case 29 is the second: 78 % of the window, refused because the reserved output counts."""
    assert is_overflow(**error)


@pytest.mark.parametrize(
    "error",
    [
        {"message": "Rate limit reached for gpt-5 on tokens per min (TPM): Limit 30000"},
        {"message": "Too many tokens, please wait before trying again."},
        {"message": "prompt is too long for your rate limit of 40,000 input tokens per minute"},
        {"message": "maximum context length is 8192", "status": 429},
        {"message": "max_tokens: 64000 > 8192, which is the maximum allowed for this model"},
        {"message": "Invalid API key", "code": "invalid_api_key", "status": 401},
        {"message": "Internal server error", "status": 500},
        {"message": ""},
    ],
    ids=lambda error: error["message"][:40],
)
def test_other_refusals_are_no_overflow(error: dict[str, Any]) -> None:
    assert not is_overflow(**error)
