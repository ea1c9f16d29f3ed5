"""Records beside the log: compaction attempts, what could not be handled, pressure."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from secrets import token_hex

import msgspec

from foldlog.broker import Broker
from foldlog.errors import (
    BrokerRefused,
    BrokerUnreachable,
    JetStreamUnavailable,
    RequestTimeout,
)
from foldlog.publishing import Answer, Outcome, meaning
from foldlog.reading import Stored, messages, stored_at
from foldlog.topology import (
    COMPACTIONS,
    DEAD,
    compaction_subject,
    dead_subject,
    pressure_subject,
)
from foldlog_events.subjects import encode_token

DEADLINE = 10.0
"""Seconds that writing a record may take."""
QUEUE_FULL = 10077
_MESSAGE_ID = "Nats-Msg-Id"
_PAUSE = 0.2


class Record(msgspec.Struct, frozen=True):
    """A record as the broker keeps it."""

    version: int
    subject: str
    time: datetime
    """When it was stored, by the broker's clock."""
    data: bytes


class Records:
    """The records behind a connection. What they say is up to who writes them."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    async def add_compaction(self, tenant: str, conversation: str, data: bytes) -> int:
        """Keeps the record of a compaction attempt, for thirty days; its version.

        Raises BrokerRefused, BrokerUnreachable, RequestTimeout, JetStreamUnavailable.
        """
        return await self._add(compaction_subject(tenant, conversation), data)

    async def compactions(self, tenant: str, conversation: str) -> list[Record]:
        """The records of a conversation's compaction attempts, oldest first."""
        subject = compaction_subject(tenant, conversation)
        return [record async for record in self._read(COMPACTIONS, subject)]

    async def add_dead(self, what: str, tenant: str, conversation: str, data: bytes) -> int:
        """Keeps what could not be handled (`what` is `entry`, `pressure`, …); its version."""
        return await self._add(dead_subject(encode_token(what), tenant, conversation), data)

    async def add_dead_tokens(self, what: str, tenant: str, conversation: str, data: bytes) -> int:
        """`add_dead`, by the tokens of a subject: that may be all that can be read of it."""
        return await self._add(f"dead.{encode_token(what)}.{tenant}.{conversation}", data)

    async def remove_dead(self, version: int) -> None:
        """Removes the record at a version. Raises BrokerRefused where there is none."""
        await self.broker.api(f"STREAM.MSG.DELETE.{DEAD}", {"seq": version, "no_erase": True})

    async def dead(
        self, what: str | None = None, tenant: str | None = None, conversation: str | None = None
    ) -> list[Record]:
        """What could not be handled, oldest first: of a kind, tenant, conversation, or all."""
        tokens = (encode_token(part) if part else "*" for part in (what, tenant, conversation))
        return [record async for record in self._read(DEAD, f"dead.{'.'.join(tokens)}")]

    async def announce_pressure(self, tenant: str, conversation: str, data: bytes) -> int | None:
        """Queues work for a conversation, and its place in the queue.

        None where some is queued or in progress already.
        """
        answer = await self._publish(pressure_subject(tenant, conversation), data)
        if answer.code == QUEUE_FULL:
            return None
        _check(answer)
        return answer.version

    async def _add(self, subject: str, data: bytes) -> int:
        answer = await self._publish(subject, data)
        _check(answer)
        return answer.version

    async def _publish(self, subject: str, data: bytes) -> Answer:
        """Repeats until the outcome is known; the broker recognises a repetition by its id."""
        headers = {_MESSAGE_ID: token_hex(12)}
        loop = asyncio.get_running_loop()
        deadline = loop.time() + DEADLINE
        while True:
            try:
                await self.broker.wait_connected(deadline - loop.time())
                left = max(0.05, deadline - loop.time())
                message = await self.broker.request(
                    subject, data, headers=headers, within=min(2.0, left)
                )
                return meaning(message)
            except (BrokerUnreachable, RequestTimeout, JetStreamUnavailable):
                if deadline - loop.time() <= _PAUSE:
                    raise
                await asyncio.sleep(_PAUSE)

    async def _read(self, stream: str, subject: str) -> AsyncIterator[Record]:
        async for page in messages(self.broker, stream, subject):
            for stored in page:
                yield _record(stored)


def _record(stored: Stored) -> Record:
    return Record(stored.version, stored.subject, stored_at(stored), stored.data)


def _check(answer: Answer) -> None:
    if answer.outcome is not Outcome.STORED:
        raise BrokerRefused(answer.code, answer.reason, what="a record")
