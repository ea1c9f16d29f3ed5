"""What a process knows about the lanes of a conversation: their ends, and ids it has seen."""

import asyncio
from collections import OrderedDict
from datetime import UTC, datetime, timedelta
from uuid import UUID

from foldlog.reading import Read
from foldlog_events.entries import Lane, Recorded

LATE = 60.0
"""Seconds after which an entry's id counts as old: well inside the broker's duplicate window."""
CLOCK_ALLOWANCE = 600.0
"""Seconds that the clock which made an id may be ahead of the broker's when a search starts."""
MAX_CONVERSATIONS = 4096
BEGINNING = datetime.fromtimestamp(0, UTC)


class LaneKnowledge:
    """One lane: its last version as far as known, and the ids seen on a stretch of it."""

    __slots__ = ("ids", "known_from", "last", "through")

    def __init__(self) -> None:
        self.last = 0
        """The last version known; another process may have gone on."""
        self.ids: dict[str, Recorded] | None = None
        """Ids on the stretch from the time `known_from` to the version `through`; None: none."""
        self.known_from = BEGINNING
        self.through = 0

    def advance(self, recorded: Recorded, predecessor: int) -> None:
        """Takes note of an entry that this process stored after `predecessor`."""
        if self.ids is not None:
            if self.through == predecessor:
                self.ids[recorded.entry.id] = recorded
                self.through = recorded.version
            else:
                self.ids = None
        self.last = max(self.last, recorded.version)

    def note(self, reads: list[Read]) -> None:
        """Takes note of what was read directly after `through`."""
        for read in reads:
            if self.ids is not None and isinstance(read, Recorded):
                self.ids.setdefault(read.entry.id, read)
            self.through = read.version
            self.last = max(self.last, read.version)


class Conversation:
    """What is known of one conversation; appends of one process take turns by `turn`."""

    __slots__ = ("lanes", "turn")

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.lanes: dict[Lane, LaneKnowledge] = {"log": LaneKnowledge(), "shape": LaneKnowledge()}


class Conversations:
    """The conversations this process wrote to lately."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], Conversation] = OrderedDict()

    def __getitem__(self, key: tuple[str, str]) -> Conversation:
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Conversation()
            if len(self._known) > MAX_CONVERSATIONS:
                self._forget()
        self._known.move_to_end(key)
        return known

    def _forget(self) -> None:
        for key, conversation in self._known.items():
            if not conversation.turn.locked():
                del self._known[key]
                return


def made_at(entry_id: str) -> datetime | None:
    """When a UUIDv7 was made, by its maker's clock; None for another kind of id."""
    try:
        uuid = UUID(entry_id)
    except ValueError:
        return None
    if uuid.version != 7:
        return None
    return datetime.fromtimestamp((uuid.int >> 80) / 1000, UTC)


def search_start(ids: list[str], now: datetime) -> datetime | None:
    """From when on a lane may hold entries of these ids; None where the broker remembers them.

    The broker knows every id it stored in the last two minutes, so only an id that is older (or
    does not tell its age, or comes from a clock that is ahead) needs a search.
    """
    start: datetime | None = None
    for entry_id in ids:
        made = made_at(entry_id)
        if made is None or made > now + timedelta(seconds=CLOCK_ALLOWANCE):
            return BEGINNING
        if now - made > timedelta(seconds=LATE):
            begin = made - timedelta(seconds=CLOCK_ALLOWANCE)
            start = begin if start is None else min(start, begin)
    return start
