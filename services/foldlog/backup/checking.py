"""Reading a backup before anything is written: every file is whole, every line an entry."""

import hashlib
import itertools
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from foldlog.backup.layout import (
    FORMAT,
    MANIFEST,
    BrokenBackup,
    ConversationFile,
    Line,
    Manifest,
    artifact_path,
)
from foldlog_events.codec import decode
from foldlog_events.entries import Entry, Lane, OtherEntry, lane_of
from foldlog_events.errors import InvalidIdentifier, UndecodableEntry
from foldlog_events.subjects import subject_of

_manifest = msgspec.json.Decoder(Manifest)
_line = msgspec.json.Decoder(Line)
_DIGEST_LENGTH = len("sha256:") + 64
_EPOCH = datetime.fromtimestamp(0, UTC)
UNREADABLE = "foldlog.unreadable"
"""Kind of the entry that stands, in this process only, for bytes that are none."""


class Item(NamedTuple):
    """One line of a backup, without its content, which stays in the file."""

    version: int
    file: int
    """Place of its conversation in the manifest."""
    offset: int
    """Of its line, in bytes."""
    lane: Lane
    id: str


def load_manifest(folder: Path) -> Manifest:
    """What a folder says that it holds. Raises BrokenBackup."""
    path = folder / MANIFEST
    try:
        manifest = _manifest.decode(path.read_bytes())
    except OSError as error:
        raise BrokenBackup(str(path), f"it cannot be read ({error.strerror})") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenBackup(str(path), f"it is no manifest: {error}") from None
    if manifest.format != FORMAT:
        raise BrokenBackup(
            str(path), f"its format is {manifest.format} and this release reads {FORMAT}"
        )
    return manifest


def check(folder: Path, manifest: Manifest) -> list[Item]:
    """Every line of a backup in the order of versions. Raises BrokenBackup."""
    items: list[Item] = []
    names: set[tuple[str, str]] = set()
    for place, file in enumerate(manifest.conversations):
        if (file.tenant, file.conversation) in names:
            raise BrokenBackup(MANIFEST, f"conversation {file.conversation!r} is there twice")
        names.add((file.tenant, file.conversation))
        items += _check_conversation(folder, file, place)
    items.sort()
    for before, after in itertools.pairwise(items):
        if before.version == after.version:
            raise BrokenBackup(str(folder), f"two entries are of version {after.version}")
    for artifact in manifest.artifacts:
        _check_artifact(folder, artifact.digest, artifact.size)
    return items


def _check_conversation(folder: Path, file: ConversationFile, place: int) -> Iterator[Item]:
    path = _inside(folder, file.file)
    hashed = hashlib.sha256()
    offset = count = version = 0
    ids: set[str] = set()
    try:
        with path.open("rb") as lines:
            for raw in lines:
                hashed.update(raw)
                count += 1
                where = f"{file.file}, line {count}"
                line = parse(raw, where)
                entry = entry_of(line, file, where)
                if line.version <= version:
                    raise BrokenBackup(where, f"version {line.version} follows {version}")
                if entry.id in ids:
                    raise BrokenBackup(where, f"an earlier line has the id {entry.id!r} too")
                ids.add(entry.id)
                version = line.version
                yield Item(version, place, offset, line.lane, entry.id)
                offset += len(raw)
    except OSError as error:
        raise BrokenBackup(file.file, f"it cannot be read ({error.strerror})") from None
    if hashed.hexdigest() != file.sha256:
        raise BrokenBackup(file.file, "its content is not what the manifest was made for")
    if (count, version) != (file.entries, file.version):
        raise BrokenBackup(file.file, f"it holds {count} entries up to {version}")


def parse(raw: bytes, where: str) -> Line:
    """One line of a file. Raises BrokenBackup."""
    try:
        return _line.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenBackup(where, f"it is no line of a backup: {error}") from None


def entry_of(line: Line, file: ConversationFile, where: str) -> Entry:
    """The entry of a line, or one that stands for its unreadable bytes. Raises BrokenBackup."""
    if bool(bytes(line.entry)) == (line.raw is not None):
        raise BrokenBackup(where, "a line holds either an entry or raw bytes")
    if line.raw is not None:
        return OtherEntry(
            kind=UNREADABLE,
            id=f"unreadable-{line.version}",
            conversation=file.conversation,
            tenant=file.tenant,
            time=_EPOCH,
        )
    try:
        entry = decode(bytes(line.entry))
        subject = subject_of(entry.tenant, entry.conversation, lane_of(entry))
        if subject != subject_of(file.tenant, file.conversation, line.lane):
            raise BrokenBackup(where, "its entry belongs to another conversation or lane")
    except (UndecodableEntry, InvalidIdentifier) as error:
        raise BrokenBackup(where, str(error)) from None
    return entry


def _check_artifact(folder: Path, digest: str, size: int) -> None:
    if len(digest) != _DIGEST_LENGTH or not digest.startswith("sha256:"):
        raise BrokenBackup(MANIFEST, f"{digest!r} is no digest of an artifact")
    path = artifact_path(folder, digest)
    try:
        with path.open("rb") as content:
            found = hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise BrokenBackup(str(path), f"it cannot be read ({error.strerror})") from None
    if f"sha256:{found}" != digest or path.stat().st_size != size:
        raise BrokenBackup(str(path), "its content is not what its name says")


def _inside(folder: Path, name: str) -> Path:
    """A file of the backup: a manifest must not lead to any other."""
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise BrokenBackup(MANIFEST, f"{name!r} leads out of the backup's folder")
    return path
