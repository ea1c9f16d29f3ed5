"""A writer of a run: `python -m tests.faults.writer SPEC`.

It appends until its journal holds as many acknowledged appends as it was told to make. Killed
and started again, it asks first what became of what it had begun.
"""

import asyncio
import contextlib
import random
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

import msgspec

from foldlog import appending, streams
from foldlog.artifacts import Artifacts
from foldlog.contexts import Contexts
from foldlog.errors import (
    AppendOutcomeUnknown,
    AppendTimedOut,
    BrokerRefused,
    BrokerUnreachable,
    ConnectionClosed,
    FoldlogError,
    JetStreamUnavailable,
    RequestTimeout,
    VersionConflict,
)
from foldlog.log import Log, open_log
from foldlog.views import Views
from foldlog_events.codec import decode, encode
from foldlog_events.entries import DEFAULT_TENANT, Entry, Recorded, lane_of
from foldlog_events.messages import Seen
from tests.faults.journal import Journal, Line, What, open_intents, read
from tests.faults.writing import Author, Spec

NOTHING_WRITTEN = (AppendTimedOut, BrokerUnreachable, BrokerRefused, VersionConflict)
"""What `Log.append` raises where it promises that nothing was written."""
ASK_AGAIN_SHARE = 0.7
"""Of the appends that a killed writer had begun; nobody asks again for the others."""
LOOK_SHARE = 0.05
DEADLINES = (0.4, 2.0, 10.0)
PAUSE_AFTER_REFUSAL = 0.05


class Writer:
    """Appends one batch after the other, and keeps its journal."""

    def __init__(self, log: Log, spec: Spec, journal: Journal, lines: list[Line]) -> None:
        self._log = log
        self._contexts = Contexts(log, Views(log.broker, Artifacts(log.broker)))
        self._spec = spec
        self._journal = journal
        self._random = random.Random(f"{spec.seed} {spec.name} {len(lines)}")
        self._author = Author(spec.name, self._random, spec.clock_hours)
        self._last: dict[str, int] = {}
        self._open = open_intents(lines)
        self._done = sum(line.what == "acknowledged" for line in lines)

    async def run(self) -> None:
        """Finish what an earlier process began, then append until there is enough."""
        for intent in self._open:
            if self._random.random() < ASK_AGAIN_SHARE:
                entries = tuple(decode(bytes(raw)) for raw in intent.entries)
                await self._settle(intent.conversation, entries, time.monotonic(), asked=True)
            else:
                self._note("abandoned", intent.conversation, intent.ids)
        while self._done < self._spec.appends:
            conversation = self._random.choice(self._spec.conversations)
            entries = self._author.batch(conversation, await self._look(conversation))
            self._journal.write(
                Line(
                    what="intent",
                    conversation=conversation,
                    ids=_ids(entries),
                    entries=tuple(msgspec.Raw(encode(entry)) for entry in entries),
                    started=time.monotonic(),
                )
            )
            await self._settle(conversation, entries, time.monotonic())
            await asyncio.sleep(self._random.uniform(0, 2 * self._spec.pause))

    async def _look(self, conversation: str) -> Seen | None:
        """Now and then, the context that the next entry answers: the audit checks its digest."""
        if self._random.random() > LOOK_SHARE:
            return None
        last = self._last.get(conversation, 0)
        try:
            context = await self._contexts.current(DEFAULT_TENANT, conversation, at_least=last)
        except FoldlogError:
            return None
        view = context.view()
        assert view.base_version.log >= last, "a context without what its reader wrote"
        return Seen(version=view.version, digest=view.digest)

    async def _settle(
        self, conversation: str, entries: Sequence[Entry], started: float, *, asked: bool = False
    ) -> None:
        """Try until it is known what became of an append, and note that.

        `asked` is true where an earlier try has an unknown outcome: that a later one wrote
        nothing then says nothing about the entries.
        """
        while True:
            try:
                recorded = await self._append(conversation, entries, may_expect=not asked)
                break
            except AppendOutcomeUnknown:
                asked = True
            except (*NOTHING_WRITTEN, asyncio.CancelledError) as error:
                if isinstance(error, VersionConflict):
                    self._last[conversation] = error.actual
                notes = "".join(getattr(error, "__notes__", ()))
                if isinstance(error, asyncio.CancelledError) and "nothing was stored" not in notes:
                    asked = True
                elif not asked:
                    self._note(
                        "refused",
                        conversation,
                        _ids(entries),
                        reason=f"{type(error).__name__}: {error} {notes}",
                    )
                    await asyncio.sleep(PAUSE_AFTER_REFUSAL)
                    return
                await asyncio.sleep(PAUSE_AFTER_REFUSAL)
        self._journal.write(
            Line(
                what="acknowledged",
                conversation=conversation,
                ids=tuple(one.entry.id for one in recorded),
                versions=tuple(one.version for one in recorded),
                started=started,
                ended=time.monotonic(),
            )
        )
        self._done += 1
        self._author.remember(conversation, entries)
        logged = [one.version for one in recorded if lane_of(one.entry) == "log"]
        self._last[conversation] = max([*logged, self._last.get(conversation, 0)])

    async def _append(
        self, conversation: str, entries: Sequence[Entry], *, may_expect: bool
    ) -> Sequence[Recorded]:
        expect = None
        if (
            may_expect
            and self._random.random() < 0.25
            and {lane_of(entry) for entry in entries} == {"log"}
        ):
            expect = self._last.get(conversation)
        append = asyncio.create_task(
            self._log.append(entries, expect=expect, deadline=self._random.choice(DEADLINES))
        )
        if self._random.random() < 0.03:
            await asyncio.sleep(self._random.uniform(0, 0.02))
            append.cancel()
        return await append

    def _note(
        self, what: What, conversation: str, ids: tuple[str, ...], *, reason: str = ""
    ) -> None:
        self._journal.write(Line(what=what, conversation=conversation, ids=ids, reason=reason))


def _ids(entries: Sequence[Entry]) -> tuple[str, ...]:
    return tuple(entry.id for entry in entries)


def set_clock_ahead(hours: float) -> None:
    """For the client, the clock of this process is off by some hours."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + timedelta(hours=hours)

    for module in (appending, streams):
        module.datetime = Clock  # type: ignore[attr-defined]


async def opened(url: str, stack: contextlib.AsyncExitStack) -> Log:
    """A log; a broker that is away is waited for."""
    while True:
        try:
            return await stack.enter_async_context(open_log(url))
        except (BrokerUnreachable, JetStreamUnavailable, RequestTimeout, BrokerRefused):
            await asyncio.sleep(0.2)


async def main(spec: Spec) -> None:
    path = Path(spec.journal)
    lines = list(read(path))
    async with contextlib.AsyncExitStack() as stack:
        log = await opened(spec.url, stack)
        await Writer(log, spec, Journal(path), lines).run()


if __name__ == "__main__":
    given = msgspec.json.decode(sys.argv[1], type=Spec)
    try:
        set_clock_ahead(given.clock_hours)
        asyncio.run(main(given))
    except ConnectionClosed as error:
        sys.exit(str(error))
