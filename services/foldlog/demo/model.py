"""A compactor whose summaries take as long as the story needs: `python -m foldlog.demo.model`.

It is foldlog's compactor with its summariser that needs no model. As a model would, it takes its
time: it asks the story, which answers once what is to happen during the summary has happened. So
nothing in the demo depends on how fast a machine is.
"""

import asyncio
import sys

from foldlog.broker import Broker, open_broker
from foldlog.compactor import serve
from foldlog.errors import FoldlogError
from foldlog.logging_setup import configure
from foldlog.settings import Settings, load
from foldlog.summarisers import SummariserUnavailable, SummaryRequest, SummaryResult
from foldlog.summarisers.extractive import Extractive

SUBJECT = "foldlog.demo.model"
PATIENCE = 60.0
"""Seconds the story may take."""


class SlowModel:
    """Summarises once the story lets it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._extractive = Extractive()

    async def summarise(self, request: SummaryRequest) -> SummaryResult:
        """The summary of `Extractive`. Raises SummariserError."""
        try:
            await self._broker.request(SUBJECT, within=PATIENCE)
        except FoldlogError as error:
            raise SummariserUnavailable(str(error)) from None
        return await self._extractive.summarise(request)


async def _serve(settings: Settings, url: str) -> None:
    async with open_broker(url) as broker:
        await serve(settings, url, SlowModel(broker))


def main() -> None:
    """Run the compactor on FOLDLOG_URL."""
    settings = load()
    logger = configure("compactor", settings)
    try:
        asyncio.run(_serve(settings, settings.url or ""))
    except FoldlogError as error:
        logger.error("stopped", error=str(error))
        sys.exit(3)


if __name__ == "__main__":
    main()
