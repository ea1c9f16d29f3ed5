"""Finding a place in a conversation: its first entry, the version at a time."""

from datetime import UTC, datetime
from typing import Any

from foldlog.broker import REQUEST_TIMEOUT, Broker
from foldlog.reading import Read, direct_retrying, read_stored
from foldlog.topology import entries_stream
from foldlog_events.entries import Lane
from foldlog_events.subjects import both_lanes, parse_subject

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


async def lane_tails(
    broker: Broker, tenant: str, conversation: str, up_to: int
) -> dict[Lane, Read]:
    """The last entry of each lane at or before a version; a lane without one is missing."""
    stream = entries_stream(tenant, conversation)
    query: dict[str, Any] = {"multi_last": [both_lanes(tenant, conversation)], "batch": 2}
    found, _ = await direct_retrying(broker, stream, query, within=REQUEST_TIMEOUT)
    if any(stored.version > up_to for stored in found):
        # Only now: the broker finds nothing at all where `up_to_seq` is beyond its last.
        query["up_to_seq"] = up_to
        found, _ = await direct_retrying(broker, stream, query, within=REQUEST_TIMEOUT)
    return {parse_subject(stored.subject).lane: read_stored(stored) for stored in found}


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
