"""Looking in the log for ids: what an append must know before it may try again."""

from datetime import datetime

from foldlog.broker import Broker
from foldlog.lanes import BEGINNING, LaneKnowledge
from foldlog.reading import Read, leader_last, messages, read_pages, read_stored, stored_at
from foldlog.topology import entries_stream
from foldlog_events.entries import Lane
from foldlog_events.subjects import subject_of


class LaneReader:
    """Reads one lane of a conversation, never behind its stream's leader."""

    def __init__(self, broker: Broker, tenant: str, conversation: str, lane: Lane) -> None:
        self.broker = broker
        self.tenant = tenant
        self.conversation = conversation
        self.lane = lane
        self.stream = entries_stream(tenant, conversation)
        self.subject = subject_of(tenant, conversation, lane)

    async def last(self, *, within: float) -> int:
        """The lane's last version."""
        stored = await leader_last(self.broker, self.stream, self.subject, within=within)
        return stored.version if stored else 0

    async def after(
        self, version: int, *, at_least: int, within: float, up_to: int | None = None
    ) -> list[Read]:
        """What the lane holds after a version, up to `at_least` or further."""
        pages = read_pages(
            self.broker,
            self.tenant,
            self.conversation,
            lane=self.lane,
            after=version,
            up_to=up_to,
            at_least=at_least,
            within=within,
        )
        return [read async for page in pages for read in page]

    async def catch_up(self, known: LaneKnowledge, start: datetime, *, within: float) -> None:
        """Makes `known` hold every id stored from `start` to the lane's end."""
        newest = await leader_last(self.broker, self.stream, self.subject, within=within)
        last = newest.version if newest else 0
        if known.ids is None or known.known_from > start:
            known.ids, known.known_from, known.through = {}, start, 0
            if newest and stored_at(newest) < start:
                known.through = last
            elif newest:
                await self._read_from(start, known, within)
        if known.through < last:
            known.read(await self.after(known.through, at_least=last, within=within))
        known.last = max(known.last, last)

    async def _read_from(self, start: datetime, known: LaneKnowledge, within: float) -> None:
        since = None if start == BEGINNING else start.isoformat()
        async for page in messages(
            self.broker, self.stream, self.subject, since=since, within=within
        ):
            known.read(map(read_stored, page))
