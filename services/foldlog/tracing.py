"""Where the text of an erased entry went inside its conversation: edits, summaries, baselines.

What was copied by people or models into other messages cannot be known from the log's structure;
texts that repeat it word for word are reported.
"""

from collections.abc import Iterable, Sequence

import msgspec

from foldlog.reading import Read
from foldlog_events.entries import (
    Baseline,
    CompactionEntry,
    EditEntry,
    Entry,
    EntryReference,
    ErasedEntry,
    MessageEntry,
    OtherEntry,
    Recorded,
    ResetEntry,
)
from foldlog_events.messages import Message, Text, ToolCallResponse

SHORTEST_COPY = 12
"""Code points; a shorter text that occurs elsewhere is no sign of a copy."""


class Traced(msgspec.Struct, frozen=True):
    """What of a conversation is to be removed."""

    removed: tuple[EntryReference, ...]
    """In the order of versions: the targets, and what holds their text."""
    tainted_heads: tuple[tuple[int, bool], ...]
    """From each head marker's version on, whether the head in force holds the text."""

    def head_is_tainted(self, version: int) -> bool:
        """Whether the head in force at a version holds the text."""
        tainted = False
        for head, holds in self.tainted_heads:
            if head <= version:
                tainted = holds
        return tainted


def trace(
    reads: Iterable[Read],
    targets: Sequence[EntryReference],
    texts: Sequence[str] = (),
    *,
    inherited: Sequence[EntryReference] = (),
    head_is_tainted: bool = False,
) -> Traced:
    """What holds the text of the targets, or of what a child inherits of them.

    An edit that replaces one; a summary whose source covers one, or that merged such a summary;
    a baseline with a section that one set; a handoff with a text of one. What was written after
    the tombstone saw no such text.
    """
    reads = tuple(reads)
    tombstones = {
        (read.entry.target, read.entry.target_version): read.version
        for read in reads
        if isinstance(read, Recorded) and isinstance(read.entry, ErasedEntry)
    }
    gone = {(one.id, one.version) for one in (*targets, *inherited)}
    removed = list(targets)
    heads: list[tuple[int, bool]] = [(0, head_is_tainted)]
    for read in reads:
        if not isinstance(read, Recorded):
            continue
        version, entry = read.version, read.entry
        live = {one for one in gone if tombstones.get(one, version) >= version}
        tainted = (entry.id, version) in gone or holds_text(
            entry, live, {one for one, _ in gone}, texts, after_tainted=heads[-1][1]
        )
        if tainted and (entry.id, version) not in gone:
            gone.add((entry.id, version))
            removed.append(EntryReference(entry.id, version))
        if isinstance(entry, ErasedEntry) and heads[-1][1]:
            # The head's own tombstone: from here on it shows nothing.
            named = (entry.target, entry.target_version)
            if entry.target_version == heads[-1][0] or (heads[-1][0] == 0 and named in gone):
                heads.append((version, False))
        elif isinstance(entry, ResetEntry) or (
            isinstance(entry, CompactionEntry) and entry.base_version.shape == read.predecessor
        ):
            heads.append((version, tainted))
    return Traced(tuple(sorted(removed, key=lambda one: one.version)), tuple(heads))


def holds_text(
    entry: Entry,
    live: set[tuple[str, int]],
    ids: set[str],
    texts: Sequence[str],
    *,
    after_tainted: bool,
) -> bool:
    """Whether a shape entry holds text of what was erased."""
    match entry:
        case EditEntry(edits=edits):
            return any(edit.target in ids and edit.replace for edit in edits)
        case CompactionEntry(source_range=covered, baseline=baseline):
            return (
                after_tainted
                or any(covered.first.version <= v <= covered.last.version for _, v in live)
                or _has_section_of(baseline, ids)
            )
        case ResetEntry(handoff=handoff, baseline=baseline):
            return _has_section_of(baseline, ids) or any(
                says_any(message, texts) for message in handoff
            )
        case _:
            return False


def says_any(message: Message, texts: Sequence[str]) -> bool:
    """Whether a message repeats one of the texts word for word."""
    said = texts_of(message)
    return any(text in one for one in said for text in texts)


def texts_to_look_for(entry: Entry) -> tuple[str, ...]:
    """What of an entry can be recognised elsewhere."""
    messages: tuple[Message, ...] = ()
    if isinstance(entry, MessageEntry | OtherEntry):
        messages = entry.messages
    said = (text.strip() for message in messages for text in texts_of(message))
    return tuple(text for text in said if len(text) >= SHORTEST_COPY)


def texts_of(message: Message) -> tuple[str, ...]:
    """The texts and textual results of a message."""
    found: list[str] = []
    for part in message.parts:
        if isinstance(part, Text):
            found.append(part.content)
        elif isinstance(part, ToolCallResponse):
            results = part.result
            if isinstance(results, str):
                found.append(results)
            else:
                found += [one.content for one in results if isinstance(one, Text)]
    return tuple(found)


def _has_section_of(baseline: Baseline | None, ids: set[str]) -> bool:
    return baseline is not None and any(section.entry in ids for section in baseline.sections)
