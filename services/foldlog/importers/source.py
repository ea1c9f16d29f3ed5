"""What an importer is told about the file it reads."""

from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

import msgspec

from foldlog_events.entries import DEFAULT_TENANT

EPOCH = datetime.fromtimestamp(0, UTC)


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A file's name and how to read it."""

    name: str
    tenant: str = DEFAULT_TENANT
    time: datetime = EPOCH
    """Of entries whose record states none."""
    repair: bool = False
    """Replace what strict readers refuse, instead of reporting the line."""

    @property
    def stem(self) -> str:
        """The name without its suffix: a conversation's id where the file states none."""
        return PurePath(self.name).stem or self.name


def time_of(value: Any) -> datetime | None:
    """The time that a record states: ISO 8601 text or milliseconds; None where it is neither."""
    try:
        if isinstance(value, str):
            stated = datetime.fromisoformat(value)
            return stated if stated.tzinfo else stated.replace(tzinfo=UTC)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None
