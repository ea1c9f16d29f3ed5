"""Writing a backup: what the log holds up to one version, while others go on writing."""

import hashlib
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from foldlog.backup.layout import (
    ARTIFACTS,
    CONVERSATIONS,
    FORMAT,
    MANIFEST,
    ArtifactFile,
    ConversationFile,
    FolderInUse,
    Line,
    Manifest,
    artifact_path,
    references,
)
from foldlog.errors import CorruptArtifact, FoldlogError, UnknownArtifact
from foldlog.history import lineage
from foldlog.reading import Stored, messages, read_stored
from foldlog.session import Foldlog
from foldlog.topology import ENTRIES, entries_stream
from foldlog_events.entries import Recorded, lane_of
from foldlog_events.subjects import both_lanes, encode_token

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


async def export(
    foldlog: Foldlog,
    folder: Path,
    conversations: Iterable[str] | None = None,
    *,
    all_tenants: bool = False,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Manifest:
    """Write conversations of the tenant (all, where None; of every tenant on request) to a folder.

    Conversations that they inherit from come along. Raises FolderInUse, UnknownConversation, and
    what reading raises; then the folder has no manifest, and so is no backup.
    """
    _check_free(folder)
    up_to = (await foldlog.broker.api(f"STREAM.INFO.{ENTRIES}"))["state"]["last_seq"]
    names = await _names(foldlog, conversations, all_tenants=all_tenants)
    (folder / CONVERSATIONS).mkdir(parents=True)
    (folder / ARTIFACTS).mkdir()
    files: list[ConversationFile] = []
    digests: set[str] = set()
    for done, (tenant, conversation) in enumerate(names):
        progress(done, len(names))
        name = f"{CONVERSATIONS}/{done + 1:06}-{encode_token(conversation)[:80]}.jsonl"
        file = await _export_one(foldlog, folder / name, tenant, conversation, up_to, digests)
        if file is not None:
            files.append(msgspec.structs.replace(file, file=name))
    artifacts, missing = await _export_artifacts(foldlog, folder, digests)
    manifest = Manifest(
        format=FORMAT,
        made=datetime.now(UTC),
        up_to=up_to,
        conversations=tuple(files),
        artifacts=artifacts,
        missing=missing,
    )
    (folder / MANIFEST).write_bytes(msgspec.json.format(_encode(manifest), indent=1))
    return manifest


def _check_free(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FolderInUse(folder)


def _remove(path: Path) -> None:
    path.unlink()


async def _names(
    foldlog: Foldlog, conversations: Iterable[str] | None, *, all_tenants: bool
) -> list[tuple[str, str]]:
    if conversations is None:
        listed = foldlog.log.conversations(None if all_tenants else foldlog.tenant)
        return sorted([(one.tenant, one.conversation) async for one in listed])
    names = dict.fromkeys((foldlog.tenant, name) for name in conversations)
    for tenant, name in tuple(names):
        await foldlog.contexts.require(tenant, name)
        for stretch in await lineage(foldlog.log, tenant, name):
            names[tenant, stretch.conversation] = None
    return list(names)


async def _export_one(
    foldlog: Foldlog,
    path: Path,
    tenant: str,
    conversation: str,
    up_to: int,
    digests: set[str],
) -> ConversationFile | None:
    """None where all of it came after the backup began."""
    hashed = hashlib.sha256()
    entries = version = 0
    subject = both_lanes(tenant, conversation)
    with path.open("wb") as file:
        async for page in messages(foldlog.broker, entries_stream(tenant, conversation), subject):
            for stored in page:
                if stored.version > up_to:
                    break
                line = _encode(_line(stored, digests)) + b"\n"
                hashed.update(line)
                file.write(line)
                entries += 1
                version = stored.version
    if not entries:
        _remove(path)
        return None
    return ConversationFile(
        tenant=tenant,
        conversation=conversation,
        file="",
        sha256=hashed.hexdigest(),
        entries=entries,
        version=version,
        context=await _context(foldlog, tenant, conversation, version),
    )


def _line(stored: Stored, digests: set[str]) -> Line:
    read = read_stored(stored)
    if not isinstance(read, Recorded):
        return Line(
            version=read.version, lane=read.lane, predecessor=read.predecessor, raw=stored.data
        )
    digests |= references(_decode(stored.data))
    return Line(
        version=read.version,
        lane=lane_of(read.entry),
        predecessor=read.predecessor,
        entry=msgspec.Raw(_on_one_line(stored.data)),
    )


def _on_one_line(data: bytes) -> bytes:
    """Another program may have stored an entry over several lines."""
    return msgspec.json.format(data, indent=-1) if b"\n" in data else data


async def _context(foldlog: Foldlog, tenant: str, conversation: str, version: int) -> str:
    try:
        return (await foldlog.contexts.at(tenant, conversation, version)).view().digest
    except (FoldlogError, ValueError):
        return ""


async def _export_artifacts(
    foldlog: Foldlog, folder: Path, digests: set[str]
) -> tuple[tuple[ArtifactFile, ...], tuple[str, ...]]:
    files: list[ArtifactFile] = []
    missing: list[str] = []
    for digest in sorted(digests):
        try:
            content = await foldlog.artifacts.get(digest)
            reference = await foldlog.artifacts.reference(digest)
        except (UnknownArtifact, CorruptArtifact):
            missing.append(digest)
            continue
        artifact_path(folder, digest).write_bytes(content)
        files.append(
            ArtifactFile(
                digest=digest,
                size=len(content),
                mime_type=reference.mime_type,
                preview=reference.preview,
            )
        )
    return tuple(files), tuple(missing)
