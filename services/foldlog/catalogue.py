"""Which conversations the log holds."""

import asyncio
from collections.abc import AsyncIterator

import msgspec

from foldlog import reading
from foldlog.broker import Broker
from foldlog.topology import entries_streams
from foldlog_events.codec import decode
from foldlog_events.entries import BaseVersion
from foldlog_events.errors import UndecodableEntry
from foldlog_events.subjects import decode_token, encode_token, parse_subject

AT_ONCE = 32
"""Conversations that are asked about at a time."""


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation of the log."""

    conversation: str
    tenant: str
    entries: int
    version: int
    """Of its last entry, on either lane."""


async def conversations(broker: Broker, tenant: str) -> list[Listed]:
    """The conversations of a tenant, in the order of their names."""
    counts: dict[tuple[str, str], int] = {}
    async for stream, subject, count in _subjects(broker, tenant):
        key = (stream, subject.rpartition(".")[0])
        counts[key] = counts.get(key, 0) + count
    slots = asyncio.Semaphore(AT_ONCE)

    async def listed(stream: str, prefix: str, count: int) -> Listed | None:
        async with slots:
            name = await _name(broker, stream, prefix)
            if name is None:
                return None
            last: BaseVersion = await reading.last_versions(broker, tenant, name)
            return Listed(
                conversation=name, tenant=tenant, entries=count, version=max(last.log, last.shape)
            )

    found = await asyncio.gather(*(listed(*key, count) for key, count in counts.items()))
    return sorted((one for one in found if one), key=lambda one: one.conversation)


async def _subjects(broker: Broker, tenant: str) -> AsyncIterator[tuple[str, str, int]]:
    """Stream, subject and number of entries of every lane of a tenant's conversations."""
    for stream in entries_streams():
        offset = 0
        while True:
            info = await broker.api(
                f"STREAM.INFO.{stream}",
                {"subjects_filter": f"entry.*.{encode_token(tenant)}.*.*", "offset": offset},
            )
            page: dict[str, int] = info["state"].get("subjects") or {}
            for subject, count in page.items():
                yield stream, subject, count
            offset += len(page)
            if not page or offset >= info.get("total", 0):
                break


async def _name(broker: Broker, stream: str, prefix: str) -> str | None:
    """The conversation behind its subjects; a long name stands only in its entries."""
    name = decode_token(parse_subject(f"{prefix}.log").conversation)
    if name is not None:
        return name
    async for page in reading.messages(broker, stream, f"{prefix}.*"):
        for stored in page:
            try:
                return decode(stored.data).conversation
            except UndecodableEntry:
                continue
    return None
