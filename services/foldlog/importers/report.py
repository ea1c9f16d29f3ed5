"""The account of an import: what became of every line, and what could not be carried over."""

from collections import Counter
from typing import Literal

import msgspec

LineStatus = Literal["imported", "skipped", "malformed"]


class LineFate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one line of a file."""

    line: int
    """Counted from 1."""
    status: LineStatus
    entries: tuple[str, ...] = ()
    """Ids of the entries that the line became."""
    reason: str = ""
    """Why it was not imported; empty where it was."""


class NotCarried(msgspec.Struct, frozen=True, kw_only=True):
    """A field of the format that entries have no place for, and how often it stood in the file."""

    what: str
    count: int
    first_line: int


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """A line that was imported in a way worth knowing."""

    line: int
    text: str


class LineReport:
    """Filled while a file is read; complete once its conversations have all been taken.

    Every line of the file has exactly one fate. Where one line becomes several entries its fate
    names them all; where several lines make up one entry the fate of each names it.
    """

    def __init__(self, name: str, format_name: str) -> None:
        self.name = name
        self.format = format_name
        self._fates: dict[int, LineFate] = {}
        self._lost: Counter[str] = Counter()
        self._lost_first: dict[str, int] = {}
        self._remarks: list[Remark] = []

    def imported(self, line: int, entries: tuple[str, ...]) -> None:
        """The line became these entries, besides those already named for it."""
        before = self._fates.get(line)
        if before is not None and before.status == "imported":
            entries = before.entries + entries
        self._fates[line] = LineFate(line=line, status="imported", entries=entries)

    def skipped(self, line: int, reason: str) -> None:
        """The line holds nothing to import."""
        self._fates[line] = LineFate(line=line, status="skipped", reason=reason)

    def malformed(self, line: int, reason: str) -> None:
        """The line could not be read."""
        self._fates[line] = LineFate(line=line, status="malformed", reason=reason)

    def not_carried(self, line: int, what: str) -> None:
        """The line was imported without this field."""
        self._lost[what] += 1
        self._lost_first.setdefault(what, line)

    def remark(self, line: int, text: str) -> None:
        """The line was imported, with a reading that people should know of."""
        self._remarks.append(Remark(line=line, text=text))

    @property
    def lines(self) -> tuple[LineFate, ...]:
        """The fate of every line, in order."""
        return tuple(self._fates[line] for line in sorted(self._fates))

    @property
    def lost(self) -> tuple[NotCarried, ...]:
        """Fields that were not carried over, in the order of their names."""
        return tuple(
            NotCarried(what=what, count=count, first_line=self._lost_first[what])
            for what, count in sorted(self._lost.items())
        )

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """Remarks in the order they were made."""
        return tuple(self._remarks)

    def count(self, status: LineStatus) -> int:
        """How many lines have this fate."""
        return sum(fate.status == status for fate in self._fates.values())

    @property
    def entries(self) -> int:
        """How many entries the lines became; one that several lines make up counts once."""
        return len({entry for fate in self._fates.values() for entry in fate.entries})
