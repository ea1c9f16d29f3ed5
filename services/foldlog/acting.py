"""Actions outside the conversation, taken step by step, so that two workers never start one.

A step is checked against the ledger and appended behind the very version that the ledger was
folded to: where anything was written meanwhile, it is folded and the step is checked anew.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from typing import Any, TypedDict

from foldlog.errors import AppendTimedOut, VersionConflict
from foldlog.history import lineage
from foldlog.log import Log
from foldlog.reading import Read
from foldlog_events.entries import ActionEntry, Recorded
from foldlog_projections.actions import Ledger, check_step, fold, inherit


class StepFields(TypedDict, total=False):
    """What a step may say beside its kind; see ActionEntry."""

    name: str
    arguments: dict[str, Any] | None
    arguments_digest: str | None
    expires: datetime | None
    result: Any
    reason: str


class Actions:
    """The ledger of one conversation, folded on as it is asked for.

    The first use reads the conversation's `log` lane and what it inherits once, for the log has
    no index of actions; later uses read what came after.
    """

    def __init__(self, log: Log, tenant: str, conversation: str) -> None:
        self._log = log
        self._tenant = tenant
        self._conversation = conversation
        self._ledger: Ledger | None = None
        self._version = 0

    async def ledger(self, *, at_least: int = 0) -> Ledger:
        """Every action as it stands. `at_least` is a version known to be in the log."""
        if self._ledger is None:
            self._ledger = await self._inherited()
        reads = self._log.read(
            self._tenant,
            self._conversation,
            after=self._version,
            lane="log",
            at_least=at_least,
        )
        self._fold(self._ledger, [read async for read in reads])
        return self._ledger

    async def take(self, entry: ActionEntry, *, deadline: float) -> Recorded:
        """Append a step, if the ledger allows it; where it was taken already, what says so.

        Raises InvalidTransition where the step would change nothing, and AppendTimedOut after
        `deadline` seconds: in both cases nothing was written.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + deadline
        ledger = await self.ledger()
        while True:
            check_step(ledger, entry)
            known = await self._known(ledger, entry)
            if known is not None:
                return known
            left = until - loop.time()
            if left <= 0:
                raise AppendTimedOut(deadline, "other writers were faster each time")
            try:
                (recorded,) = await self._log.append((entry,), expect=self._version, deadline=left)
            except VersionConflict as conflict:
                ledger = self._fold(ledger, conflict.entries)
                self._version = max(self._version, conflict.actual)
                continue
            if recorded.predecessor == self._version:
                self._fold(ledger, (recorded,))
            return recorded

    async def _known(self, ledger: Ledger, entry: ActionEntry) -> Recorded | None:
        action = ledger.actions.get(entry.action)
        taken = action.taken(entry.step) if action else None
        if taken is None:
            return None
        reads = await self._log.get(self._tenant, self._conversation, taken.version)
        return reads if isinstance(reads, Recorded) else Recorded(taken.version, entry)

    async def _inherited(self) -> Ledger:
        ledger = Ledger()
        for stretch in await lineage(self._log, self._tenant, self._conversation):
            if stretch.fork is not None:
                ledger = inherit(ledger, stretch.fork.version)
            if stretch.conversation != self._conversation:
                reads = self._log.read(
                    self._tenant, stretch.conversation, up_to=stretch.up_to, lane="log"
                )
                ledger = fold(ledger, await _actions(reads))
        return ledger

    def _fold(self, ledger: Ledger, reads: Iterable[Read]) -> Ledger:
        reads = tuple(reads)
        self._ledger = fold(ledger, [read for read in reads if isinstance(read, Recorded)])
        if reads:
            self._version = max(self._version, reads[-1].version)
        return self._ledger


async def _actions(reads: AsyncIterator[Read]) -> list[Recorded]:
    """Only the steps: a parent's history is long, and the rest of it says nothing here."""
    return [
        read
        async for read in reads
        if isinstance(read, Recorded) and isinstance(read.entry, ActionEntry)
    ]
