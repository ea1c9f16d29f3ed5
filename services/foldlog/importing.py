"""Imported conversations into the log: each entry once, however often the import is run."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from foldlog.importers import (
    ConversationDiverged,
    FileImport,
    ImportedCompaction,
    ImportedConversation,
    ImportedFork,
    LineReport,
    UnresolvedReference,
    read_file,
    remaining,
    resolve,
)
from foldlog.log import Log
from foldlog_events.entries import BaseVersion, Entry, Recorded, lane_of
from foldlog_events.errors import EntryTooLarge, InvalidEntry

TOGETHER = 200
"""Entries that go into one atomic batch at most."""
TOGETHER_BYTES = 4 * 1024 * 1024
DEADLINE = 60.0
"""Seconds for one batch."""


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation that was not imported, or not to its end, and why."""

    conversation: str
    reason: str


class FileOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a file."""

    report: LineReport
    conversations: int
    appended: int
    """Entries that this import appended; those the log held already are not counted."""
    refused: tuple[Refused, ...] = ()


class Import:
    """Puts conversations of files into a log, for one tenant."""

    def __init__(self, log: Log, tenant: str) -> None:
        self._log = log
        self._tenant = tenant
        self._versions: dict[str, dict[str, int]] = {}
        """By conversation: the version of each entry it can refer to, inherited ones too."""

    async def file(
        self,
        path: Path,
        *,
        repair: bool = False,
        progress: Callable[[int], None] = lambda entries: None,
    ) -> FileOutcome:
        """Import a file; `progress` is told how many entries went by.

        Raises UnknownFormat, and OSError where the file cannot be read; then nothing was
        appended.
        """
        source: FileImport = read_file(path, tenant=self._tenant, repair=repair)
        self._versions.clear()
        conversations = appended = 0
        refused = []
        for conversation in source:
            conversations += 1
            try:
                appended += await self._conversation(conversation)
            except (
                ConversationDiverged,
                EntryTooLarge,
                InvalidEntry,
                UnresolvedReference,
            ) as error:
                refused.append(Refused(conversation=conversation.conversation, reason=str(error)))
            progress(len(conversation.items))
        return FileOutcome(
            report=source.report,
            conversations=conversations,
            appended=appended,
            refused=tuple(refused),
        )

    async def _conversation(self, imported: ImportedConversation) -> int:
        existing = await self._log.read_all(imported.tenant, imported.conversation)
        versions = dict(self._inherited(imported))
        last = {"log": 0, "shape": 0}
        ids = []
        for read in existing:
            if not isinstance(read, Recorded):
                raise ConversationDiverged(imported.conversation, f"at version {read.version}")
            ids.append(read.entry.id)
            versions[read.entry.id] = last[lane_of(read.entry)] = read.version
        self._versions[imported.conversation] = versions
        batch = _Batch()
        appended = 0
        for item in remaining(imported, ids):
            # These name versions of what comes before them, so that has to be stored first.
            if isinstance(item.entry, ImportedFork | ImportedCompaction) or batch.is_full:
                appended += await self._store(batch, versions, last)
            batch.add(resolve(item.entry, versions, BaseVersion(**last)))
        return appended + await self._store(batch, versions, last)

    def _inherited(self, imported: ImportedConversation) -> dict[str, int]:
        if imported.fork_of is None:
            return {}
        return self._versions.get(imported.fork_of.conversation, {})

    async def _store(self, batch: "_Batch", versions: dict[str, int], last: dict[str, int]) -> int:
        if not batch.entries:
            return 0
        expect = BaseVersion(**last)
        recorded = await self._log.append(batch.entries, expect=expect, deadline=DEADLINE)
        for one in recorded:
            versions[one.entry.id] = last[lane_of(one.entry)] = one.version
        batch.clear()
        return len(recorded)


class _Batch:
    """Entries that are to be appended together."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        return len(self.entries) >= TOGETHER or self._bytes >= TOGETHER_BYTES

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)
        self._bytes += len(msgspec.json.encode(entry))

    def clear(self) -> None:
        self.entries = []
        self._bytes = 0
