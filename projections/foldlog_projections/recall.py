"""Reading back what is no longer in the context: parts of entries, and where words occur.

Offsets and limits are in code points of an entry's text. Words are compared without case and in
one Unicode form, so that "Café", "CAFÉ" and "cafe" + combining accent are the same, and "cafe"
is another word.
"""

import unicodedata
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from foldlog_events.entries import (
    ActionEntry,
    CompactionEntry,
    EditEntry,
    Entry,
    ErasedEntry,
    ForkEntry,
    MessageEntry,
    NoteEntry,
    OtherEntry,
    Recorded,
    ResetEntry,
    SystemEntry,
    kind_of,
)
from foldlog_events.errors import FoldlogError
from foldlog_events.messages import AnyPart, Message, Text, ToolCallResponse
from foldlog_projections.summary_source import plain_text

DEFAULT_HITS = 10
SNIPPET_BEFORE = 80
"""Code points of a snippet before the first word found."""
SNIPPET_LENGTH = 300

_CHUNK = 4_096


class NothingToSearchFor(FoldlogError):
    """A query without words."""

    def __init__(self) -> None:
        super().__init__("the query holds no words: name at least one that the entry contains")


class Passage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of what a reference stands for."""

    reference: str
    """An entry's id, or an artifact's digest."""
    kind: str
    """The entry's kind, or the artifact's media type."""
    version: int | None = None
    """None for an artifact."""
    time: datetime | None = None
    """When the entry was written, or the time of the artifact's data."""
    offset: int
    text: str
    total: int
    """Code points of the whole text."""
    source: str = ""
    coverage: str = ""

    @property
    def next_offset(self) -> int | None:
        """Where to read on; None at the end."""
        end = self.offset + len(self.text)
        return end if end < self.total else None


class Unresolved(msgspec.Struct, frozen=True):
    """The reference stands for nothing that is still there."""

    reference: str
    reason: str


class NotAllowed(msgspec.Struct, frozen=True):
    """What the reference stands for is not for this reader."""

    reference: str
    reason: str


class Expired(msgspec.Struct, frozen=True):
    """The reference stands for data that states until when it was valid, and that is past."""

    reference: str
    valid_until: datetime


Outcome = Passage | Unresolved | NotAllowed | Expired


class ArtifactText(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An artifact's content as text, and what is known of it."""

    digest: str
    mime_type: str
    text: str
    source: str = ""
    """Where the data comes from."""
    coverage: str = ""
    """What part of the world, and of its source, the data covers."""
    time: datetime | None = None
    """Of the data."""
    valid_until: datetime | None = None
    """With its offset from UTC."""


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """An entry in which all words occur."""

    reference: str
    version: int
    kind: str
    time: datetime
    snippet: str
    """A part of the entry's text, around the first place where one of the words stands."""
    offset: int
    """Of the snippet."""
    total: int
    """Code points of the entry's text."""


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The newest hits, newest first."""

    hits: tuple[Hit, ...]
    total: int
    """Hits there are, with those left out."""


def entry_text(entry: Entry, *, for_people: bool = False) -> str:
    """The text of an entry: what it said, whole, and nothing added to a message of one text.

    Without `for_people` it is what a model may be shown: no notes, actions, or data of an
    application's own kind. Reasoning is left out; binary content is a placeholder.
    """
    texts = list(_shown(entry))
    if for_people:
        texts += _recorded(entry)
    return "\n".join(filter(None, texts))


def read_entry(recorded: Recorded, offset: int, limit: int) -> Passage | Unresolved | NotAllowed:
    """A part of an entry's text, for a model."""
    entry = recorded.entry
    if isinstance(entry, NoteEntry | ActionEntry | ForkEntry):
        return NotAllowed(entry.id, f"a {kind_of(entry)} entry is for people and programs")
    if isinstance(entry, ErasedEntry):
        return Unresolved(entry.id, f"it records that {entry.target} was erased")
    text = entry_text(entry)
    return Passage(
        reference=entry.id,
        kind=kind_of(entry),
        version=recorded.version,
        time=entry.time,
        offset=offset,
        text=text[offset : offset + limit],
        total=len(text),
    )


def read_artifact(
    artifact: ArtifactText, offset: int, limit: int, *, now: datetime
) -> Passage | Expired:
    """A part of an artifact's text, unless its validity was over at `now`."""
    if artifact.valid_until is not None and now >= artifact.valid_until:
        return Expired(artifact.digest, artifact.valid_until)
    return Passage(
        reference=artifact.digest,
        kind=artifact.mime_type,
        time=artifact.time,
        offset=offset,
        text=artifact.text[offset : offset + limit],
        total=len(artifact.text),
        source=artifact.source,
        coverage=artifact.coverage,
    )


class Search:
    """A search while entries are read, oldest first: it holds the newest hits only.

    Summaries come after all else: what they repeat was said elsewhere, in full.
    """

    def __init__(self, query: str, *, limit: int = DEFAULT_HITS, for_people: bool = False) -> None:
        """Raises NothingToSearchFor."""
        # Split first: the parts of a character may hold a space, as those of "´" do.
        self._words = [_normalised(word) for word in query.split()]
        if not self._words:
            raise NothingToSearchFor
        self._for_people = for_people
        self._limit = limit
        self._hits: deque[Hit] = deque(maxlen=limit)
        self._retold: deque[Hit] = deque(maxlen=limit)
        self._found: set[str] = set()
        self._erased: set[str] = set()

    def add(self, recorded: Recorded) -> None:
        """Look into one entry. An id that was seen before is a retry that was stored twice."""
        entry = recorded.entry
        if isinstance(entry, ErasedEntry):
            self._forget(entry.target)
        if entry.id in self._found or entry.id in self._erased:
            return
        text = entry_text(entry, for_people=self._for_people)
        place = _first_place(text, self._words)
        if place is None:
            return
        start = max(0, place - SNIPPET_BEFORE)
        while start > 0 and unicodedata.combining(text[start]):
            start -= 1
        self._found.add(entry.id)
        hits = self._retold if isinstance(entry, CompactionEntry) else self._hits
        hits.append(
            Hit(
                reference=entry.id,
                version=recorded.version,
                kind=kind_of(entry),
                time=entry.time,
                snippet=text[start : start + SNIPPET_LENGTH],
                offset=start,
                total=len(text),
            )
        )

    def result(self) -> SearchResult:
        """What was found so far."""
        hits = (*reversed(self._hits), *reversed(self._retold))
        return SearchResult(hits=hits[: self._limit], total=len(self._found))

    def _forget(self, target: str) -> None:
        self._erased.add(target)
        if target in self._found:
            self._found.discard(target)
            for hits in (self._hits, self._retold):
                kept = [hit for hit in hits if hit.reference != target]
                hits.clear()
                hits.extend(kept)


def search(
    entries: Iterable[Recorded],
    query: str,
    *,
    limit: int = DEFAULT_HITS,
    for_people: bool = False,
) -> SearchResult:
    """The entries in whose text every word of the query occurs; a word may be part of another.

    Entries are given oldest first; what was erased is not found. Raises NothingToSearchFor.
    """
    running = Search(query, limit=limit, for_people=for_people)
    for recorded in entries:
        running.add(recorded)
    return running.result()


def _shown(entry: Entry) -> Iterator[str]:
    match entry:
        case MessageEntry(messages=messages) | OtherEntry(messages=messages):
            yield from map(_message_text, messages)
        case ResetEntry(handoff=messages):
            yield from map(_message_text, messages)
        case EditEntry(edits=edits):
            for edit in edits:
                yield from map(_message_text, edit.replace or ())
        case SystemEntry(sections=sections):
            for section in sections:
                yield f"{section.name}:\n{section.text}" if section.text is not None else ""
        case CompactionEntry(summary=summary, exact_values=values):
            yield summary
            yield from (f"{value.kind}: {value.text}" for value in values)
        case _:
            pass


def _recorded(entry: Entry) -> Iterator[str]:
    match entry:
        case NoteEntry(name=name, data=data):
            yield from (name, _json(data))
        case ActionEntry():
            yield f"{entry.action} {entry.step} {entry.name}".rstrip()
            yield from (_json(entry.arguments), _json(entry.result), entry.reason)
        case OtherEntry(data=data):
            yield _json(data)
        case ForkEntry(parent=parent):
            yield parent
        case EditEntry(reason=reason) | ResetEntry(reason=reason) | ErasedEntry(reason=reason):
            yield reason
        case _:
            pass


def _json(value: Any) -> str:
    return "" if value is None else msgspec.json.encode(value).decode()


def _message_text(message: Message) -> str:
    return "\n".join(filter(None, map(_part_text, message.parts)))


def _part_text(part: AnyPart) -> str:
    if isinstance(part, Text):
        return part.content
    if isinstance(part, ToolCallResponse):
        if isinstance(part.result, str):
            return part.result
        return "\n".join(map(_part_text, part.result))
    return plain_text(Message(role="assistant", parts=(part,)))


def _normalised(text: str) -> str:
    """Without case, and with every character in its parts (NFKD)."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())


def _first_place(text: str, words: Sequence[str]) -> int | None:
    """Where the first of the words stands, in code points; None unless all of them occur."""
    normalised = _normalised(text)
    places = []
    for word in words:
        place = _find(normalised, word)
        if place < 0:
            return None
        places.append(place)
    return min(places) if text.isascii() else _place_before(text, min(places))


def _find(text: str, word: str) -> int:
    """As `str.find`, but a character is found whole or not at all."""
    place = text.find(word)
    while place >= 0:
        end = place + len(word)
        if end == len(text) or not _goes_on(text[end]):
            return place
        place = text.find(word, place + 1)
    return -1


def _goes_on(character: str) -> bool:
    """Whether it belongs to the character before: an accent, a later letter of a syllable."""
    return unicodedata.combining(character) > 0 or "\u1160" <= character <= "\u11ff"


def _place_before(text: str, place: int) -> int:
    """The code point of a text that `place` of its normalised form comes from."""
    start = 0
    while place >= (length := len(_normalised(text[start : start + _CHUNK]))):
        place -= length
        start += _CHUNK
    chunk = text[start : start + _CHUNK]
    ends = range(len(chunk) + 1)
    return start + bisect_right(ends, place, key=lambda end: len(_normalised(chunk[:end]))) - 1


__all__ = [
    "ArtifactText",
    "Expired",
    "Hit",
    "NotAllowed",
    "NothingToSearchFor",
    "Outcome",
    "Passage",
    "Search",
    "SearchResult",
    "Unresolved",
    "entry_text",
    "read_artifact",
    "read_entry",
    "search",
]
