"""A conversation's whole history: its own entries, and those it inherits from its parents."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import NamedTuple

from foldlog.lanes import ALLOWANCE, made_at
from foldlog.log import Log
from foldlog.reading import Read
from foldlog.seeking import LATEST, first_entry, version_at_time
from foldlog_events.entries import ForkEntry, Lane, Recorded


class Stretch(NamedTuple):
    """What a conversation shows of itself or of an ancestor: the entries up to a version."""

    conversation: str
    up_to: int
    fork: Recorded | None
    """The stretch's own first entry, where it is a fork."""


async def lineage(log: Log, tenant: str, conversation: str) -> tuple[Stretch, ...]:
    """The oldest ancestor first, the conversation itself last."""
    stretches: list[Stretch] = []
    up_to = LATEST
    while True:
        first = await first_entry(log.broker, tenant, conversation)
        fork = first.entry if isinstance(first, Recorded) else None
        if not isinstance(first, Recorded) or not isinstance(fork, ForkEntry):
            stretches.append(Stretch(conversation, up_to, None))
            return tuple(reversed(stretches))
        if first.version <= up_to:
            stretches.append(Stretch(conversation, up_to, first))
            up_to = fork.parent_version
        conversation, up_to = fork.parent, min(up_to, fork.parent_version)


async def history(
    log: Log,
    tenant: str,
    conversation: str,
    *,
    after: int = 0,
    up_to: int = LATEST,
    lane: Lane | None = None,
    at_least: int = 0,
) -> AsyncIterator[Read]:
    """All that a conversation says and inherits, oldest first.

    Versions are of one stream, so `after` and `up_to` hold for ancestors too. `at_least` is a
    version that the conversation is known to have.
    """
    for stretch in await lineage(log, tenant, conversation):
        end = min(up_to, stretch.up_to)
        own = stretch.conversation == conversation
        async for read in log.read(
            tenant,
            stretch.conversation,
            after=after,
            up_to=None if end == LATEST else end,
            lane=lane,
            at_least=at_least if own else None,
        ):
            yield read


async def find_entry(
    log: Log, tenant: str, conversation: str, entry_id: str, *, up_to: int = LATEST
) -> Recorded | None:
    """The first entry with an id; None where the conversation has none up to that version.

    A UUIDv7 tells when it was made: it is looked for from shortly before that on, and only then
    in what is older. Any other id is looked for from the beginning.
    """
    made = made_at(entry_id)
    start = 0
    if made is not None:
        since = max(made - ALLOWANCE, datetime.fromtimestamp(0, UTC))
        start = await version_at_time(log.broker, tenant, conversation, since)
    if start != LATEST:
        found = await _find(log, tenant, conversation, entry_id, start, up_to)
        if found is not None or not start:
            return found
    return await _find(log, tenant, conversation, entry_id, 0, min(start, up_to))


async def _find(
    log: Log, tenant: str, conversation: str, entry_id: str, after: int, up_to: int
) -> Recorded | None:
    end = None if up_to == LATEST else up_to
    async for read in log.read(tenant, conversation, after=after, up_to=end):
        if isinstance(read, Recorded) and read.entry.id == entry_id:
            return read
    return None
