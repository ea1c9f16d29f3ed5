"""What an importer yields, and how it becomes entries once versions are known.

Append a conversation's items in their order, one after the other or in batches, a fork's parent
before the fork. An item that refers to versions (`ImportedFork`, `ImportedCompaction`) becomes
its entry through `resolve`, just before it is appended.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from foldlog.importers.errors import ConversationDiverged, UnresolvedReference
from foldlog_events.codec import decode, encode
from foldlog_events.entries import (
    BaseVersion,
    CompactionEntry,
    Entry,
    EntryReference,
    ForkEntry,
    MessageEntry,
    Recorded,
    SourceRange,
    lane_of,
)
from foldlog_events.messages import Message, Usage


class ForkPoint(msgspec.Struct, frozen=True):
    """Where a conversation leaves another: after the entry of this id."""

    conversation: str
    entry: str


class ImportedFork(msgspec.Struct, frozen=True, kw_only=True):
    """A `ForkEntry` whose parent version is not known yet."""

    id: str
    conversation: str
    tenant: str
    time: datetime
    actor: str
    fork_of: ForkPoint


class ImportedCompaction(msgspec.Struct, frozen=True, kw_only=True):
    """A `CompactionEntry` whose versions are not known yet; the fields are named alike."""

    id: str
    conversation: str
    tenant: str
    time: datetime
    actor: str
    kept_from_id: str | None
    source_first_id: str
    source_last_id: str
    source_count: int
    source_digest: str
    summary: str
    tokens_before: int = 0
    usage: Usage | None = None


Item = Entry | ImportedFork | ImportedCompaction


class ImportedItem(msgspec.Struct, frozen=True):
    """One entry to append, and the line it comes from."""

    line: int
    entry: Item


class ImportedConversation(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation of a file, its items in the order to append them."""

    format: str
    tenant: str
    conversation: str
    items: tuple[ImportedItem, ...]
    fork_of: ForkPoint | None = None
    """Of the file's conversation that it branches from, which is yielded before it."""


def resolve(item: Item, versions: Mapping[str, int], base_version: BaseVersion) -> Entry:
    """The entry to append for an item.

    `versions` holds the version of every entry of the conversation appended so far, and of the
    conversations it was forked from, by entry id. `base_version` is the last version of each lane
    of the conversation itself. Raises UnresolvedReference.
    """

    def version_of(target: str) -> int:
        try:
            return versions[target]
        except KeyError:
            raise UnresolvedReference(item.id, target) from None

    if isinstance(item, ImportedFork):
        return ForkEntry(
            id=item.id,
            conversation=item.conversation,
            tenant=item.tenant,
            time=item.time,
            actor=item.actor,
            parent=item.fork_of.conversation,
            parent_version=version_of(item.fork_of.entry),
        )
    if isinstance(item, ImportedCompaction):
        kept = item.kept_from_id
        return CompactionEntry(
            id=item.id,
            conversation=item.conversation,
            tenant=item.tenant,
            time=item.time,
            actor=item.actor,
            base_version=base_version,
            source_range=SourceRange(
                first=EntryReference(item.source_first_id, version_of(item.source_first_id)),
                last=EntryReference(item.source_last_id, version_of(item.source_last_id)),
                count=item.source_count,
                digest=item.source_digest,
            ),
            kept_from=None if kept is None else EntryReference(kept, version_of(kept)),
            summary=item.summary,
            tokens_before=item.tokens_before,
            usage=item.usage,
        )
    return item


def record_offline(
    conversation: ImportedConversation,
    start_version: int = 1,
    versions: Mapping[str, int] | None = None,
) -> list[Recorded]:
    """The conversation as it would stand in a log of its own, without a broker.

    Versions count up from `start_version`. A fork needs the `versions` of its parent's entries,
    by entry id. Raises UnresolvedReference.
    """
    known = dict(versions or {})
    last = {"log": 0, "shape": 0}
    recorded = []
    for version, item in enumerate(conversation.items, start=start_version):
        base = BaseVersion(log=last["log"], shape=last["shape"])
        entry = resolve(item.entry, known, base)
        lane = lane_of(entry)
        recorded.append(Recorded(version=version, entry=entry, predecessor=last[lane]))
        last[lane] = known[entry.id] = version
    return recorded


def remaining(
    conversation: ImportedConversation, existing: Iterable[str]
) -> tuple[ImportedItem, ...]:
    """The items still to append where the log holds the entries `existing` (ids, in order).

    Importing a file twice appends nothing the second time; importing one that has grown appends
    what is new. Raises ConversationDiverged where the log holds anything that the import does
    not have in that place: appending after it would change what was said.
    """
    items = iter(conversation.items)
    for entry in existing:
        expected = next(items, None)
        if expected is None or expected.entry.id != entry:
            raise ConversationDiverged(conversation.conversation, entry)
    return tuple(items)


def checked(item: Item, *, repair: bool = False) -> Item:
    """The item as a reader will read it back, repaired where asked. Raises InvalidEntry."""
    if isinstance(item, ImportedFork | ImportedCompaction):
        versions = dict.fromkeys(_references(item), 0)
        entry = decode(encode(resolve(item, versions, BaseVersion(0, 0)), repair=repair))
        if isinstance(item, ImportedCompaction) and isinstance(entry, CompactionEntry):
            return msgspec.structs.replace(item, summary=entry.summary)
        return item
    return decode(encode(item, repair=repair))


def _references(item: ImportedFork | ImportedCompaction) -> tuple[str, ...]:
    if isinstance(item, ImportedFork):
        return (item.fork_of.entry,)
    kept = () if item.kept_from_id is None else (item.kept_from_id,)
    return (item.source_first_id, item.source_last_id, *kept)


def derived_id(*key: str | int, time: datetime | None = None) -> str:
    """An entry id of the form of a UUIDv7 that the same key always has.

    The first 48 bits are the milliseconds of `time`, as far as the source states one; the others
    are of the key's hash.
    """
    digest = hashlib.sha256(json.dumps(key).encode()).digest()
    milliseconds = 0 if time is None else max(0, int(time.timestamp() * 1000))
    value = (milliseconds & (2**48 - 1)) << 80 | int.from_bytes(digest[:10])
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    text = f"{value:032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def source_of(entries: Sequence[Entry], kept: int | None) -> dict[str, Any]:
    """The `source_…` fields of a compaction of these entries that keeps from a place on."""
    summarised = entries[:kept]
    ends = summarised or entries[:1]
    return {
        "source_first_id": ends[0].id,
        "source_last_id": ends[-1].id,
        "source_count": len(summarised),
        "source_digest": digest_of(
            message
            for entry in summarised
            if isinstance(entry, MessageEntry)
            for message in entry.messages
        ),
    }


def digest_of(messages: Iterable[Message]) -> str:
    """`sha256:` and the hash of the messages' JSON."""
    content: Any = tuple(messages)
    return f"sha256:{hashlib.sha256(msgspec.json.encode(content)).hexdigest()}"
