"""When a context is too large, and when saying so again makes sense."""

from typing import Literal

import msgspec

from foldlog_events.entries import BaseVersion
from foldlog_projections.policy import Policy
from foldlog_projections.tokens import estimate_sections, estimate_tools
from foldlog_projections.views import ContextView

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
    model: str = ""
    """The model that is to go on, where that is not the one that answered last."""


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
    wait: float = 0.0
    """Seconds from then on for which a provider asked to be left alone."""


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
    level = level_of(tokens_of(view, policy), policy, fixed)
    if level is None or not _is_due(view, policy, level, last, now):
        return None
    return _pressure(view, policy, level, "limit", "")


def tokens_of(view: ContextView, policy: Policy) -> int:
    """Size of a view's context. A measurement that the window cannot hold is none: the estimate
    counts, unless that does not fit either."""
    if view.tokens > policy.window >= view.estimated_tokens:
        return view.estimated_tokens
    return view.tokens


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
    level = level_of(tokens_of(view, policy), policy) or "soft"
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
    wait: float = 0.0,
) -> Attempt:
    """The attempt to remember; `last` is the one before.

    `head` and `version` are those after it: what it wrote itself is no reason for another.
    `wait` as in `Attempt`; more than the policy's cool-down is not waited for.
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
        wait=min(wait, policy.cooldown),
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
    if view.version == last.version or now < last.at + last.wait:
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
        tokens=tokens_of(view, policy),
        soft=policy.soft_limit,
        hard=policy.hard_limit,
        level=level,
        reason=reason,
        instructions=instructions,
    )
