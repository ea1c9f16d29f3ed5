"""When a context is too large, and when saying so again makes sense."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from foldlog_events.entries import BaseVersion
from foldlog_events.messages import Usage
from foldlog_projections.policy import Policy
from foldlog_projections.tokens import estimate_sections, estimate_tools
from foldlog_projections.views import ContextView

CALIBRATION_RANGE = (0.5, 2.0)
"""A ratio of measured to estimated tokens beyond this is no error of the estimate."""

CALIBRATION_FROM = 500
"""Estimated tokens below which a ratio says nothing: a provider's own additions outweigh them."""

Level = Literal["soft", "hard"]
"""`soft`: compact in the background. `hard`: the next request does not fit."""

Reason = Literal["limit", "overflow", "manual"]

Outcome = Literal["committed", "fruitless", "failed", "declined", "stale", "unreachable"]
"""`fruitless`: committed, and the context is still over the limit."""


class Pressure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A conversation whose context should be compacted."""

    tenant: str
    conversation: str
    version: int
    """Of the view that was measured."""
    base_version: BaseVersion
    head: str | None
    """Id of the head marker in force."""
    tokens: int
    soft: int
    hard: int
    level: Level
    reason: Reason = "limit"
    instructions: str = ""
    """What a person asks of the summary."""


class Unreachable(msgspec.Struct, frozen=True, kw_only=True):
    """No compaction can help: the prompt alone, sections and tools, reaches the hard limit."""

    tenant: str
    conversation: str
    version: int
    head: str | None
    fixed: int
    """Tokens of the prompt's sections and tools."""
    hard: int


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last attempt at a conversation, as it stood when the attempt ended."""

    version: int
    head: str | None
    policy: Policy
    outcome: Outcome
    level: Level = "soft"
    reason: Reason = "limit"
    failures: int = 0
    """In a row, this one included."""
    at: float = 0.0
    """When it ended, in seconds on the clock that `assess` is given."""


def fixed_tokens(view: ContextView) -> int:
    """Tokens of the prompt in force, which no compaction removes."""
    return estimate_sections(view.sections) + estimate_tools(view.tools)


def assess(
    view: ContextView, policy: Policy, last: Attempt | None, now: float
) -> Pressure | Unreachable | None:
    """What to publish about a view: pressure, that none can help, or nothing.

    Pressure is published when a limit is crossed, and again only when the version or the head
    changed since the last attempt and its back-off is over. Another policy, or another head, is
    judged afresh. An unreachable limit is said once for each policy.
    """
    fixed = fixed_tokens(view)
    if fixed >= policy.hard_limit:
        return None if _known_unreachable(policy, last) else _unreachable(view, policy, fixed)
    level = level_of(view.tokens, policy, fixed)
    if level is None or not _is_due(view, policy, level, last, now):
        return None
    return _pressure(view, policy, level, "limit", "")


def level_of(tokens: int, policy: Policy, fixed: int = 0) -> Level | None:
    """The limit that a context of `tokens` is over, `fixed` of them being the prompt's.

    A prompt that reaches the soft limit alone leaves only the hard one: a background compaction
    could never get below it.
    """
    if tokens > policy.hard_limit:
        return "hard"
    if tokens > policy.soft_limit and fixed < policy.soft_limit:
        return "soft"
    return None


def manual(view: ContextView, policy: Policy, instructions: str = "") -> Pressure:
    """A person's or a program's own request, whatever the size and the attempts before."""
    level = level_of(view.tokens, policy) or "soft"
    return _pressure(view, policy, level, "manual", instructions)


def overflow(view: ContextView, policy: Policy, last: Attempt | None) -> Pressure | None:
    """After a provider refused the request; None where the same view was compacted for that
    before and nothing changed.
    """
    if (
        last is not None
        and last.reason == "overflow"
        and (last.version, last.head) == (view.version, head_of(view))
    ):
        return None
    return _pressure(view, policy, "hard", "overflow", "")


def attempted(
    pressure: Pressure | Unreachable,
    policy: Policy,
    outcome: Outcome,
    last: Attempt | None,
    *,
    head: str | None,
    now: float,
    version: int | None = None,
) -> Attempt:
    """The attempt to remember; `last` is the one before.

    `head` and `version` are those after it: what it wrote itself is no reason for another.
    """
    before = last.failures if last is not None and _continues(last, pressure.head, policy) else 0
    succeeded = outcome in ("committed", "unreachable")
    return Attempt(
        version=pressure.version if version is None else version,
        head=head,
        policy=policy,
        outcome=outcome,
        level=pressure.level if isinstance(pressure, Pressure) else "hard",
        reason=pressure.reason if isinstance(pressure, Pressure) else "limit",
        failures=0 if succeeded else before + 1,
        at=now,
    )


def is_left_alone(view: ContextView, policy: Policy, last: Attempt | None) -> bool:
    """Whether so many attempts failed that this conversation waits for its cool-down."""
    return (
        last is not None
        and _continues(last, head_of(view), policy)
        and last.failures >= policy.max_attempts
    )


def head_of(view: ContextView) -> str | None:
    """Id of the head marker in force."""
    return view.head.id if view.head else None


def _continues(last: Attempt, head: str | None, policy: Policy) -> bool:
    return last.head == head and last.policy == policy


def _is_due(
    view: ContextView, policy: Policy, level: Level, last: Attempt | None, now: float
) -> bool:
    if last is None or last.policy != policy or last.head != head_of(view):
        return True
    if view.version == last.version:
        return False
    if level == "hard" and last.level == "soft" and last.failures < policy.max_attempts:
        return True
    return now >= last.at + policy.delay(last.failures)


def _known_unreachable(policy: Policy, last: Attempt | None) -> bool:
    return last is not None and last.outcome == "unreachable" and last.policy == policy


def _unreachable(view: ContextView, policy: Policy, fixed: int) -> Unreachable:
    return Unreachable(
        tenant=view.tenant,
        conversation=view.conversation,
        version=view.version,
        head=head_of(view),
        fixed=fixed,
        hard=policy.hard_limit,
    )


def _pressure(
    view: ContextView, policy: Policy, level: Level, reason: Reason, instructions: str
) -> Pressure:
    return Pressure(
        tenant=view.tenant,
        conversation=view.conversation,
        version=view.version,
        base_version=view.base_version,
        head=head_of(view),
        tokens=view.tokens,
        soft=policy.soft_limit,
        hard=policy.hard_limit,
        level=level,
        reason=reason,
        instructions=instructions,
    )


class Measured(msgspec.Struct, frozen=True):
    """One message of a context: its estimate, and the usage reported with it."""

    estimate: int
    usage: Usage | None = None
    after_head: bool = True
    """False where the usage measured a context that the head marker has replaced."""


def is_usable(usage: Usage | None, window: int | None = None) -> bool:
    """Whether a usage tells a context's size.

    Not where it reports nothing sent (an aborted reply), nor more than the window holds (a sum
    over several calls).
    """
    if usage is None:
        return False
    sent = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    if sent <= 0:
        return False
    return usage.context_tokens > 0 and (window is None or usage.context_tokens <= window)


def context_tokens(
    items: Sequence[Measured], fixed: int = 0, window: int | None = None, ratio: float = 1.0
) -> int:
    """A context's size: the newest usable usage, which covers everything up to and with its
    message, and estimates of what came after it.

    `fixed` is the estimate of the leading system message and tools, `ratio` the calibration to use
    where no usage is usable.
    """
    place = _newest_usable(items, window)
    if place is None:
        return round(ratio * (fixed + sum(item.estimate for item in items)))
    usage = items[place].usage
    measured = usage.context_tokens if usage else 0
    ratio = calibration(items, fixed, window)
    return measured + round(ratio * sum(item.estimate for item in items[place + 1 :]))


def calibration(items: Sequence[Measured], fixed: int = 0, window: int | None = None) -> float:
    """Measured tokens for each estimated one, by the newest usable usage; 1.0 without one."""
    place = _newest_usable(items, window)
    if place is None:
        return 1.0
    usage = items[place].usage
    estimated = fixed + sum(item.estimate for item in items[: place + 1])
    if usage is None or estimated < CALIBRATION_FROM:
        return 1.0
    lowest, highest = CALIBRATION_RANGE
    return min(highest, max(lowest, usage.context_tokens / estimated))


def _newest_usable(items: Sequence[Measured], window: int | None) -> int | None:
    for place in range(len(items) - 1, -1, -1):
        if items[place].after_head and is_usable(items[place].usage, window):
            return place
    return None
