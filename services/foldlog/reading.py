"""Reading the log: entries of one conversation in order, its last versions, its heads."""

import asyncio
import base64
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg

from foldlog.broker import REQUEST_TIMEOUT, Broker, status_of
from foldlog.errors import (
    BrokerRefused,
    BrokerUnreachable,
    JetStreamUnavailable,
    RequestTimeout,
    StaleRead,
)
from foldlog.topology import entries_stream
from foldlog_events.codec import decode
from foldlog_events.entries import (
    BaseVersion,
    ForkEntry,
    Lane,
    Recorded,
    Unreadable,
    kind_of,
    lane_of,
)
from foldlog_events.errors import InvalidIdentifier, UndecodableEntry
from foldlog_events.subjects import both_lanes, parse_subject, subject_of

PAGE_ENTRIES = 512
PAGE_BYTES = 8 * 1024 * 1024
EXPECTED = "Nats-Expected-Last-Subject-Sequence"
PREDECESSOR = "Foldlog-Predecessor"
"""Versions from an entry back to its predecessor, as a negative number; set on the later
entries of one lane in an atomic batch, where the broker refuses an expected sequence."""

_NOT_FOUND = "404"
_END_OF_BATCH = "204"
_NO_MESSAGE = 10037
_RETRY_PAUSE = 0.1

_encode = msgspec.json.Encoder().encode

Read = Recorded | Unreadable
"""What reading yields: an entry, or a place whose bytes are none."""


class Stored(msgspec.Struct, frozen=True):
    """A message as the broker keeps it."""

    subject: str
    version: int
    headers: dict[str, str]
    data: bytes
    time: str = ""
    """When the broker stored it, RFC 3339."""


def stored_at(stored: Stored) -> datetime:
    """When the broker stored a message, to the microsecond."""
    return datetime.fromisoformat(f"{stored.time.rstrip('Z')[:26]}+00:00")


def read_stored(stored: Stored) -> Read:
    """The entry of a stored message, or why there is none."""
    lane = parse_subject(stored.subject).lane
    predecessor = _predecessor(stored.version, stored.headers)
    try:
        entry = decode(stored.data)
        if subject_of(entry.tenant, entry.conversation, lane_of(entry)) != stored.subject:
            raise UndecodableEntry(
                f"its {kind_of(entry)} entry of conversation {entry.conversation!r} "
                f"does not belong on {stored.subject}"
            )
        if isinstance(entry, ForkEntry) and entry.parent_version >= stored.version:
            raise UndecodableEntry(
                f"a fork at version {stored.version} cannot inherit up to {entry.parent_version}"
            )
    except (UndecodableEntry, InvalidIdentifier) as error:
        return Unreadable(stored.version, lane, getattr(error, "reason", str(error)), predecessor)
    return Recorded(stored.version, entry, predecessor)


def _predecessor(version: int, headers: dict[str, str]) -> int | None:
    try:
        if PREDECESSOR in headers:
            return version + int(headers[PREDECESSOR])
        return int(headers[EXPECTED]) if EXPECTED in headers else None
    except ValueError:
        return None


def lane_of_read(read: Read) -> Lane:
    """The lane that what was read stands on."""
    return read.lane if isinstance(read, Unreadable) else lane_of(read.entry)


def stored_of(message: Msg) -> Stored:
    """A direct get's answer as a stored message."""
    headers = message.headers or {}
    return Stored(
        headers["Nats-Subject"],
        int(headers["Nats-Sequence"]),
        headers,
        message.data,
        headers.get("Nats-Time-Stamp", ""),
    )


async def direct(
    broker: Broker, stream: str, query: dict[str, Any], *, idle_timeout: float = REQUEST_TIMEOUT
) -> tuple[list[Stored], int]:
    """One batched direct get: its messages, and how many more match."""
    found: list[Stored] = []
    answers = broker.stream(
        f"$JS.API.DIRECT.GET.{stream}", _encode(query), idle_timeout=idle_timeout
    )
    try:
        async for answer in answers:
            status = status_of(answer)
            if status is None:
                found.append(stored_of(answer))
            elif status == _END_OF_BATCH:
                return found, int((answer.headers or {}).get("Nats-Num-Pending", 0))
            elif status == _NOT_FOUND:
                return found, 0
            else:
                raise BrokerRefused(
                    int(status),
                    str((answer.headers or {}).get("Description", "no reason given")),
                    what="a read",
                )
    finally:
        await answers.aclose()
    raise AssertionError("an answer without an end")


async def direct_retrying(
    broker: Broker, stream: str, query: dict[str, Any], *, within: float
) -> tuple[list[Stored], int]:
    """`direct`, repeated over breaks of the connection until `within` s have passed."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while True:
        try:
            await broker.wait_connected(deadline - loop.time())
            return await direct(
                broker, stream, query, idle_timeout=max(0.05, deadline - loop.time())
            )
        except (BrokerUnreachable, RequestTimeout, JetStreamUnavailable):
            if deadline - loop.time() <= _RETRY_PAUSE:
                raise
            await asyncio.sleep(_RETRY_PAUSE)


async def messages(
    broker: Broker,
    stream: str,
    subject: str,
    *,
    after: int = 0,
    since: str | None = None,
    up_to: int | None = None,
    within: float = REQUEST_TIMEOUT,
) -> AsyncIterator[list[Stored]]:
    """Pages of a subject's messages in order, from `after` or from a time on.

    The last page may go beyond `up_to`, as the broker knows no such limit.
    """
    query: dict[str, Any] = {"seq": after + 1} if since is None else {"start_time": since}
    # So many versions hold no more messages: who reads one entry is not sent a page of them.
    batch = PAGE_ENTRIES if up_to is None else max(1, min(PAGE_ENTRIES, up_to - after))
    while True:
        page, more = await direct_retrying(
            broker,
            stream,
            {**query, "batch": batch, "max_bytes": PAGE_BYTES, "next_by_subj": subject},
            within=within,
        )
        if page:
            yield page
        if not more or not page or (up_to is not None and page[-1].version >= up_to):
            return
        query = {"seq": page[-1].version + 1}


async def leader_last(
    broker: Broker, stream: str, subject: str, *, within: float = REQUEST_TIMEOUT
) -> Stored | None:
    """The last message of a subject, as the stream's leader knows it."""
    return await _leader_get(broker, stream, {"last_by_subj": subject}, within)


async def leader_next(
    broker: Broker, stream: str, subject: str, after: int, *, within: float = REQUEST_TIMEOUT
) -> Stored | None:
    """The first message of a subject after a version, as the stream's leader knows it."""
    return await _leader_get(broker, stream, {"seq": after + 1, "next_by_subj": subject}, within)


async def _leader_get(
    broker: Broker, stream: str, query: dict[str, Any], within: float
) -> Stored | None:
    try:
        found = await broker.api(f"STREAM.MSG.GET.{stream}", query, within=within)
    except BrokerRefused as error:
        if error.code == _NO_MESSAGE:
            return None
        raise
    message = found["message"]
    raw = base64.b64decode(message.get("hdrs", ""))
    return Stored(
        message["subject"],
        message["seq"],
        Client._parse_header_lines(raw.partition(b"\r\n")[2]),
        base64.b64decode(message.get("data", "")),
        message.get("time", ""),
    )


async def read_pages(
    broker: Broker,
    tenant: str,
    conversation: str,
    *,
    after: int = 0,
    up_to: int | None = None,
    lane: Lane | None = None,
    at_least: int | None = None,
    within: float = REQUEST_TIMEOUT,
) -> AsyncIterator[list[Read]]:
    """Pages of a conversation's entries in the order of their versions."""
    stream = entries_stream(tenant, conversation)
    subject = (
        both_lanes(tenant, conversation) if lane is None else subject_of(tenant, conversation, lane)
    )
    last = after
    async for page in messages(broker, stream, subject, after=after, up_to=up_to, within=within):
        last = page[-1].version
        if up_to is not None and last > up_to:
            page = [stored for stored in page if stored.version <= up_to]
            if page:
                yield [read_stored(stored) for stored in page]
            return
        yield [read_stored(stored) for stored in page]
    while at_least is not None and last < at_least and (up_to is None or last < up_to):
        stored = await leader_next(broker, stream, subject, last, within=within)
        if stored is None:
            raise StaleRead(at_least, last)
        last = stored.version
        if up_to is None or last <= up_to:
            yield [read_stored(stored)]


async def last_versions(
    broker: Broker, tenant: str, conversation: str, *, within: float = REQUEST_TIMEOUT
) -> BaseVersion:
    """The last version of each lane; 0 where a lane is empty."""
    found, _ = await direct_retrying(
        broker,
        entries_stream(tenant, conversation),
        {"multi_last": [both_lanes(tenant, conversation)], "batch": 2},
        within=within,
    )
    versions = {parse_subject(stored.subject).lane: stored.version for stored in found}
    return BaseVersion(log=versions.get("log", 0), shape=versions.get("shape", 0))


async def lane_tail(
    broker: Broker,
    tenant: str,
    conversation: str,
    lane: Lane,
    *,
    up_to: int | None = None,
    within: float = REQUEST_TIMEOUT,
) -> Read | None:
    """The last entry of a lane, at or before a version."""
    if up_to is not None and up_to < 1:
        return None
    stream = entries_stream(tenant, conversation)
    query: dict[str, Any] = {"multi_last": [subject_of(tenant, conversation, lane)], "batch": 1}
    found, _ = await direct_retrying(broker, stream, query, within=within)
    if found and up_to is not None and found[0].version > up_to:
        # Only now: the broker finds nothing at all where `up_to_seq` is beyond its last.
        query["up_to_seq"] = up_to
        found, _ = await direct_retrying(broker, stream, query, within=within)
    return read_stored(found[0]) if found else None
