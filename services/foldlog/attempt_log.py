"""The record of compaction attempts: the stream `COMPACTIONS`, one subject for a conversation."""

from datetime import UTC, datetime

import msgspec

from foldlog.records import Records
from foldlog_projections.attempts import CompactionRecord
from foldlog_projections.policy import Policy
from foldlog_projections.pressure import Attempt, Unreachable, attempted

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(CompactionRecord).decode


class AttemptLog:
    """Starts and ends of attempts, kept for thirty days."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def add(self, record: CompactionRecord) -> None:
        """Keep one record."""
        await self._records.add_compaction(record.tenant, record.conversation, _encode(record))

    async def read(self, tenant: str, conversation: str) -> list[CompactionRecord]:
        """All records of a conversation, in the order in which they were made."""
        return [
            _decode(record.data) for record in await self._records.compactions(tenant, conversation)
        ]

    async def last(self, tenant: str, conversation: str) -> Attempt | None:
        """What the last ended attempt says of when the next one is due; None without any."""
        ended = [record.attempt for record in await self.read(tenant, conversation)]
        return next((attempt for attempt in reversed(ended) if attempt is not None), None)

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
