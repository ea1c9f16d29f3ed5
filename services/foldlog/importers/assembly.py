"""Putting a conversation together where one reply may stand on several lines of its file."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from foldlog.importers.conversations import (
    ForkPoint,
    ImportedCompaction,
    ImportedConversation,
    ImportedFork,
    ImportedItem,
    Item,
    checked,
    derived_id,
)
from foldlog.importers.report import LineReport
from foldlog.importers.source import Source
from foldlog_events.entries import Entry, MessageEntry, ResetEntry
from foldlog_events.errors import FoldlogError
from foldlog_events.messages import AnyPart, FinishReason, Message, ToolCall, Usage


@dataclass(slots=True, eq=False)
class Reply:
    """An assistant message that grows line by line; it becomes an entry at its first line."""

    lines: list[int]
    time: datetime | None
    parts: list[AnyPart]
    finish_reason: FinishReason | None = None
    model: str | None = None
    usage: Usage | None = None
    closed: bool = False
    """Nothing more belongs to it."""

    def message(self) -> Message:
        """All that was said so far."""
        return Message(
            role="assistant",
            parts=tuple(self.parts),
            finish_reason=self.finish_reason,
            model=self.model,
            usage=self.usage,
        )

    @property
    def calls(self) -> bool:
        """Whether it asks for a tool."""
        return any(isinstance(part, ToolCall) for part in self.parts)


@dataclass(slots=True, eq=False)
class Assembly:
    """A conversation while the lines of a file become its entries."""

    format: str
    session: str
    """What entry ids are derived from, besides the line."""
    conversation: str
    source: Source
    report: LineReport
    inherited: tuple[Item, ...] = ()
    """Entries before the fork that this conversation begins with."""
    _placed: list[ImportedItem | Reply] = field(default_factory=list)
    _ids: dict[int, list[str]] = field(default_factory=dict)

    def envelope(self, line: int, time: datetime | None, *suffix: str) -> dict[str, Any]:
        """The fields that every entry of this line has."""
        return self._envelope(time, line, *suffix)

    def _envelope(self, time: datetime | None, *key: str | int) -> dict[str, Any]:
        return {
            "id": derived_id(self.format, self.session, *key, time=time),
            "conversation": self.conversation,
            "tenant": self.source.tenant,
            "time": time or self.source.time,
            "actor": f"import:{self.format}",
        }

    def add(self, line: int, entries: Iterable[Item]) -> None:
        """All entries of a line, or none of them where one is invalid: raises InvalidEntry."""
        for entry in [checked(entry, repair=self.source.repair) for entry in entries]:
            self._placed.append(ImportedItem(line, entry))
            self._became(line, entry.id)

    def open_reply(self, line: int, time: datetime | None, parts: Iterable[AnyPart]) -> Reply:
        """A reply that begins at this line. Raises InvalidEntry."""
        reply = Reply([line], time, self._checked_parts(line, time, parts))
        self._placed.append(reply)
        return reply

    def extend_reply(self, reply: Reply, line: int, parts: Iterable[AnyPart]) -> None:
        """What a further line adds. Raises InvalidEntry."""
        reply.parts += self._checked_parts(line, reply.time, parts)
        reply.lines.append(line)

    def _checked_parts(
        self, line: int, time: datetime | None, parts: Iterable[AnyPart]
    ) -> list[AnyPart]:
        said = Message(role="assistant", parts=tuple(parts))
        probe = MessageEntry(**self.envelope(line, time), messages=(said,))
        entry = checked(probe, repair=self.source.repair)
        return list(entry.messages[0].parts) if isinstance(entry, MessageEntry) else []

    def items(self) -> tuple[ImportedItem, ...]:
        """All items so far. Replies take their final form: none of them grows any more."""
        settled: list[ImportedItem | Reply] = []
        for placed in self._placed:
            item = self._settled(placed) if isinstance(placed, Reply) else placed
            if item is not None:
                settled.append(item)
        self._placed = settled
        return tuple(item for item in settled if isinstance(item, ImportedItem))

    def _settled(self, reply: Reply) -> ImportedItem | None:
        reply.closed = True
        # A file that is imported again once its last reply has grown must not pass for the same.
        ends = dict.fromkeys((reply.lines[0], reply.lines[-1]))
        envelope = self._envelope(reply.time, *ends)
        try:
            entry = checked(
                MessageEntry(**envelope, messages=(reply.message(),)), repair=self.source.repair
            )
        except FoldlogError as error:
            for line in reply.lines:
                self.report.malformed(line, str(error))
            return None
        for line in reply.lines:
            self._became(line, entry.id)
        return ImportedItem(reply.lines[0], entry)

    def _became(self, line: int, entry: str) -> None:
        self._ids.setdefault(line, []).append(entry)
        self.report.imported(line, (entry,))

    def ids_of(self, line: int) -> tuple[str, ...]:
        """Ids of the entries that the line has become; those of replies once they are settled."""
        return tuple(self._ids.get(line, ()))

    def entries(self) -> tuple[Item, ...]:
        """Inherited and own, in order; settles replies as `items` does."""
        return (*self.inherited, *(item.entry for item in self.items()))

    def finished(self, fork: ImportedFork | None = None) -> ImportedConversation | None:
        """The conversation; None where it has no entry."""
        items = self.items()
        if not items:
            return None
        fork_of: ForkPoint | None = None
        if fork is not None:
            fork_of = fork.fork_of
            items = (ImportedItem(items[0].line, fork), *items)
            self.report.imported(items[0].line, (fork.id,))
        return ImportedConversation(
            format=self.format,
            tenant=self.source.tenant,
            conversation=self.conversation,
            items=items,
            fork_of=fork_of,
        )


def in_range(entries: Iterable[Item]) -> list[Entry]:
    """The entries that a fold has in its range after these."""
    held: list[Entry] = []
    for entry in entries:
        match entry:
            case ImportedCompaction():
                ids = [one.id for one in held]
                kept = entry.kept_from_id
                held = held[ids.index(kept) :] if kept in ids else []
            case ResetEntry():
                held = []
            case ImportedFork():
                pass
            case _:
                held.append(entry)
    return held
