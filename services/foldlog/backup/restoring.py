"""Restoring a backup: all of it is checked first, then appended in the order of versions."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec

from foldlog.backup.checking import Item, check, entry_of, load_manifest, parse
from foldlog.backup.layout import ConversationFile, Line, Manifest, artifact_path
from foldlog.backup.remapping import Key, Versions, may_name_versions, remapped
from foldlog.errors import ConversationExists, EntryTooLarge, FoldlogError
from foldlog.publishing import HEADROOM, Prepared
from foldlog.reading import messages
from foldlog.session import Foldlog
from foldlog.topology import entries_stream
from foldlog_events.codec import decode
from foldlog_events.errors import UndecodableEntry
from foldlog_events.subjects import both_lanes, message_id, subject_of

BATCH_ENTRIES = 200
BATCH_BYTES = 2 * 1024 * 1024
DEADLINE = 60.0
"""Seconds one append may take."""
_OPEN_FILES = 100

Progress = Callable[[int, int], None]


class Different(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation whose context is not what it was."""

    tenant: str
    conversation: str
    expected: str
    found: str


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """What a restore did."""

    conversations: int
    entries: int
    appended: int
    """The others were there from an earlier restore of this backup."""
    artifacts: int
    different: tuple[Different, ...] = ()


async def restore(
    foldlog: Foldlog, folder: Path, *, progress: Progress = lambda done, of: None
) -> Restored:
    """Append everything that a backup holds.

    A restore that was broken off goes on where it ended. Raises BrokenBackup, EntryTooLarge, and
    ConversationExists where the log holds other entries of one of the conversations: then nothing
    was written. Raises what appending raises.
    """
    manifest = load_manifest(folder)
    items = check(folder, manifest)
    _check_sizes(folder, manifest, items, foldlog.broker.max_payload)
    there = [await _there(foldlog, folder, file) for file in manifest.conversations]
    for artifact in manifest.artifacts:
        content = artifact_path(folder, artifact.digest).read_bytes()
        await foldlog.artifacts.put(content, artifact.mime_type, preview=artifact.preview)
    appended = await _Restoring(foldlog, folder, manifest, there).run(items, progress)
    return Restored(
        conversations=len(manifest.conversations),
        entries=len(items),
        appended=appended,
        artifacts=len(manifest.artifacts),
        different=tuple([one async for one in _differences(foldlog, manifest)]),
    )


def _check_sizes(folder: Path, manifest: Manifest, items: Sequence[Item], max_payload: int) -> None:
    with _lines(folder, manifest) as read:
        for item in items:
            line = read(item)
            size = len(line.content) + 2 * HEADROOM
            if size > max_payload:
                raise EntryTooLarge(size, max_payload)


async def _there(foldlog: Foldlog, folder: Path, file: ConversationFile) -> list[int]:
    """Versions of the backup's first entries that the log holds. Raises ConversationExists."""
    versions: list[int] = []
    subject = both_lanes(file.tenant, file.conversation)
    stream = entries_stream(file.tenant, file.conversation)
    with (folder / file.file).open("rb") as lines:
        async for page in messages(foldlog.broker, stream, subject):
            for stored in page:
                raw = lines.readline()
                if not raw or not _is_same(parse(raw, file.file), stored.data):
                    raise ConversationExists(file.conversation, tenant=file.tenant)
                versions.append(stored.version)
    return versions


def _is_same(line: Line, stored: bytes) -> bool:
    if line.raw is not None:
        return line.raw == stored
    try:
        return decode(stored).id == decode(line.content).id
    except UndecodableEntry:
        return False


@contextmanager
def _lines(folder: Path, manifest: Manifest) -> Iterator[Callable[[Item], Line]]:
    """Reads lines wherever they stand, with few files open at a time."""
    with ExitStack() as stack:
        opened: dict[int, BinaryIO] = {}

        def read(item: Item) -> Line:
            file = manifest.conversations[item.file]
            if item.file not in opened:
                if len(opened) >= _OPEN_FILES:
                    stack.pop_all().close()
                    opened.clear()
                opened[item.file] = stack.enter_context((folder / file.file).open("rb"))
            opened[item.file].seek(item.offset)
            return parse(opened[item.file].readline(), file.file)

        yield read


class _Restoring:
    """Appends runs of one conversation's entries, and keeps count of the versions they get."""

    def __init__(
        self, foldlog: Foldlog, folder: Path, manifest: Manifest, there: Sequence[Sequence[int]]
    ) -> None:
        self._foldlog = foldlog
        self._folder = folder
        self._manifest = manifest
        self._there = [iter(versions) for versions in there]
        self._versions = Versions()
        self._run: list[tuple[Item, Prepared]] = []
        self._appended = 0

    async def run(self, items: Sequence[Item], progress: Progress) -> int:
        """How many were appended."""
        with _lines(self._folder, self._manifest) as read:
            for done, item in enumerate(items):
                progress(done, len(items))
                version = next(self._there[item.file], None)
                if version is not None:
                    self._versions.add(self._key(item), item.lane, item.version, version)
                    continue
                await self._take(item, read(item))
            await self._flush()
        return self._appended

    def _key(self, item: Item) -> Key:
        file = self._manifest.conversations[item.file]
        return file.tenant, file.conversation

    async def _take(self, item: Item, line: Line) -> None:
        data = line.content
        size = sum(len(prepared.data) for _, prepared in self._run) + len(data)
        if self._run and (
            self._run[0][0].file != item.file
            or len(self._run) >= BATCH_ENTRIES
            or size > BATCH_BYTES
            or may_name_versions(data)
        ):
            await self._flush()
        self._run.append((item, self._prepared(item, line, data)))

    def _prepared(self, item: Item, line: Line, data: bytes) -> Prepared:
        file = self._manifest.conversations[item.file]
        if line.raw is None:
            data = remapped(data, self._key(item), self._versions)
            line = msgspec.structs.replace(line, entry=msgspec.Raw(data))
        entry = entry_of(line, file, file.file)
        return Prepared(
            entry,
            item.lane,
            subject_of(file.tenant, file.conversation, item.lane),
            data,
            message_id(file.tenant, file.conversation, entry.id),
        )

    async def _flush(self) -> None:
        if not self._run:
            return
        run, self._run = self._run, []
        recorded = await self._foldlog.log.append_prepared(
            [prepared for _, prepared in run], deadline=DEADLINE
        )
        for (item, _), one in zip(run, recorded, strict=True):
            self._versions.add(self._key(item), item.lane, item.version, one.version)
        self._appended += len(run)


async def _differences(foldlog: Foldlog, manifest: Manifest) -> AsyncIterator[Different]:
    for file in manifest.conversations:
        if not file.context:
            continue
        try:
            found = (await foldlog.contexts.rebuilt(file.tenant, file.conversation)).view().digest
        except FoldlogError as error:
            found = str(error)
        if found != file.context:
            yield Different(
                tenant=file.tenant,
                conversation=file.conversation,
                expected=file.context,
                found=found,
            )
