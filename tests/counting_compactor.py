"""A compactor in a process of its own that writes down each summary it pays for."""

import asyncio
import os
import sys
from pathlib import Path

import msgspec

from foldlog.compactor import serve
from foldlog.settings import load
from foldlog.summarisers import SummaryRequest, SummaryResult
from foldlog.summarisers.extractive import Extractive


class Counting:
    """Writes the first entry it summarises to a file before and after a summary, and is slow."""

    def __init__(self, file: Path, seconds: float) -> None:
        self._file = file
        self._seconds = seconds
        self._inner = Extractive()

    async def summarise(self, request: SummaryRequest) -> SummaryResult:
        self._say("begun", request)
        await asyncio.sleep(self._seconds)
        result = await self._inner.summarise(request)
        self._say("done", request)
        return result

    def _say(self, what: str, request: SummaryRequest) -> None:
        line = {"what": what, "entry": request.messages[0].entry, "worker": os.getpid()}
        with self._file.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")


if __name__ == "__main__":
    settings = load()
    assert settings.url
    asyncio.run(serve(settings, settings.url, Counting(Path(sys.argv[1]), float(sys.argv[2]))))
