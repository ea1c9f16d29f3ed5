"""How a backup lies in its folder.

`manifest.json` is written last and names every other file with its hash: a folder without it is
no backup. `conversations/` holds one file of JSON lines for each conversation, a line for each
entry in the order of versions; `artifacts/` the content that entries refer to, by its hash.
"""

from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from foldlog_events.entries import Lane
from foldlog_events.errors import FoldlogError

FORMAT = 1
MANIFEST = "manifest.json"
CONVERSATIONS = "conversations"
ARTIFACTS = "artifacts"


class BrokenBackup(FoldlogError):
    """A folder that is no whole backup. Nothing of it was written to the log."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}; nothing was restored")
        self.where = where
        self.reason = reason


class FolderInUse(FoldlogError):
    """A backup is written to a folder of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"{folder} is there and not empty: name a new folder for the backup")
        self.folder = folder


NO_ENTRY = msgspec.Raw(b"")


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry: its place, and its JSON as it is stored; or the bytes that are no entry."""

    version: int
    lane: Lane
    predecessor: int | None = None
    """Version of the entry before it in its lane; None where that is not recorded."""
    entry: msgspec.Raw = NO_ENTRY
    raw: bytes | None = None
    """Base64 of bytes that could not be read as an entry."""

    @property
    def content(self) -> bytes:
        """The bytes to be stored."""
        return bytes(self.entry) if self.raw is None else self.raw


class ConversationFile(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation in the manifest."""

    tenant: str
    conversation: str
    file: str
    sha256: str
    entries: int
    version: int
    """Of its last entry."""
    context: str = ""
    """Digest of its context at that version; empty where it could not be folded."""


class ArtifactFile(msgspec.Struct, frozen=True, kw_only=True):
    """An artifact in the manifest; its file is named by the digits of its digest."""

    digest: str
    size: int
    mime_type: str
    preview: str = ""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup holds."""

    format: int
    made: datetime
    up_to: int
    """The last version of the log that was taken in."""
    conversations: tuple[ConversationFile, ...]
    artifacts: tuple[ArtifactFile, ...] = ()
    missing: tuple[str, ...] = ()
    """Digests that entries refer to and that were not stored any more."""


def artifact_path(folder: Path, digest: str) -> Path:
    """Where an artifact's content lies."""
    return folder / ARTIFACTS / digest.removeprefix("sha256:")


def references(value: Any) -> set[str]:
    """Digests of the artifacts that an entry's decoded JSON refers to."""
    found: set[str] = set()
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            digest = one.get("digest")
            if one.get("type") == "artifact" and isinstance(digest, str):
                found.add(digest)
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)
    return found
