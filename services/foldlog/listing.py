"""Which conversations there are."""

from collections.abc import AsyncIterator, Sequence
from itertools import islice

import msgspec

from foldlog.broker import REQUEST_TIMEOUT, Broker
from foldlog.reading import PAGE_BYTES, Stored, direct_retrying
from foldlog.topology import entries_streams
from foldlog_events.codec import decode
from foldlog_events.entries import BaseVersion
from foldlog_events.errors import UndecodableEntry
from foldlog_events.subjects import decode_token, encode_token, parse_subject

_CHUNK = 200
_Key = tuple[int, str, str]


class Summary(msgspec.Struct, frozen=True):
    """One conversation in a list."""

    tenant: str
    conversation: str
    entries: int
    """How many, on both lanes."""
    versions: BaseVersion
    """The last version of each lane."""


async def conversations(broker: Broker, tenant: str | None) -> AsyncIterator[Summary]:
    """The conversations of a tenant, or of all, in the order of their subjects."""
    for stream in entries_streams():
        counts = await _counts(broker, stream, tenant)
        keys = iter(counts)
        while chunk := list(islice(keys, _CHUNK)):
            subjects = [
                f"entry.{partition}.{tenant_token}.{conversation_token}.{lane}"
                for partition, tenant_token, conversation_token in chunk
                for lane in counts[partition, tenant_token, conversation_token]
            ]
            tails = await _tails(broker, stream, subjects)
            for key in chunk:
                if summary := _summary(key, counts[key], tails):
                    yield summary


async def _counts(broker: Broker, stream: str, tenant: str | None) -> dict[_Key, dict[str, int]]:
    """Entries of each lane, by partition and tokens."""
    wanted = f"entry.*.{encode_token(tenant) if tenant else '*'}.*.*"
    found: dict[_Key, dict[str, int]] = {}
    offset = 0
    while True:
        info = await broker.api(
            f"STREAM.INFO.{stream}", {"subjects_filter": wanted, "offset": offset}
        )
        subjects: dict[str, int] = info["state"].get("subjects") or {}
        for subject, count in subjects.items():
            parts = parse_subject(subject)
            lanes = found.setdefault((parts.partition, parts.tenant, parts.conversation), {})
            lanes[parts.lane] = count
        offset += len(subjects)
        if not subjects or offset >= info.get("total", 0):
            return dict(sorted(found.items(), key=lambda item: item[0][1:]))


async def _tails(broker: Broker, stream: str, subjects: Sequence[str]) -> dict[_Key, list[Stored]]:
    """The last message of each subject, by conversation."""
    tails: dict[_Key, list[Stored]] = {}
    left = list(subjects)
    while left:
        found, _ = await direct_retrying(
            broker,
            stream,
            {"multi_last": left, "batch": len(left), "max_bytes": PAGE_BYTES},
            within=REQUEST_TIMEOUT,
        )
        if not found:
            return tails
        for stored in found:
            parts = parse_subject(stored.subject)
            key = (parts.partition, parts.tenant, parts.conversation)
            tails.setdefault(key, []).append(stored)
        arrived = {stored.subject for stored in found}
        left = [subject for subject in left if subject not in arrived]
    return tails


def _summary(key: _Key, lanes: dict[str, int], tails: dict[_Key, list[Stored]]) -> Summary | None:
    stored = tails.get(key)
    if not stored:
        return None
    _, tenant, conversation = key
    versions = {parse_subject(one.subject).lane: one.version for one in stored}
    return Summary(
        _identifier(tenant, stored, "tenant"),
        _identifier(conversation, stored, "conversation"),
        sum(lanes.values()),
        BaseVersion(log=versions.get("log", 0), shape=versions.get("shape", 0)),
    )


def _identifier(token: str, stored: list[Stored], field: str) -> str:
    """The id behind a token; that of a hashed one is written in the entries."""
    identifier = decode_token(token)
    if identifier is not None:
        return identifier
    for one in stored:
        try:
            return str(getattr(decode(one.data), field))
        except UndecodableEntry:
            continue
    return token
