"""The attempts that a compactor has in hand: run, cancelled on request, ended with their worker."""

import asyncio
from collections.abc import Coroutine
from typing import Any

GRACE = 10.0
"""Seconds that attempts in hand may still take once their worker was told to stop."""
CANCELLED = "cancelled on request"
STOPPED = "its worker was told to stop"


class Work:
    """The attempts that this worker has in hand, so that one of them or all can be ended."""

    def __init__(self) -> None:
        self.is_stopping = False
        self._running: dict[str, asyncio.Task[Any]] = {}

    async def run(self, subject: str, work: Coroutine[Any, Any, None]) -> None:
        """Run what a pressure event asks for. Raises CancelledError where it was ended."""
        task = asyncio.ensure_future(work)
        self._running[subject] = task
        try:
            await task
        finally:
            if not task.done():
                task.cancel()
            if self._running.get(subject) is task:
                del self._running[subject]

    def cancel(self, subject: str) -> bool:
        """End the attempt at a conversation; False where none is in hand."""
        task = self._running.get(subject)
        return task is not None and task.cancel(CANCELLED)

    async def stop(self) -> None:
        """Take nothing on any more; what is not done soon is ended, and left to others."""
        self.is_stopping = True
        if running := set(self._running.values()):
            _, late = await asyncio.wait(running, timeout=GRACE)
            for task in late:
                task.cancel(STOPPED)
            await asyncio.gather(*late, return_exceptions=True)
