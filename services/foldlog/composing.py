"""From what a session is given to append, to entries."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec
from uuid_utils import uuid7

from foldlog_events.entries import (
    CompactionEntry,
    Entry,
    ErasedEntry,
    ForkEntry,
    MessageEntry,
)
from foldlog_events.errors import InvalidEntry
from foldlog_events.messages import Message, Seen


def envelope(tenant: str, conversation: str, actor: str) -> dict[str, Any]:
    """The fields that every entry has, with a new id and the time of now."""
    return {
        "id": str(uuid7()),
        "conversation": conversation,
        "tenant": tenant,
        "time": datetime.now(UTC),
        "actor": actor,
    }


def compose(
    items: Iterable[Message | Entry],
    new_envelope: Callable[[], dict[str, Any]],
    *,
    seen: Seen | None,
    causation: str | None,
) -> tuple[Entry, ...]:
    """Entries in the order given; messages that stand together are one entry.

    `new_envelope` makes the fields that every entry has. Raises InvalidEntry.
    """
    entries: list[Entry] = []
    together: list[Message] = []

    def close_entry() -> None:
        if together:
            entries.append(
                MessageEntry(**new_envelope(), causation=causation, messages=tuple(together))
            )
            together.clear()

    for item in items:
        if isinstance(item, Message):
            together.append(_with_seen(item, seen))
        else:
            close_entry()
            entries.append(_of_this(item, new_envelope()))
    close_entry()
    if not entries:
        raise InvalidEntry("nothing to append: give messages or entries")
    return tuple(entries)


def _of_this(entry: Entry, fields: dict[str, Any]) -> Entry:
    tenant, conversation = fields["tenant"], fields["conversation"]
    if (entry.tenant, entry.conversation) != (tenant, conversation):
        raise InvalidEntry(
            f"the entry is of conversation {entry.conversation!r} of {entry.tenant!r} and "
            f"this session of {conversation!r} of {tenant!r}",
            place="$.conversation",
        )
    if isinstance(entry, CompactionEntry | ForkEntry | ErasedEntry):
        raise InvalidEntry(
            "compactions, forks and erasures have calls of their own", place="$.kind"
        )
    return entry


def _with_seen(message: Message, seen: Seen | None) -> Message:
    """An assistant message remembers the context it answered."""
    if message.role == "assistant" and message.seen is None and seen is not None:
        return msgspec.structs.replace(message, seen=seen)
    return message
