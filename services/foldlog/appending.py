"""Appending: each entry stored once, behind the one it expects, whatever happens on the way.

Two things make a repetition harmless. The expected sequence lets an attempt succeed only right
behind a version that this process knows. And an attempt that might be a repetition is made only
where none of its ids is in the lane: the broker says so for what it stored in the last two
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
from foldlog.lanes import Conversation, Conversations, is_late, search_start
from foldlog.publishing import Answer, Outcome, Prepared, attempt, prepare
from foldlog.reading import read_pages
from foldlog.searching import LaneReader
from foldlog_events.entries import BaseVersion, Entry, Lane, Recorded

ATTEMPT_TIMEOUT = 2.0
"""Seconds one attempt waits for its answer before it is looked for in the log."""
CANCEL_GRACE = 1.0
"""Seconds a cancelled append waits for its answer, and once more to find it in the log."""
_LONGEST_PAUSE = 0.1
_GIVE_WAY = 0.003
"""Seconds at most that a process which has just met others lets them go first. Who is refused
tries again at once, for who waits then loses to those who do not; so it is the others, who have
just stored something, that wait."""
_RIVALS_REMEMBERED = 0.1

_CHANGES = (Outcome.STORED, Outcome.UNKNOWN)
_TRANSIENT = (BrokerUnreachable, RequestTimeout, JetStreamUnavailable, StaleRead)


class Appender:
    """Appends entries for one process."""

    def __init__(self, broker: Broker, *, attempt_timeout: float = ATTEMPT_TIMEOUT) -> None:
        self.broker = broker
        self.attempt_timeout = attempt_timeout
        self.known = Conversations()

    async def append(
        self, entries: Sequence[Entry], *, expect: int | BaseVersion | None, deadline: float
    ) -> tuple[Recorded, ...]:
        """See `Log.append`."""
        prepared = prepare(entries, self.broker.max_payload)
        return await self.append_prepared(prepared, expect=expect, deadline=deadline)

    async def append_prepared(
        self,
        prepared: tuple[Prepared, ...],
        *,
        expect: int | BaseVersion | None = None,
        deadline: float,
    ) -> tuple[Recorded, ...]:
        """Append what was encoded before."""
        until = time.monotonic() + deadline
        first = prepared[0].entry
        conversation = self.known[(first.tenant, first.conversation)]
        append = _Append(self, conversation, prepared, _expectations(prepared, expect), until)
        if conversation.turn.locked():
            await append.wait_turn()
        else:
            await conversation.turn.acquire()
        try:
            return await append.run()
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
    """One append on its way.

    `_left` are the entries still to be stored, `_found` those that were. An attempt that was
    not answered stays in `_open` until its lane has moved past what it expected: until then it
    may still arrive.
    """

    def __init__(
        self,
        appender: Appender,
        conversation: Conversation,
        prepared: tuple[Prepared, ...],
        expect: Mapping[Lane, int] | None,
        until: float,
    ) -> None:
        self._broker = appender.broker
        self._attempt_timeout = appender.attempt_timeout
        self._conversation = conversation
        self._lanes = conversation.lanes
        self._prepared = prepared
        self._left = prepared
        self._found: dict[str, Recorded] = {}
        self._expect = expect
        self._until = until
        self._begun = time.monotonic()
        self._ids = [one.entry.id for one in prepared]
        self._must_search = is_late(self._ids, self._now())
        self._open: list[Mapping[Lane, int]] = []
        self._outrun = False
        self._reason = "other writers were faster"

    async def wait_turn(self) -> None:
        """Waits for earlier appends of this process to the same conversation."""
        try:
            async with asyncio.timeout(max(0.0, self._remaining())):
                await self._conversation.turn.acquire()
        except TimeoutError:
            raise self._timed_out("earlier appends of this process go first") from None

    async def run(self) -> tuple[Recorded, ...]:
        """Attempts until it is known how it went, or the deadline has passed."""
        tries = 0
        try:
            await self._give_way()
            while True:
                self._outrun = False
                try:
                    if await self._advance():
                        return tuple(self._found[entry_id] for entry_id in self._ids)
                except _TRANSIENT as error:
                    self._reason = str(error)
                tries += 1
                await self._pause(tries)
        except asyncio.CancelledError as cancelled:
            await self._cancelled(cancelled)
            raise
        except (ConnectionClosed, BrokerUnreachable, BrokerRefused) as error:
            if self._open:
                raise self._unknown() from error
            raise

    async def _give_way(self) -> None:
        """Lets other processes go first where they were met a moment ago."""
        since = time.monotonic() - self._conversation.rivals_met
        if self._expect is None and since < _RIVALS_REMEMBERED:
            await asyncio.sleep(random.uniform(0, _GIVE_WAY))

    async def _advance(self) -> bool:
        """One round: search where need be, attempt, settle. True once all is stored."""
        if self._must_search and await self._search():
            return True
        expected = self._expected()
        answer = await attempt(
            self._broker,
            self._left,
            expected,
            within=min(self._attempt_timeout, max(0.05, self._remaining() * 0.6)),
            grace=CANCEL_GRACE,
        )
        return await self._settle(answer, expected)

    def _expected(self) -> Mapping[Lane, int]:
        if self._expect is not None:
            return self._expect
        return {lane: known.last for lane, known in self._lanes.items()}

    async def _settle(self, answer: Answer, expected: Mapping[Lane, int]) -> bool:
        """Acts on an answer. True once all is stored."""
        self._reason = answer.reason or self._reason
        match answer.outcome:
            case Outcome.STORED if answer.duplicate:
                await self._take_at(self._left[0], answer.version)
            case Outcome.STORED:
                self._stored(answer.version, expected)
            case Outcome.CONFLICT:
                await self._conflict(answer, expected)
            case Outcome.DUPLICATE:
                self._must_search = True
            case Outcome.UNKNOWN:
                self._open.append({one.lane: expected[one.lane] for one in self._left})
                self._must_search = True
            case Outcome.REFUSED:
                raise BrokerRefused(answer.code, answer.reason, what="the append")
            case Outcome.NOT_WRITTEN:
                pass
        return not self._left

    def _stored(self, last: int, expected: Mapping[Lane, int]) -> None:
        """Takes the entries of a stored attempt; those of a batch have successive versions."""
        previous = dict(expected)
        for version, one in enumerate(self._left, last - len(self._left) + 1):
            recorded = Recorded(version, one.entry, previous[one.lane])
            self._lanes[one.lane].stored(recorded, previous[one.lane])
            previous[one.lane] = version
            self._found[one.entry.id] = recorded
        self._left = ()

    async def _take_at(self, one: Prepared, version: int) -> None:
        """Takes an entry that an earlier attempt stored, as it stands in the log."""
        pages = read_pages(
            self._broker,
            one.entry.tenant,
            one.entry.conversation,
            after=version - 1,
            up_to=version,
            at_least=version,
            within=self._patience(),
        )
        reads = [read async for page in pages for read in page]
        recorded = Recorded(version, one.entry)
        if reads and isinstance(reads[0], Recorded):
            recorded = reads[0]
        self._take({one.entry.id: recorded})

    def _take(self, found: Mapping[str, Recorded]) -> None:
        self._found |= found
        self._left = tuple(one for one in self._left if one.entry.id not in found)

    async def _conflict(self, answer: Answer, expected: Mapping[Lane, int]) -> None:
        """Takes the new ends of the lanes, or raises VersionConflict where one was expected."""
        lanes = self._readers()
        if self._expect is None:
            self._outrun = True
            self._conversation.rivals_met = time.monotonic()
            for lane, reader in lanes.items():
                known = self._lanes[lane]
                alone = len(lanes) == 1 and answer.version
                known.last = answer.version if alone else await reader.last(within=self._patience())
            return
        for lane, reader in lanes.items():
            last = await reader.last(within=self._patience())
            between = await reader.after(expected[lane], at_least=last, within=self._patience())
            own = {
                read.entry.id: read
                for read in between
                if isinstance(read, Recorded) and read.entry.id in self._ids
            }
            self._take(own)
            if last != expected[lane] and any(one.lane == lane for one in self._left):
                raise VersionConflict(expected[lane], last, tuple(between))

    def _readers(self) -> dict[Lane, LaneReader]:
        first = self._prepared[0].entry
        return {
            lane: LaneReader(self._broker, first.tenant, first.conversation, lane)
            for lane in dict.fromkeys(one.lane for one in self._left)
        }

    async def _search(self) -> bool:
        """Takes what the lanes hold of the entries already. True once all is stored."""
        start = search_start(self._ids, self._now())
        for lane, reader in self._readers().items():
            known = self._lanes[lane]
            await reader.catch_up(known, start, within=self._patience())
        for one in self._left:
            version = (self._lanes[one.lane].ids or {}).get(one.entry.id)
            if version is not None:
                await self._take_at(one, version)
        self._open = [ghost for ghost in self._open if self._may_arrive(ghost)]
        return not self._left

    def _may_arrive(self, ghost: Mapping[Lane, int]) -> bool:
        return all(self._lanes[lane].last <= version for lane, version in ghost.items())

    async def _pause(self, tries: int) -> None:
        """Waits with jitter, and for the connection. Raises once the deadline has passed."""
        if not self._outrun:
            pause = random.uniform(0, min(_LONGEST_PAUSE, 0.001 * 2 ** min(tries, 10)))
            await asyncio.sleep(max(0.0, min(pause, self._remaining())))
        await self._broker.wait_connected(max(0.0, self._remaining()))
        if self._remaining() > 0:
            return
        if self._open:
            raise self._unknown()
        raise self._timed_out(self._reason)

    async def _cancelled(self, cancelled: asyncio.CancelledError) -> None:
        """Notes on a cancellation what is known. Raises AppendOutcomeUnknown where nothing is."""
        answer = cancelled.args[0] if cancelled.args else None
        cancelled.args = ()
        try:
            async with asyncio.timeout(CANCEL_GRACE):
                if isinstance(answer, Answer) and answer.outcome in _CHANGES:
                    await self._settle(answer, self._expected())
                if self._open:
                    await self._search()
        except (FoldlogError, TimeoutError, asyncio.CancelledError):
            raise self._unknown() from cancelled
        if self._left and self._open:
            raise self._unknown() from cancelled
        versions = [recorded.version for recorded in self._found.values()]
        cancelled.add_note(
            "of this append nothing was stored"
            if not versions
            else f"of this append was stored: versions {sorted(versions)}"
        )

    def _now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self._broker.clock_offset)

    def _remaining(self) -> float:
        return self._until - time.monotonic()

    def _patience(self) -> float:
        return max(0.05, self._remaining())

    def _timed_out(self, reason: str) -> AppendTimedOut:
        return AppendTimedOut(round(self._until - self._begun, 3), reason)

    def _unknown(self) -> AppendOutcomeUnknown:
        return AppendOutcomeUnknown(tuple(one.entry.id for one in self._left), self._reason)
