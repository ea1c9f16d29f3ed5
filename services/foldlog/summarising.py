"""Asking for a summary that may be committed: one that came in time and passed every check.

Whatever a summariser does instead, it ends in a named reason, and what it cost is kept.
"""

import asyncio

import msgspec

from foldlog.summarisers import (
    Summariser,
    SummariserError,
    SummariserUnavailable,
    SummaryRequest,
)
from foldlog_events.entries import ExactValue
from foldlog_events.messages import Usage
from foldlog_projections.checks import Reason, check
from foldlog_projections.summary_source import SourceMessage, SummaryResult

MOST_REQUESTS = 2
"""Summaries asked for in one attempt: one that invents values is asked for once more."""


class Spent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an attempt took of a model, whether anything came of it or not."""

    model: str = ""
    usage: Usage | None = None
    """Of all calls together; None where no call told."""
    calls: int = 0

    def plus(self, model: str, usage: Usage | None, calls: int) -> "Spent":
        """With further calls."""
        both = [one for one in (self.usage, usage) if one is not None]
        summed = Usage(
            input_tokens=sum(one.input_tokens for one in both),
            output_tokens=sum(one.output_tokens for one in both),
            cache_read_tokens=sum(one.cache_read_tokens for one in both),
            cache_write_tokens=sum(one.cache_write_tokens for one in both),
        )
        return Spent(
            model=model or self.model, usage=summed if both else None, calls=self.calls + calls
        )


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A summary that may be committed, or why there is none; and what it took."""

    result: SummaryResult | None = None
    reason: str = ""
    retry_after: float = 0.0
    """Seconds for which the provider asked to be left alone."""
    spent: Spent = Spent()


async def ask(
    summariser: Summariser,
    request: SummaryRequest,
    exact_values: tuple[ExactValue, ...],
    deadline: float,
) -> Asked:
    """A checked summary, within `deadline` seconds; one that invents values is asked for twice.

    Raises nothing: whatever a summariser does is an end with a reason.
    """
    spent = Spent()
    source = (*request.messages, *request.turn_prefix)
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + deadline
    while True:
        try:
            async with asyncio.timeout_at(ends_at) as limit:
                result = await summariser.summarise(request)
        except SummariserError as error:
            retry_after = error.retry_after if isinstance(error, SummariserUnavailable) else None
            return Asked(
                reason=f"{type(error).__name__}: {error}",
                retry_after=retry_after or 0.0,
                spent=spent.plus(error.model, error.usage, error.calls),
            )
        except Exception as error:
            reason = f"the summariser broke: {type(error).__name__}: {error}"
            if limit.expired():
                reason = (
                    f"timed out: no summary within {deadline:g} seconds "
                    "(setting `summary_deadline`)"
                )
            return Asked(reason=reason, spent=spent.plus("", None, 1))
        if not isinstance(result, SummaryResult):
            reason = f"the summariser broke: it answered {type(result).__name__}, and no summary"
            return Asked(reason=reason, spent=spent.plus("", None, 1))
        spent = spent.plus(result.model, result.usage, result.calls)
        reasons = _reasons(result, source, request, exact_values)
        if not reasons:
            return Asked(result=result, spent=spent)
        invented = next((reason for reason in reasons if reason.name == "ungrounded"), None)
        if invented is None or request.rejected:
            said = "; ".join(f"{reason.name}: {reason}" for reason in reasons)
            return Asked(reason=said, spent=spent)
        request = msgspec.structs.replace(request, rejected=invented.values)


def _reasons(
    result: SummaryResult,
    source: tuple[SourceMessage, ...],
    request: SummaryRequest,
    exact_values: tuple[ExactValue, ...],
) -> tuple[Reason, ...]:
    return check(
        result,
        source,
        previous_summary=request.previous_summary,
        previous_values=request.previous_values,
        exact_values=exact_values,
        instructions=request.instructions,
    )
