"""The log of conversations: append, read, watch."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from foldlog import reading
from foldlog.appending import ATTEMPT_TIMEOUT, Appender
from foldlog.broker import REQUEST_TIMEOUT, Broker, connect
from foldlog.reading import Read
from foldlog.streams import set_up
from foldlog_events.entries import BaseVersion, Entry, Lane, Recorded

DEADLINE = 10.0
"""Seconds an append may take, all its attempts together."""


class Log:
    """The log behind a connection whose streams are set up."""

    def __init__(
        self,
        broker: Broker,
        *,
        attempt_timeout: float = ATTEMPT_TIMEOUT,
        clock_offset: float = 0.0,
    ) -> None:
        self.broker = broker
        self._appender = Appender(
            broker, attempt_timeout=attempt_timeout, clock_offset=clock_offset
        )

    async def append(
        self,
        entries: Sequence[Entry],
        *,
        expect: int | BaseVersion | None = None,
        deadline: float = DEADLINE,
    ) -> tuple[Recorded, ...]:
        """Appends entries of one conversation, all of them or none; returns their versions.

        Without `expect` they go to the end of their lanes, whoever else writes. With it, they
        are stored only right behind that version of their lane (a BaseVersion where they are on
        both lanes); else VersionConflict holds what came in between.

        Appending the same entries again (the same ids) returns the versions they have. For two
        minutes the broker knows the ids; an id that is older than a minute by its UUIDv7 time
        is looked for in its lane first, from ten minutes before that time on, and an id that is
        no UUIDv7 in the whole lane, once per process and conversation. Where the clock that
        made a UUIDv7 was more than ten minutes behind the broker's or ahead of it, only the
        broker's two minutes hold, unless the clock is ahead of this process too.

        Raises InvalidEntry, EntryTooLarge, VersionConflict, BrokerRefused, AppendTimedOut,
        BrokerUnreachable, ConnectionClosed: in all these cases nothing was written. Raises
        AppendOutcomeUnknown where `deadline` seconds did not do to learn the outcome. When
        cancelled while it publishes, it first waits up to two seconds for the outcome, which
        the CancelledError then carries as a note.
        """
        return await self._appender.append(entries, expect=expect, deadline=deadline)

    async def read(
        self,
        tenant: str,
        conversation: str,
        *,
        after: int = 0,
        up_to: int | None = None,
        lane: Lane | None = None,
        at_least: int | None = None,
        within: float = REQUEST_TIMEOUT,
    ) -> AsyncIterator[Read]:
        """The entries of a conversation in the order of their versions.

        From `after` (not included) up to `up_to` (included), of both lanes or one. `at_least`
        is a version the caller knows to exist: where the answering server is behind it, the
        stream's leader is asked. `within` is the time in seconds for each page. Raises
        StaleRead, BrokerUnreachable, RequestTimeout, JetStreamUnavailable.
        """
        async for page in reading.read_pages(
            self.broker,
            tenant,
            conversation,
            after=after,
            up_to=up_to,
            lane=lane,
            at_least=at_least,
            within=within,
        ):
            for read in page:
                yield read

    async def read_all(self, tenant: str, conversation: str, **options: Any) -> list[Read]:
        """`read`, as a list."""
        return [read async for read in self.read(tenant, conversation, **options)]

    async def get(self, tenant: str, conversation: str, version: int) -> Read | None:
        """What stands at a version of a conversation; None where that is another's or nothing."""
        found = await self.read_all(tenant, conversation, after=version - 1, up_to=version)
        return found[0] if found else None

    async def last_versions(self, tenant: str, conversation: str) -> BaseVersion:
        """The last version of each lane of a conversation; 0 where a lane is empty."""
        return await reading.last_versions(self.broker, tenant, conversation)

    async def shape_tail(
        self, tenant: str, conversation: str, *, up_to: int | None = None
    ) -> Read | None:
        """The last shape entry of a conversation, at or before a version."""
        return await reading.lane_tail(self.broker, tenant, conversation, "shape", up_to=up_to)


async def _clock_offset(broker: Broker) -> float:
    """Seconds by which the broker's clock is ahead of ours, half a round trip neglected."""
    info = await broker.api("STREAM.INFO.ENTRIES")
    stamp = info.get("ts")
    if not isinstance(stamp, str):
        return 0.0
    theirs = datetime.fromisoformat(stamp[:19] + "+00:00")
    return (theirs - datetime.now(theirs.tzinfo)).total_seconds()


@asynccontextmanager
async def open_log(
    url: str,
    *,
    replicas: int | None = None,
    wait: float = 3.0,
    **options: Any,
) -> AsyncIterator[Log]:
    """Connects, sets the streams up, yields the log and closes the connection.

    Raises BrokerUnreachable, JetStreamUnavailable, StreamMismatch. `options` go to `connect`.
    """
    broker = await connect(url, wait=wait, **options)
    try:
        await set_up(broker, replicas=replicas)
        yield Log(broker, clock_offset=await _clock_offset(broker))
    finally:
        await broker.close()
