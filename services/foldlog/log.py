"""The log of conversations: append, read, watch."""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

from foldlog import listing, reading, watching
from foldlog.appending import ATTEMPT_TIMEOUT, Appender
from foldlog.broker import REQUEST_TIMEOUT, Broker, open_broker
from foldlog.listing import Summary
from foldlog.publishing import Prepared
from foldlog.reading import Read
from foldlog.streams import set_up
from foldlog.topology import ENTRIES, entries_stream
from foldlog_events.entries import BaseVersion, Entry, Lane, Recorded
from foldlog_events.subjects import both_lanes, encode_token

DEADLINE = 10.0
"""Seconds an append may take, all its attempts together."""


class Log:
    """The log behind a connection whose streams are set up."""

    def __init__(self, broker: Broker, *, attempt_timeout: float = ATTEMPT_TIMEOUT) -> None:
        self.broker = broker
        self._appender = Appender(broker, attempt_timeout=attempt_timeout)

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

        Appending the same entries again (the same ids) returns the versions they have, at any
        later time. For two minutes the broker knows the ids it stored. An id older than a minute
        by its UUIDv7 time is first looked for in its lane, among what was stored since that
        time; an id that does not tell its age (no UUIDv7, or ahead of the broker's clock) in
        the whole lane. Such a search is made once for a process and conversation; after it,
        only what others wrote is read. Entries of a call of which some are in the log already
        are not stored twice: the others are appended.

        Raises InvalidEntry, EntryTooLarge, VersionConflict, BrokerRefused, AppendTimedOut,
        BrokerUnreachable, ConnectionClosed: in all these cases nothing was written. Raises
        AppendOutcomeUnknown where `deadline` seconds did not do to learn the outcome. When
        cancelled while it publishes, it first waits up to two seconds for the outcome, which
        the CancelledError then carries as a note.
        """
        return await self._appender.append(entries, expect=expect, deadline=deadline)

    async def append_prepared(
        self, prepared: Sequence[Prepared], *, deadline: float = DEADLINE
    ) -> tuple[Recorded, ...]:
        """`append` of entries of one conversation whose bytes were checked and are kept as given.

        For what is restored: a field that this release does not know stays in them.
        """
        return await self._appender.append_prepared(tuple(prepared), deadline=deadline)

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

    async def watch(
        self,
        tenant: str | None = None,
        conversation: str | None = None,
        *,
        after: int = 0,
    ) -> AsyncIterator[Read]:
        """Entries in the order of their versions, from after a version on, without end.

        Of one conversation, of a tenant, or of all. Breaks of the connection and restarts of
        the broker neither lose nor repeat an entry. Raises StaleRead where the log does not
        reach up to `after` (it was restored), ConnectionClosed, BrokerRefused.
        """
        if tenant is None or conversation is None:
            subject = f"entry.*.{encode_token(tenant) if tenant else '*'}.*.*"
            stream = ENTRIES
        else:
            subject = both_lanes(tenant, conversation)
            stream = entries_stream(tenant, conversation)
        async with aclosing(watching.watch(self.broker, stream, subject, after=after)) as reads:
            async for read in reads:
                yield read

    async def conversations(self, tenant: str | None = None) -> AsyncIterator[Summary]:
        """The conversations of a tenant (of all, where None), with their last versions."""
        async for summary in listing.conversations(self.broker, tenant):
            yield summary


@asynccontextmanager
async def open_log(url: str, *, replicas: int = 1, **options: Any) -> AsyncIterator[Log]:
    """Connects, sets the streams up, yields the log and closes the connection.

    `options` go to `connect`. Raises BrokerUnreachable, JetStreamUnavailable, StreamMismatch.
    """
    async with open_broker(url, **options) as broker:
        await set_up(broker, replicas=replicas)
        yield Log(broker)
