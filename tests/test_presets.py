"""The presets do what the two references document: where they trigger, cut, and what they prune.

Pi: compact above window - 16,384, in the background from 32,768 below that, keep 20,000 tokens.
DeepSeek Harness: compact above 0.8 of the window, keep 0.16 of it, two attempts. Both: a tool
result over 8,192 code points keeps 4,096 of its head and 1,024 of its tail.
"""

import json

import pytest

from foldlog_events.messages import Message, ToolCall, assistant, tool_result, user
from foldlog_projections.cut import Cut, CutItem, choose_cut
from foldlog_projections.policy import Policy, deepseek_harness, default, pi
from foldlog_projections.pressure import level_of
from foldlog_projections.prune import prune, recall_marker
from foldlog_projections.tokens import estimate_messages

WINDOWS = (64_000, 128_000, 200_000, 1_000_000)


@pytest.mark.parametrize("window", WINDOWS)
def test_pi_triggers_at_its_reserve_and_in_the_background_before(window: int) -> None:
    policy = pi(window)
    hard = window - 16_384
    assert level_of(hard + 1, policy) == "hard"
    assert level_of(hard, policy) != "hard"
    if window > 128_000:
        soft = hard - 32_768
        assert level_of(soft + 1, policy) == "soft"
        assert level_of(soft, policy) is None


@pytest.mark.parametrize("window", WINDOWS)
def test_deepseek_harness_triggers_above_four_fifths_and_not_before(window: int) -> None:
    policy = deepseek_harness(window)
    limit = window * 4 // 5
    assert level_of(limit, policy) is None
    assert level_of(limit + 1, policy) == "hard"
    assert policy.max_attempts == 2
    assert [policy.delay(failures) for failures in (1, 2)] == [policy.backoff, policy.cooldown]


@pytest.mark.parametrize("window", WINDOWS)
def test_ours_reserves_shares_and_triggers_in_the_background_first(window: int) -> None:
    policy = default(window)
    scaled = min(window, 256_000)
    hard = window - scaled // 8 - scaled // 16
    assert level_of(hard + 1, policy) == "hard"
    assert level_of(hard - hard // 8 + 1, policy) == "soft"
    assert level_of(hard - hard // 8, policy) is None


def turns(count: int, tokens: int) -> list[CutItem]:
    """Turns of one user message and one answer, each of so many tokens."""
    return [
        CutItem(
            id=f"e{at}",
            version=at,
            kind="message",
            messages=(user("u") if at % 2 == 0 else assistant("a"),),
            tokens=tokens,
        )
        for at in range(2 * count)
    ]


@pytest.mark.parametrize(
    ("policy", "keeps"),
    [
        (pi(200_000), 20_000),
        (pi(1_000_000), 20_000),
        (deepseek_harness(128_000), 20_480),
        (deepseek_harness(1_000_000), 160_000),
        (default(32_000), 5_200),
    ],
)
def test_each_keeps_its_share_at_the_tail(policy: Policy, keeps: int) -> None:
    """The cut is the last legal one that keeps no less than is asked for."""
    assert policy.keep() == keeps
    items = turns(500, 1_000)
    cut = choose_cut(items, policy.keep())
    assert isinstance(cut, Cut)
    assert cut.kept_tokens == sum(one.tokens for one in items[cut.index :])
    assert keeps <= cut.kept_tokens < keeps + 2_000
    assert cut.kept_from.id == f"e{cut.index}"


def with_old_result(text: str) -> list[CutItem]:
    said: list[tuple[Message, ...]] = [
        (assistant("", ToolCall(id="a", name="read")),),
        (tool_result("a", text),),
        (assistant("", ToolCall(id="b", name="read")),),
        (tool_result("b", "short"),),
    ]
    return [
        CutItem(id=f"e{at}", version=at, kind="message", messages=m, tokens=estimate_messages(m))
        for at, m in enumerate(said)
    ]


@pytest.mark.parametrize("policy", [pi(200_000), deepseek_harness(128_000)], ids=lambda p: p.name)
@pytest.mark.parametrize("kind", ["text", "JSON"])
def test_both_prune_to_head_and_tail_whatever_the_text_is(policy: Policy, kind: str) -> None:
    text = "".join(chr(97 + (i * i + 7 * i) % 26) for i in range(12_000))
    if kind == "JSON":
        text = json.dumps([{"row": row, "total": row * 7} for row in range(600)])
    (edit,) = prune(with_old_result(text), policy).edits
    assert edit.replace is not None
    marker = recall_marker(len(text) - 4_096 - 1_024, "e1", 4_096)
    expected = f"{text[:4_096]}\n{marker}\n{text[-1_024:]}"
    assert edit.replace == (tool_result("a", expected),)


@pytest.mark.parametrize("policy", [pi(200_000), deepseek_harness(128_000), default(128_000)])
@pytest.mark.parametrize(("length", "pruned"), [(8_192, 0), (8_193, 1)])
def test_a_result_of_8192_code_points_stays(policy: Policy, length: int, pruned: int) -> None:
    text = "".join(chr(97 + (i * i + 7 * i) % 26) for i in range(length))
    assert len(prune(with_old_result(text), policy).edits) == pruned
