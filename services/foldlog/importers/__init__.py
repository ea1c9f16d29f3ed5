"""Importers: files of other programs, read into conversations to append.

They know nothing of a broker. `read_file` yields conversations; `conversations` says how their
items become entries.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path

from foldlog.importers import claude_code, codex, openai_chat, pi
from foldlog.importers.conversations import (
    ForkPoint,
    ImportedCompaction,
    ImportedConversation,
    ImportedFork,
    ImportedItem,
    record_offline,
    remaining,
    resolve,
)
from foldlog.importers.detect import (
    CLAUDE_CODE,
    CODEX,
    FORMATS,
    OPENAI_CHAT,
    PI,
    SAMPLE,
    detect_format,
)
from foldlog.importers.errors import (
    ConversationDiverged,
    MalformedRecord,
    UnknownFormat,
    UnresolvedReference,
)
from foldlog.importers.lines import parse_lines
from foldlog.importers.report import LineFate, LineReport, NotCarried, Remark
from foldlog.importers.source import Source
from foldlog_events.entries import DEFAULT_TENANT

_READERS = {
    PI: pi.read,
    CLAUDE_CODE: claude_code.read,
    CODEX: codex.read,
    OPENAI_CHAT: openai_chat.read,
}


class FileImport:
    """The conversations of one file: iterate once, then read the `report`."""

    def __init__(
        self, lines: Iterable[bytes], source: Source, format_name: str | None = None
    ) -> None:
        parsed = parse_lines(lines, repair=source.repair)
        sample = list(islice(parsed, SAMPLE))
        self.format = format_name or detect_format(source.name, sample)
        self.report = LineReport(source.name, self.format)
        self._conversations = _READERS[self.format](chain(sample, parsed), source, self.report)

    def __iter__(self) -> Iterator[ImportedConversation]:
        """Each conversation as soon as it has been read."""
        return self._conversations


def read_file(path: Path, *, tenant: str = DEFAULT_TENANT, repair: bool = False) -> FileImport:
    """The conversations of a file, in a format that its first lines tell.

    Records that state no time of their own get the file's. With `repair`, lone surrogates and
    numbers that JSON does not have are replaced; without, their lines are malformed.
    Raises UnknownFormat, and OSError where the file cannot be read.
    """
    modified = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    source = Source(name=path.name, tenant=tenant, time=modified, repair=repair)
    return FileImport(_lines_of(path), source)


def _lines_of(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from file


__all__ = [
    "FORMATS",
    "ConversationDiverged",
    "FileImport",
    "ForkPoint",
    "ImportedCompaction",
    "ImportedConversation",
    "ImportedFork",
    "ImportedItem",
    "LineFate",
    "LineReport",
    "MalformedRecord",
    "NotCarried",
    "Remark",
    "Source",
    "UnknownFormat",
    "UnresolvedReference",
    "read_file",
    "record_offline",
    "remaining",
    "resolve",
]
