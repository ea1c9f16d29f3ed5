"""The summariser of the evaluation: without a model, but it counts what a model would take."""

from collections.abc import Awaitable, Callable

import msgspec

from foldlog.summarisers import SummaryRequest, SummaryResult
from foldlog.summarisers.extractive import Extractive
from foldlog_events.messages import Usage
from foldlog_projections.summary_source import source_text
from foldlog_projections.tokens import estimate_text

INSTRUCTIONS = 600
"""Tokens of what a summariser is told beside its source."""


class Counted:
    """Deterministic summaries; `during` is what happens while one is made."""

    def __init__(self, *, reuses_prefix: bool, during: Callable[[int], Awaitable[None]]) -> None:
        self._inner = Extractive()
        self._reuses_prefix = reuses_prefix
        self._during = during
        self.calls = 0

    async def summarise(self, request: SummaryRequest) -> SummaryResult:
        """The summary, with the usage of a model that had made it."""
        self.calls += 1
        await self._during(self.calls)
        result = await self._inner.summarise(request)
        return msgspec.structs.replace(
            result, usage=self._usage(request, result.text), calls=1, model="counted"
        )

    def _usage(self, request: SummaryRequest, text: str) -> Usage:
        output = estimate_text(text)
        if self._reuses_prefix and request.prefix is not None:
            return Usage(
                input_tokens=INSTRUCTIONS,
                cache_read_tokens=request.prefix.tokens,
                output_tokens=output,
            )
        source = source_text(
            request.previous_summary,
            request.messages,
            turn_prefix=request.turn_prefix,
            exact_values=request.previous_values,
        )
        return Usage(input_tokens=INSTRUCTIONS + estimate_text(source), output_tokens=output)
