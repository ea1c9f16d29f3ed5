"""Policies: their limits, the presets' documented numbers, and what is refused."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog_projections.policy import (
    InvalidPolicy,
    Policies,
    Policy,
    deepseek_harness,
    default,
    load,
    pi,
)


def test_a_window_of_32k_with_output_4k_and_margin_2k_has_a_hard_limit_of_26k() -> None:
    policy = Policy(window=32_000, reserve_output=4_000, safety_margin=2_000, keep_recent=5_000)
    assert policy.hard_limit == 26_000
    assert default(32_000).hard_limit == 26_000


def test_the_soft_limit_lies_below_by_the_background_margin() -> None:
    policy = Policy(
        window=100_000, reserve_output=10_000, background_margin=15_000, keep_recent=20_000
    )
    assert (policy.hard_limit, policy.soft_limit) == (90_000, 75_000)


def test_the_preset_pi_has_its_documented_numbers() -> None:
    policy = pi(200_000)
    assert policy.hard_limit == 200_000 - 16_384
    assert policy.soft_limit == 200_000 - 16_384 - 32_768
    assert policy.keep_recent == 20_000
    assert (policy.result_limit, policy.head, policy.tail) == (8_192, 4_096, 1_024)


def test_the_preset_pi_in_a_small_window_starts_no_background_below_what_it_keeps() -> None:
    policy = pi(64_000)
    assert policy.hard_limit == 47_616
    assert policy.keep_recent < policy.soft_limit < policy.hard_limit


def test_the_preset_pi_does_not_fit_a_window_of_32k() -> None:
    with pytest.raises(InvalidPolicy) as caught:
        pi(32_000)
    assert caught.value.field == "keep_recent"


def test_the_preset_deepseek_harness_has_its_documented_numbers() -> None:
    policy = deepseek_harness(128_000)
    assert policy.hard_limit == policy.soft_limit == 102_400
    assert policy.keep_recent == 20_480
    assert policy.max_attempts == 2


@given(st.integers(min_value=100, max_value=20_000_000))
def test_the_default_works_in_any_window(window: int) -> None:
    policy = default(window)
    assert 0 < policy.keep_recent < policy.soft_limit < policy.hard_limit < window
    assert policy.hard_limit >= window * 0.8


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"window": 0}, "window"),
        ({"window": -1}, "window"),
        ({"window": "200k"}, "window"),
        ({"window": True}, "window"),
        ({"keep_recent": 0}, "keep_recent"),
        ({"keep_recent": 75_000}, "keep_recent"),
        ({"keep_recent": 500_000}, "keep_recent"),
        ({"reserve_output": 100_000}, "window"),
        ({"reserve_output": -1}, "reserve_output"),
        ({"safety_margin": -1}, "safety_margin"),
        ({"background_margin": 90_000}, "background_margin"),
        ({"result_limit": 5_000}, "result_limit"),
        ({"head": 0}, "head"),
        ({"tail": -1}, "tail"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"backoff": 0}, "backoff"),
        ({"backoff": float("nan")}, "backoff"),
        ({"cooldown": float("inf")}, "cooldown"),
    ],
)
def test_a_policy_that_cannot_work_is_refused(changes: dict[str, Any], field: str) -> None:
    settings: dict[str, Any] = {
        "window": 100_000,
        "reserve_output": 10_000,
        "background_margin": 15_000,
        "keep_recent": 20_000,
    }
    Policy(**settings)
    with pytest.raises(InvalidPolicy) as caught:
        Policy(**settings | changes)
    assert caught.value.field == field
    assert field in str(caught.value)
    assert caught.value.limit in str(caught.value)
    assert caught.value.fix in str(caught.value)


def test_settings_override_a_preset() -> None:
    policy = load({"preset": "pi", "window": 200_000, "keep_recent": 30_000})
    assert policy == msgspec.structs.replace(pi(200_000), keep_recent=30_000)
    assert policy.name == "pi"


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"preset": "pie", "window": 200_000}, "preset"),
        ({"preset": "pi"}, "window"),
        ({"preset": "pi", "window": 200_000, "keep_recnt": 3}, "keep_recnt"),
        ({"preset": "pi", "window": 200_000, "keep_recent": "many"}, "keep_recent"),
        ({"preset": "pi", "window": 200_000, "keep_recent": 190_000}, "keep_recent"),
        ({"window": 200_000}, "reserve_output"),
    ],
)
def test_settings_that_cannot_be_loaded_are_named(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidPolicy) as caught:
        load(settings)
    assert caught.value.field == field


def test_a_policy_survives_its_stored_form() -> None:
    policy = default(200_000)
    assert msgspec.json.decode(msgspec.json.encode(policy), type=Policy) == policy


def test_a_stored_policy_that_cannot_work_is_refused_too() -> None:
    stored = msgspec.structs.asdict(default(200_000)) | {"keep_recent": 199_000}
    with pytest.raises(InvalidPolicy):
        msgspec.convert(stored, Policy)


def test_a_model_has_its_own_policy_or_that_of_its_family_or_the_fallback() -> None:
    small, large, other = default(32_000), default(400_000), default(128_000)
    policies = Policies(fallback=other, by_model={"gpt-5": large, "gpt-5-mini": small})
    assert policies.of("gpt-5") == large
    assert policies.of("gpt-5-mini") == small
    assert policies.of("gpt-5-mini-2026-01-01") == small
    assert policies.of("gpt-5-2026-01-01") == large
    assert policies.of("gpt-51") == other
    assert policies.of("unheard-of") == other
    assert policies.of(None) == other


def test_less_is_kept_where_the_prompt_takes_the_room() -> None:
    policy = default(32_000)
    assert policy.keep() == policy.keep_recent
    assert policy.keep(20_000) == (policy.soft_limit - 20_000) // 2
    assert policy.keep(40_000) == 1


def test_each_failure_doubles_the_wait_until_the_conversation_is_left_alone() -> None:
    policy = Policy(
        window=10_000,
        reserve_output=1_000,
        keep_recent=1_000,
        max_attempts=4,
        backoff=10,
        cooldown=600,
    )
    assert [policy.delay(n) for n in range(6)] == [0, 10, 20, 40, 600, 600]
    assert policy.most_attempts(0) == 4
    assert policy.most_attempts(1_300) == 6
