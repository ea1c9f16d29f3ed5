"""The record of compaction attempts: the stream `COMPACTIONS`, one subject for a conversation."""

from datetime import UTC, datetime

import msgspec

from foldlog.broker import REQUEST_TIMEOUT, Broker
from foldlog.errors import BrokerRefused
from foldlog.reading import direct_retrying, messages
from foldlog.topology import COMPACTIONS, compaction_subject
from foldlog_projections.attempts import CompactionRecord
from foldlog_projections.policy import Policy
from foldlog_projections.pressure import Attempt, Unreachable, attempted

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(CompactionRecord).decode


class AttemptLog:
    """Starts and ends of attempts, kept for thirty days."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def add(self, record: CompactionRecord) -> None:
        """Keep one record."""
        await publish_stored(
            self._broker,
            compaction_subject(record.tenant, record.conversation),
            _encode(record),
        )

    async def read(self, tenant: str, conversation: str) -> list[CompactionRecord]:
        """All records of a conversation, in the order in which they were made."""
        subject = compaction_subject(tenant, conversation)
        return [
            _decode(stored.data)
            async for page in messages(self._broker, COMPACTIONS, subject)
            for stored in page
        ]

    async def last(self, tenant: str, conversation: str) -> Attempt | None:
        """What the last record says of when the next attempt is due.

        None while an attempt is under way, and where none was made.
        """
        found, _ = await direct_retrying(
            self._broker,
            COMPACTIONS,
            {"multi_last": [compaction_subject(tenant, conversation)], "batch": 1},
            within=REQUEST_TIMEOUT,
        )
        return _decode(found[0].data).attempt if found else None

    async def unreachable(self, found: Unreachable, policy: Policy) -> None:
        """Keep that no compaction can help, which is said once for each policy."""
        await self.add(
            CompactionRecord(
                id=f"unreachable-{found.version}",
                tenant=found.tenant,
                conversation=found.conversation,
                state="declined",
                time=datetime.now(UTC),
                version=found.version,
                reason=(
                    f"the prompt alone takes {found.fixed} tokens and the limit is {found.hard}: "
                    "shorten its sections or offer fewer tools"
                ),
                tokens_before=found.fixed,
                policy=policy.name,
                attempt=attempted(
                    found,
                    policy,
                    "unreachable",
                    None,
                    head=found.head,
                    now=datetime.now(UTC).timestamp(),
                ),
            )
        )


async def publish_stored(broker: Broker, subject: str, data: bytes) -> int:
    """Publish to a stream and wait until it is stored; its sequence. Raises BrokerRefused."""
    answer = msgspec.json.decode((await broker.request(subject, data)).data)
    if error := answer.get("error"):
        raise BrokerRefused(error.get("err_code", 0), error.get("description", ""), what=subject)
    return int(answer["seq"])
