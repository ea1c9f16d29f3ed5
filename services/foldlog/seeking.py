"""Finding a place in a conversation: its first entry, the version at a time."""

from datetime import UTC, datetime

from foldlog.broker import REQUEST_TIMEOUT, Broker
from foldlog.reading import Read, direct_retrying, read_stored
from foldlog.topology import entries_stream
from foldlog_events.subjects import both_lanes

LATEST = 2**63 - 1
"""A version after every other."""


async def first_entry(broker: Broker, tenant: str, conversation: str) -> Read | None:
    """The first entry of a conversation; None where there is none."""
    found, _ = await direct_retrying(
        broker,
        entries_stream(tenant, conversation),
        {"batch": 1, "seq": 1, "next_by_subj": both_lanes(tenant, conversation)},
        within=REQUEST_TIMEOUT,
    )
    return read_stored(found[0]) if found else None


async def version_at_time(broker: Broker, tenant: str, conversation: str, time: datetime) -> int:
    """The last version the broker had stored at a time; LATEST where nothing came after it.

    It is the broker's clock that counts: a writer's own may be hours off.
    """
    found, _ = await direct_retrying(
        broker,
        entries_stream(tenant, conversation),
        {
            "batch": 1,
            "start_time": time.astimezone(UTC).isoformat(timespec="microseconds"),
            "next_by_subj": both_lanes(tenant, conversation),
        },
        within=REQUEST_TIMEOUT,
    )
    return found[0].version - 1 if found else LATEST
