"""Small entries for tests of the log."""

from datetime import UTC, datetime
from random import getrandbits
from uuid import UUID

from foldlog_events.entries import Edit, EditEntry, MessageEntry
from foldlog_events.messages import user


def new_id(*, seconds_ago: float = 0) -> str:
    """A UUIDv7, made some time ago."""
    made = int((datetime.now(UTC).timestamp() - seconds_ago) * 1000)
    return str(UUID(int=(made << 80) | (7 << 76) | (2 << 62) | getrandbits(62)))


def said(text: str, conversation: str = "c", *, entry_id: str | None = None) -> MessageEntry:
    return MessageEntry(
        id=entry_id or new_id(),
        conversation=conversation,
        time=datetime.now(UTC),
        messages=(user(text),),
    )


def edited(target: str, conversation: str = "c") -> EditEntry:
    return EditEntry(
        id=new_id(),
        conversation=conversation,
        time=datetime.now(UTC),
        edits=(Edit(target=target),),
    )
