"""The summariser that settings name."""

import asyncio

from foldlog.settings import Settings
from foldlog.summarisers import Summariser, SummaryRequest, SummaryResult
from foldlog.summarisers.extractive import Extractive


class Paced:
    """A summariser that takes its time, as a model does."""

    def __init__(self, summariser: Summariser, seconds: float) -> None:
        self._summariser = summariser
        self._seconds = seconds

    async def summarise(self, request: SummaryRequest) -> SummaryResult:
        """The summary, `seconds` later. Raises SummariserError."""
        await asyncio.sleep(self._seconds)
        return await self._summariser.summarise(request)


def summariser_of(settings: Settings) -> Summariser:
    """The summariser to use."""
    summariser: Summariser = Extractive()
    if settings.summary_seconds:
        summariser = Paced(summariser, settings.summary_seconds)
    return summariser
