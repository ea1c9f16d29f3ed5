"""Summarisers: what turns a range of messages into a summary, with a model or without.

A summariser is an object with one async method. What it answers is trusted by nobody: the
compactor checks it (`foldlog_projections.checks`) before it stands for anything.
"""

from typing import Protocol

import msgspec

from foldlog_events.entries import ExactValue
from foldlog_events.errors import FoldlogError
from foldlog_events.messages import Usage
from foldlog_projections.checks import Reason
from foldlog_projections.summary_source import SourceMessage, StructuredSummary, SummaryResult
from foldlog_projections.views import ContextView

__all__ = [
    "SourceMessage",
    "StructuredSummary",
    "Summariser",
    "SummariserDeclined",
    "SummariserError",
    "SummariserMisconfigured",
    "SummariserOverflow",
    "SummariserRefused",
    "SummariserUnavailable",
    "SummaryRequest",
    "SummaryResult",
    "close",
]


class SummaryRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What has to be summarised, and how large the answer may be."""

    messages: tuple[SourceMessage, ...]
    """The range up to the cut, or up to the turn that the cut splits."""
    turn_prefix: tuple[SourceMessage, ...] = ()
    """The first part of a turn that the cut splits."""
    previous_summary: str | None = None
    """To be merged with the range; its bare text, without a frame."""
    previous_values: tuple[ExactValue, ...] = ()
    """What is carried beside the previous summary."""
    instructions: str = ""
    """What a person asked the summary to heed."""
    budget: int = 2_000
    """Tokens that the summary may take."""
    rejected: tuple[str, ...] = ()
    """Values that an earlier attempt invented; this one must not state them."""
    window: int | None = None
    """Tokens that the summariser's model holds, its answer included; None: unknown, or no limit."""
    prefix: ContextView | None = None
    """The conversation's own context up to the cut, for a summariser that asks the same model: a
    request that begins with it is found in the provider's cache."""
    model: str = ""
    """The model that answered last in the conversation."""


class Summariser(Protocol):
    """Anything that summarises."""

    async def summarise(self, request: SummaryRequest) -> SummaryResult:
        """The summary, unchecked. Raises SummariserError."""
        ...


async def close(summariser: Summariser) -> None:
    """Close a summariser's connections, if it has any."""
    if (own := getattr(summariser, "close", None)) is not None:
        await own()


class SummariserError(FoldlogError):
    """No summary came; the view is unchanged. `usage` is what the attempt cost, if known."""

    def __init__(
        self, message: str, *, usage: Usage | None = None, model: str = "", calls: int = 1
    ) -> None:
        super().__init__(message)
        self.usage = usage
        self.model = model
        self.calls = calls


class SummariserMisconfigured(SummariserError):
    """Trying again cannot help: a package, a key, a model or an address is missing or wrong."""


class SummariserRefused(SummariserError):
    """The model refused to summarise, or its provider's filter did."""


class SummariserOverflow(SummariserError):
    """The input, or the input and the room for the answer, is larger than the model's window."""


class SummariserUnavailable(SummariserError):
    """The provider cannot be reached, is too busy or too slow. `retry_after` is in seconds."""

    def __init__(
        self,
        message: str,
        *,
        retry_after: float | None = None,
        usage: Usage | None = None,
        model: str = "",
        calls: int = 1,
    ) -> None:
        super().__init__(message, usage=usage, model=model, calls=calls)
        self.retry_after = retry_after


class SummariserDeclined(SummariserError):
    """This summariser has nothing to offer for this range that would pass the checks."""

    def __init__(self, message: str, *, reasons: tuple[Reason, ...] = ()) -> None:
        super().__init__(message, calls=0)
        self.reasons = reasons
