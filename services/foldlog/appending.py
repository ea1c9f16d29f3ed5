"""Appending: each entry stored once, behind the one it expects, whatever happens on the way.

Two things make a repetition harmless. The expected sequence lets an attempt succeed only right
behind a version that this process knows. And before an attempt that might be a repetition, the
lane is known to hold none of the ids: the broker says so for what it stored in the last two
minutes, a read of the lane says so for the time before.
"""

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from foldlog.broker import Broker
from foldlog.errors import (
    AppendOutcomeUnknown,
    AppendTimedOut,
    BrokerRefused,
    BrokerUnreachable,
    ConnectionClosed,
    FoldlogError,
    InvalidEntry,
    JetStreamUnavailable,
    RequestTimeout,
    StaleRead,
    VersionConflict,
)
from foldlog.lanes import BEGINNING, Conversation, Conversations, LaneKnowledge, search_start
from foldlog.publishing import Answer, Outcome, Prepared, attempt, prepare
from foldlog.reading import Read, leader_last, messages, read_pages, read_stored
from foldlog.topology import entries_stream
from foldlog_events.entries import BaseVersion, Entry, Lane, Recorded

ATTEMPT_TIMEOUT = 2.0
"""Seconds one attempt waits for its answer before it is looked for in the log."""
CANCEL_GRACE = 2.0
"""Seconds a cancelled append waits for its answer."""
_LONGEST_PAUSE = 0.1

_TRANSIENT = (BrokerUnreachable, RequestTimeout, JetStreamUnavailable, StaleRead)


class Appender:
    """Appends entries. `clock_offset` is the broker's clock minus this process's, in seconds."""

    def __init__(
        self,
        broker: Broker,
        *,
        attempt_timeout: float = ATTEMPT_TIMEOUT,
        clock_offset: float = 0.0,
    ) -> None:
        self.broker = broker
        self.attempt_timeout = attempt_timeout
        self.clock_offset = clock_offset
        self.known = Conversations()

    async def append(
        self,
        entries: Sequence[Entry],
        *,
        expect: int | BaseVersion | None,
        deadline: float,
    ) -> tuple[Recorded, ...]:
        """See `Log.append`."""
        prepared = prepare(entries, self.broker.max_payload)
        first = prepared[0].entry
        conversation = self.known[(first.tenant, first.conversation)]
        until = time.monotonic() + deadline
        try:
            async with asyncio.timeout(deadline):
                await conversation.turn.acquire()
        except TimeoutError:
            raise AppendTimedOut(deadline, "earlier appends of this process go first") from None
        try:
            now = datetime.now(UTC) + timedelta(seconds=self.clock_offset)
            ids = [one.entry.id for one in prepared]
            run = _Append(
                self, conversation, prepared, _expectations(prepared, expect), until, deadline
            )
            run.search_from = search_start(ids, now)
            return await run.run()
        finally:
            conversation.turn.release()


def _expectations(
    prepared: Sequence[Prepared], expect: int | BaseVersion | None
) -> Mapping[Lane, int] | None:
    if expect is None:
        return None
    if isinstance(expect, BaseVersion):
        return {"log": expect.log, "shape": expect.shape}
    lanes = {one.lane for one in prepared}
    if len(lanes) > 1:
        raise InvalidEntry(
            "these entries are on both lanes: expect a BaseVersion, with a version for each"
        )
    return dict.fromkeys(lanes, expect)


class _Append:
    """One append on its way."""

    def __init__(
        self,
        appender: Appender,
        conversation: Conversation,
        prepared: tuple[Prepared, ...],
        expect: Mapping[Lane, int] | None,
        until: float,
        deadline: float,
    ) -> None:
        self.appender = appender
        self.broker = appender.broker
        self.lanes = conversation.lanes
        self.prepared = prepared
        self.expect = expect
        self.until = until
        self.deadline = deadline
        self.tenant = prepared[0].entry.tenant
        self.conversation = prepared[0].entry.conversation
        self.search_from: datetime | None = None
        """Where set: no attempt before the lanes were searched for the ids from then on."""
        self.unresolved = ""
        """Why an earlier attempt may have been stored, unknown to us; empty where it was not."""
        self.held_up = ""

    async def run(self) -> tuple[Recorded, ...]:
        """Attempts until it is known how it went, or the deadline has passed."""
        tries = 0
        while True:
            try:
                if self.search_from is not None and (found := await self._search()):
                    return found
                expected = self._expected()
                answer = await attempt(
                    self.broker,
                    self.prepared,
                    expected,
                    within=self._attempt_timeout(),
                    grace=CANCEL_GRACE,
                )
                if recorded := await self._settle(answer, expected):
                    return recorded
            except asyncio.CancelledError as cancelled:
                await self._cancelled(cancelled)
                raise
            except ConnectionClosed as error:
                if self.unresolved:
                    raise self._unknown() from error
                raise
            except _TRANSIENT as error:
                self.held_up = str(error)
            tries += 1
            await self._pause(tries)

    def _left(self) -> float:
        return self.until - time.monotonic()

    def _attempt_timeout(self) -> float:
        return min(self.appender.attempt_timeout, max(0.05, self._left() * 0.6))

    def _expected(self) -> Mapping[Lane, int]:
        if self.expect is not None:
            return self.expect
        return {lane: known.last for lane, known in self.lanes.items()}

    async def _settle(
        self, answer: Answer, expected: Mapping[Lane, int]
    ) -> tuple[Recorded, ...] | None:
        """Acts on an answer: what was stored, or None for another attempt."""
        match answer.outcome:
            case Outcome.STORED if answer.duplicate:
                return await self._stored_before(answer.version)
            case Outcome.STORED:
                return self._stored(answer.version, expected)
            case Outcome.CONFLICT:
                await self._conflict(answer, expected)
            case Outcome.DUPLICATE:
                self.search_from = self._search_from()
            case Outcome.UNKNOWN:
                self.unresolved = self.held_up = answer.reason
                self.search_from = self._search_from()
            case Outcome.NOT_WRITTEN:
                self.held_up = answer.reason
            case Outcome.REFUSED:
                raise BrokerRefused(answer.code, answer.reason, what="the append")
        return None

    def _stored(self, last: int, expected: Mapping[Lane, int]) -> tuple[Recorded, ...]:
        """The entries of the attempt that was stored: a batch has successive versions."""
        first = last - len(self.prepared) + 1
        previous = dict(expected)
        recorded = []
        for version, one in enumerate(self.prepared, first):
            predecessor = previous[one.lane]
            stored = Recorded(version, one.entry, predecessor)
            self.lanes[one.lane].advance(stored, predecessor)
            previous[one.lane] = version
            recorded.append(stored)
        return tuple(recorded)

    async def _stored_before(self, version: int) -> tuple[Recorded, ...] | None:
        one = self.prepared[0]
        pages = read_pages(
            self.broker,
            self.tenant,
            self.conversation,
            after=version - 1,
            up_to=version,
            at_least=version,
            within=max(0.05, self._left()),
        )
        async for page in pages:
            for read in page:
                if isinstance(read, Recorded) and read.entry.id == one.entry.id:
                    known = self.lanes[one.lane]
                    known.last = max(known.last, version)
                    return (read,)
        raise StaleRead(version, version - 1)

    async def _conflict(self, answer: Answer, expected: Mapping[Lane, int]) -> None:
        """Takes the new tails, or raises VersionConflict where the caller gave the version."""
        if self.expect is None:
            if len(self.prepared) == 1 and answer.version:
                self.lanes[self.prepared[0].lane].last = answer.version
            else:
                await self._refresh()
            return
        self.search_from = self._search_from()
        if await self._all_found():
            return
        for lane in dict.fromkeys(one.lane for one in self.prepared):
            since = await self._lane_after(lane, expected[lane])
            if since:
                raise VersionConflict(expected[lane], since[-1].version, tuple(since))
        if answer.version and len(self.prepared) == 1:
            raise VersionConflict(expected[self.prepared[0].lane], answer.version, ())

    async def _lane_after(self, lane: Lane, version: int) -> list[Read]:
        last = await leader_last(self.broker, self._stream, self._subject(lane))
        pages = read_pages(
            self.broker,
            self.tenant,
            self.conversation,
            lane=lane,
            after=version,
            at_least=last,
            within=max(0.05, self._left()),
        )
        return [read async for page in pages for read in page]

    @property
    def _stream(self) -> str:
        return entries_stream(self.tenant, self.conversation)

    def _subject(self, lane: Lane) -> str:
        return next(one.subject for one in self.prepared if one.lane == lane)

    async def _refresh(self) -> None:
        for lane in {one.lane for one in self.prepared}:
            last = await leader_last(self.broker, self._stream, self._subject(lane))
            self.lanes[lane].last = last

    def _search_from(self) -> datetime:
        """A repetition of this call's own attempts cannot be older than the call."""
        begun = datetime.now(UTC) + timedelta(seconds=self.appender.clock_offset - self.deadline)
        start = search_start([one.entry.id for one in self.prepared], begun)
        if start is not None:
            return start
        return begun - timedelta(seconds=600)

    async def _search(self) -> tuple[Recorded, ...] | None:
        """Brings the known ids up to the lanes' ends; what was found of this append.

        Where only some of the entries are in the log, the others are left to be appended.
        """
        for lane in dict.fromkeys(one.lane for one in self.prepared):
            await self._catch_up(lane)
        return self._found()

    async def _all_found(self) -> bool:
        return await self._search() is not None

    def _found(self) -> tuple[Recorded, ...] | None:
        found = []
        for one in self.prepared:
            ids = self.lanes[one.lane].ids or {}
            if one.entry.id not in ids:
                break
            found.append(ids[one.entry.id])
        if len(found) == len(self.prepared):
            return tuple(found)
        return None

    async def _catch_up(self, lane: Lane) -> None:
        assert self.search_from is not None
        known = self.lanes[lane]
        last = await leader_last(self.broker, self._stream, self._subject(lane))
        if known.ids is None or known.known_from > self.search_from:
            known.ids, known.known_from, known.through = {}, self.search_from, 0
            if last:
                await self._read_since(lane, known)
        if known.through < last:
            pages = read_pages(
                self.broker,
                self.tenant,
                self.conversation,
                lane=lane,
                after=known.through,
                at_least=last,
                within=max(0.05, self._left()),
            )
            async for page in pages:
                known.note(page)
        known.last = max(known.through, last)

    async def _read_since(self, lane: Lane, known: LaneKnowledge) -> None:
        since = None if known.known_from == BEGINNING else known.known_from.isoformat()
        async for page in messages(
            self.broker,
            self._stream,
            self._subject(lane),
            since=since,
            within=max(0.05, self._left()),
        ):
            known.note([read_stored(stored) for stored in page])

    async def _pause(self, tries: int) -> None:
        """Waits with jitter, and for the connection. Raises once the deadline has passed."""
        pause = random.uniform(0, min(_LONGEST_PAUSE, 0.001 * 2 ** min(tries, 10)))
        try:
            await asyncio.sleep(max(0.0, min(pause, self._left())))
            await self.broker.wait_connected(max(0.0, self._left()))
        except BrokerUnreachable:
            if not self.unresolved:
                raise
        except ConnectionClosed:
            if not self.unresolved:
                raise
            raise self._unknown() from None
        if self._left() > 0:
            return
        if self.unresolved:
            raise self._unknown()
        raise AppendTimedOut(self.deadline, self.held_up or "other writers were faster")

    def _unknown(self) -> AppendOutcomeUnknown:
        return AppendOutcomeUnknown(tuple(one.entry.id for one in self.prepared), self.unresolved)

    async def _cancelled(self, cancelled: asyncio.CancelledError) -> None:
        """Notes what is known on a cancellation. Raises AppendOutcomeUnknown where nothing is."""
        answer = cancelled.args[0] if cancelled.args else None
        if isinstance(answer, Answer):
            cancelled.args = ()
            if answer.outcome is Outcome.STORED:
                cancelled.add_note(f"the append was stored, its last version is {answer.version}")
                return
            if answer.outcome is Outcome.UNKNOWN:
                self.unresolved = self.unresolved or "cancelled before the answer came"
        if self.unresolved:
            try:
                self.search_from = self.search_from or self._search_from()
                async with asyncio.timeout(CANCEL_GRACE):
                    found = await self._search()
            except (FoldlogError, TimeoutError):
                raise self._unknown() from cancelled
            if found is None:
                raise self._unknown() from cancelled
            cancelled.add_note(f"the append was stored, its last version is {found[-1].version}")
            return
        cancelled.add_note("the append was not stored")
