"""What a process knows about the lanes of a conversation: their ends, and ids it has seen."""

import asyncio
import math
from collections import OrderedDict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from uuid import UUID

from foldlog.reading import Read
from foldlog_events.entries import Lane, Recorded

LATE = timedelta(seconds=60)
"""An id older than this is looked for in the log; the broker remembers ids for twice as long."""
AHEAD = timedelta(seconds=30)
"""An id this far in the future does not tell its age."""
ALLOWANCE = timedelta(seconds=120)
"""How long before an id's time a search for it starts."""
MAX_CONVERSATIONS = 4096
BEGINNING = datetime.fromtimestamp(0, UTC)


class LaneKnowledge:
    """One lane: its last version as far as known, and the ids seen on a stretch of it."""

    __slots__ = ("ids", "known_from", "last", "through")

    def __init__(self) -> None:
        self.last = 0
        """The last version known; another process may have gone on."""
        self.ids: dict[str, int] | None = None
        """Versions of the ids from the time `known_from` to the version `through`; None: none."""
        self.known_from = BEGINNING
        self.through = 0

    def stored(self, recorded: Recorded, predecessor: int) -> None:
        """Takes note of an entry that this process stored behind `predecessor`."""
        if self.ids is not None and self.through == predecessor:
            self.ids[recorded.entry.id] = recorded.version
            self.through = recorded.version
        self.last = max(self.last, recorded.version)

    def read(self, reads: Iterable[Read]) -> None:
        """Takes note of what was read right after `through`."""
        for read in reads:
            if self.ids is not None and isinstance(read, Recorded):
                self.ids.setdefault(read.entry.id, read.version)
            self.through = read.version
            self.last = max(self.last, read.version)


class Conversation:
    """What is known of one conversation; appends of one process take turns by `turn`."""

    __slots__ = ("lanes", "rivals_met", "turn")

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.rivals_met = -math.inf
        """When an append last came behind another process's, on the loop's clock."""
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
        else:
            self._known.move_to_end(key)
        return known

    def _forget(self) -> None:
        for key, conversation in self._known.items():
            if not conversation.turn.locked():
                del self._known[key]
                return


def made_at(entry_id: str) -> datetime | None:
    """When a UUIDv7 was made, by its maker's clock; None for an id of another kind."""
    if len(entry_id) != 36 or entry_id[14] != "7":
        return None
    try:
        milliseconds = UUID(entry_id).int >> 80
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError):
        return None


def is_late(ids: Iterable[str], now: datetime) -> bool:
    """Whether the broker may have forgotten one of the ids, had it stored it.

    So it is for an id that is not fresh, and for one that does not tell its age.
    """
    made = (made_at(entry_id) for entry_id in ids)
    return any(time is None or not now - LATE <= time <= now + AHEAD for time in made)


def search_start(ids: Iterable[str], now: datetime) -> datetime:
    """From when on the log may hold entries of these ids."""
    start = now
    for entry_id in ids:
        time = made_at(entry_id)
        if time is None or time > now + AHEAD:
            return BEGINNING
        start = min(start, time)
    return max(BEGINNING, start - ALLOWANCE)
