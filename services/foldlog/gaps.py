"""What an audit may not expect to find any more, because tombstones say that it was erased."""

from collections.abc import Sequence

from foldlog.reading import Read
from foldlog.remaking import ERASURE
from foldlog_events.entries import (
    CompactionEntry,
    ErasedEntry,
    Recorded,
    ResetEntry,
)


class Gaps:
    """The erased places of one conversation, and the contexts that nobody can compute again."""

    def __init__(self, reads: Sequence[Read]) -> None:
        self._stretches: list[tuple[int, int]] = []
        self._versions: set[int] = set()
        self._targets: set[tuple[str, int]] = set()
        self._whole = 0
        waiting: list[int] = []
        for read in reads:
            entry = read.entry if isinstance(read, Recorded) else None
            if isinstance(entry, ErasedEntry):
                self._bury(entry, read.version)
                waiting.append(entry.target_version)
            elif isinstance(entry, CompactionEntry | ResetEntry):
                if ERASURE in (getattr(entry, "policy", ""), getattr(entry, "reason", "")):
                    # Until the head made anew, the context hung on one that is gone.
                    self._stretches += [(start, read.version) for start in waiting]
                waiting = []

    def _bury(self, entry: ErasedEntry, version: int) -> None:
        if not entry.target:
            self._whole = max(self._whole, entry.target_version)
            self._stretches.append((0, version))
            return
        self._stretches.append((entry.target_version, version))
        self._versions.add(entry.target_version)
        self._targets.add((entry.target, entry.target_version))

    def without_parent(self, reads: Sequence[Read], parent: Sequence[Read], fork: int) -> None:
        """Take note that what the conversation inherited was deleted with its parent.

        Contexts are known from the first head marker on whose range lies after the fork.
        """
        if not Gaps(parent)._whole:
            return
        for read in reads:
            entry = read.entry if isinstance(read, Recorded) else None
            if isinstance(entry, ResetEntry) or (
                isinstance(entry, CompactionEntry)
                and entry.kept_from is not None
                and entry.kept_from.version > fork
            ):
                self._stretches.append((0, read.version))
                return
        self._stretches.append((0, 2**63))

    def explain_predecessor(self, predecessor: int | None, last: int) -> bool:
        """Whether an entry's predecessor is none that is left, but one that was erased."""
        if predecessor is None or predecessor <= last:
            return False
        return predecessor in self._versions or predecessor <= self._whole

    def explain_context(self, version: int) -> bool:
        """Whether the context at a version cannot be computed again."""
        return any(start <= version < end for start, end in self._stretches)

    def is_still_there(self, read: Read) -> bool:
        """Whether an entry stands where a tombstone says that it was erased."""
        return isinstance(read, Recorded) and (read.entry.id, read.version) in self._targets
