"""Reading back what left the context: what `session.recall` and the recall tool read from."""

from collections.abc import AsyncIterator, Iterator
from datetime import datetime

from foldlog.artifacts import Artifacts
from foldlog.errors import UnknownArtifact
from foldlog.history import find_entry, history, lineage
from foldlog.log import Log
from foldlog.reading import Read
from foldlog_events.entries import (
    EditEntry,
    Entry,
    ErasedEntry,
    MessageEntry,
    OtherEntry,
    Recorded,
    ResetEntry,
)
from foldlog_events.messages import AnyPart, ArtifactReference, Message, ToolCallResponse
from foldlog_projections.recall import (
    ArtifactText,
    NotAllowed,
    Outcome,
    Search,
    SearchResult,
    Unresolved,
    read_artifact,
    read_entry,
)

_TEXTS = ("text/", "application/json", "application/xml", "application/x-ndjson")
"""Media types that begin so are text."""


class ConversationReader:
    """Reads one conversation and what it inherits; nothing of any other conversation."""

    def __init__(self, log: Log, artifacts: Artifacts, tenant: str, conversation: str) -> None:
        self._log = log
        self._artifacts = artifacts
        self._tenant = tenant
        self._conversation = conversation

    async def entry(self, entry_id: str) -> Recorded | Unresolved | NotAllowed:
        """An entry by its id; Unresolved where it was erased or is not there."""
        for stretch in await lineage(self._log, self._tenant, self._conversation):
            if await self._is_erased(stretch.conversation, entry_id):
                return Unresolved(entry_id, "it was erased")
            found = await find_entry(
                self._log, self._tenant, stretch.conversation, entry_id, up_to=stretch.up_to
            )
            if found is not None:
                return found
        return Unresolved(entry_id, "no entry of this conversation has this id")

    async def entries(self) -> AsyncIterator[Read]:
        """All entries, oldest first, tombstones included."""
        async for read in history(self._log, self._tenant, self._conversation):
            yield read

    async def artifact(self, digest: str) -> ArtifactText | Unresolved | NotAllowed:
        """An artifact's text, with what the newest reference to it states.

        It may be read where an entry of the conversation refers to it and was not erased.
        """
        reference = await self._reference(digest)
        if reference is None:
            return NotAllowed(digest, "no entry of this conversation refers to it")
        if not reference.mime_type.startswith(_TEXTS):
            return NotAllowed(
                digest, f"it is {reference.mime_type} of {reference.size} bytes, and no text"
            )
        try:
            content = await self._artifacts.get(digest)
        except UnknownArtifact:
            return Unresolved(digest, "its content is no longer stored")
        return ArtifactText(
            digest=digest,
            mime_type=reference.mime_type,
            text=content.decode(errors="replace"),
            source=reference.source,
            coverage=reference.coverage,
            time=reference.time,
            valid_until=reference.valid_until,
        )

    async def search(self, query: str) -> SearchResult:
        """The entries in whose text all words occur, the newest first."""
        search = Search(query)
        async for read in self.entries():
            if isinstance(read, Recorded):
                search.add(read)
        return search.result()

    async def read(self, reference: str, offset: int, limit: int, *, now: datetime) -> Outcome:
        """A part of what an entry id or an artifact's digest stands for."""
        if not reference.startswith("sha256:"):
            recorded = await self.entry(reference)
            return (
                read_entry(recorded, offset, limit) if isinstance(recorded, Recorded) else recorded
            )
        artifact = await self.artifact(reference)
        if isinstance(artifact, ArtifactText):
            return read_artifact(artifact, offset, limit, now=now)
        return artifact

    async def _is_erased(self, conversation: str, entry_id: str) -> bool:
        async for read in self._log.read(self._tenant, conversation, lane="shape"):
            entry = read.entry if isinstance(read, Recorded) else None
            if isinstance(entry, ErasedEntry) and entry.target == entry_id:
                return True
        return False

    async def _reference(self, digest: str) -> ArtifactReference | None:
        found: dict[str, ArtifactReference] = {}
        async for read in self.entries():
            entry = read.entry if isinstance(read, Recorded) else None
            if isinstance(entry, ErasedEntry):
                found.pop(entry.target, None)
            elif entry is not None:
                for reference in references(entry):
                    if reference.digest == digest:
                        found.pop(entry.id, None)
                        found[entry.id] = reference
        return next(reversed(found.values()), None)


def references(entry: Entry) -> Iterator[ArtifactReference]:
    """The artifacts that an entry refers to."""
    for message in _messages(entry):
        for part in message.parts:
            yield from _in_part(part)


def _in_part(part: AnyPart) -> Iterator[ArtifactReference]:
    if isinstance(part, ArtifactReference):
        yield part
    elif isinstance(part, ToolCallResponse) and not isinstance(part.result, str):
        yield from (one for one in part.result if isinstance(one, ArtifactReference))


def _messages(entry: Entry) -> Iterator[Message]:
    match entry:
        case MessageEntry(messages=messages) | OtherEntry(messages=messages):
            yield from messages
        case ResetEntry(handoff=messages):
            yield from messages
        case EditEntry(edits=edits):
            for edit in edits:
                yield from edit.replace or ()
        case _:
            pass
