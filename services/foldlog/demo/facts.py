"""The facts that the demo shows, read back from the log, the views and the records."""

from collections.abc import Sequence

import msgspec

from foldlog import audit
from foldlog.contexts import fold_in
from foldlog.demo import story
from foldlog.demo.figures import orders_at_the_end
from foldlog.reading import Read
from foldlog.session import Foldlog
from foldlog_events.entries import (
    CompactionEntry,
    EditEntry,
    MessageEntry,
    Recorded,
    lane_of,
)
from foldlog_events.messages import Message, Text
from foldlog_projections.attempts import CompactionRecord
from foldlog_projections.fold import ContextFold, empty
from foldlog_projections.views import ContextView

MOMENTS = (
    "the first answer",
    "under pressure",
    "after the compaction",
    "the report",
)


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """What the model saw when it wrote a message, beside what the log held then."""

    name: str
    model_messages: int
    model_tokens: int
    log_entries: int
    """That were said or done; what only changes how they are seen is not counted."""
    log_tokens: int
    """Of all of them, seen as they were said."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the demo shows. Not one of these depends on timing, or on who was killed when."""

    conversation: str
    moments: tuple[Moment, ...]
    killed: str
    """The process that the story kills during the first summary."""
    compactions: int
    wish_given_during_compaction: bool
    wish_stands_after_summary: bool
    report_heeds_wish: bool
    stale_compaction_refused: bool
    report_uses_correction: bool
    stored_view_equals_fold: bool
    differences_found_by_verify: int


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """All that the demo prints: the facts and what they were read from."""

    facts: Facts
    reads: tuple[Read, ...]
    attempts: tuple[CompactionRecord, ...]
    views: tuple[ContextView, ...]
    """What the model saw at each moment."""
    verdict: audit.Verdict


async def gather(foldlog: Foldlog, conversation: str, killed: str) -> Shown:
    """Read everything back once the story is over."""
    reads = await foldlog.log.read_all(foldlog.tenant, conversation)
    attempts = await foldlog.attempts.read(foldlog.tenant, conversation)
    session = foldlog.session(conversation)
    views = [await session.context(at=version) for version in _seen(reads)]
    stored = await foldlog.contexts.stored(foldlog.tenant, conversation)
    current = await session.context()
    verdict = await audit.verify(foldlog, [conversation])
    facts = Facts(
        conversation=story.CONVERSATION,
        moments=tuple(
            _moment(name, view, reads) for name, view in zip(MOMENTS, views, strict=True)
        ),
        killed=killed,
        compactions=len(_compactions(reads)),
        wish_given_during_compaction=_wish_given_during_compaction(reads, attempts),
        wish_stands_after_summary=story.WISH in map(text_of, views[2].messages),
        report_heeds_wish=_report_heeds_wish(reads),
        stale_compaction_refused=_stale_refused(reads, attempts),
        report_uses_correction=f" {orders_at_the_end()} orders " in text_of(_report(reads)),
        stored_view_equals_fold=stored is not None and stored.view() == current,
        differences_found_by_verify=len(verdict.differences),
    )
    return Shown(
        facts=facts,
        reads=tuple(reads),
        attempts=tuple(attempts),
        views=tuple(views),
        verdict=verdict,
    )


def answers(reads: Sequence[Read]) -> list[tuple[int, Message]]:
    """The messages with which the analyst's turns ended, and their versions."""
    return [
        (read.version, message)
        for read in reads
        for message in messages_of(read)
        if message.role == "assistant" and message.finish_reason == "stop"
    ]


def messages_of(read: Read) -> tuple[Message, ...]:
    """The messages of an entry of the kind `message`."""
    entry = read.entry if isinstance(read, Recorded) else None
    return entry.messages if isinstance(entry, MessageEntry) else ()


def text_of(message: Message) -> str:
    """The texts of a message, without calls and results."""
    return "\n".join(part.content for part in message.parts if isinstance(part, Text))


def version_of(reads: Sequence[Read], text: str) -> int:
    """The version at which a text was said; 0 where it was not."""
    return next(
        (read.version for read in reads for one in messages_of(read) if text_of(one) == text), 0
    )


def _seen(reads: Sequence[Read]) -> list[int]:
    """Versions of the contexts that the answers of the four moments were given to."""
    compacted = _compactions(reads)[0][0]
    first, pressed, *_, last = answers(reads)
    goes_on = next(
        (read.version, message)
        for read in reads
        for message in messages_of(read)
        if message.role == "assistant" and message.seen and message.seen.version >= compacted
    )
    moments = (first, pressed, goes_on, last)
    return [message.seen.version for _, message in moments if message.seen is not None]


def _moment(name: str, view: ContextView, reads: Sequence[Read]) -> Moment:
    said = [read for read in reads if read.version <= view.version and is_said(read)]
    whole = ContextFold(empty(view.tenant, view.conversation))
    for read in said:
        fold_in(whole, read)
    return Moment(
        name=name,
        model_messages=len(view.messages),
        model_tokens=view.tokens,
        log_entries=len(said),
        log_tokens=whole.tokens(),
    )


def is_said(read: Read) -> bool:
    """Whether an entry says something, and not how others are seen."""
    return isinstance(read, Recorded) and lane_of(read.entry) == "log"


def _compactions(reads: Sequence[Read]) -> list[tuple[int, CompactionEntry]]:
    return [
        (read.version, read.entry)
        for read in reads
        if isinstance(read, Recorded) and isinstance(read.entry, CompactionEntry)
    ]


def _wish_given_during_compaction(
    reads: Sequence[Read], attempts: Sequence[CompactionRecord]
) -> bool:
    """Said after the attempt had chosen what to summarise, and before the summary was there."""
    version, entry = _compactions(reads)[0]
    wish = version_of(reads, story.WISH)
    return (
        attempts[0].state == "started"
        and attempts[0].version < wish < version
        and wish > entry.source_range.last.version
    )


def _stale_refused(reads: Sequence[Read], attempts: Sequence[CompactionRecord]) -> bool:
    """An attempt ended as stale, a correction is why, and its summary is nowhere in the log."""
    stale = {record.id for record in attempts if record.state == "stale"}
    committed = {entry.attempt for _, entry in _compactions(reads)}
    corrected = any(
        isinstance(read, Recorded) and isinstance(read.entry, EditEntry) for read in reads
    )
    return bool(stale) and corrected and not stale & committed


def _report(reads: Sequence[Read]) -> Message:
    return answers(reads)[-1][1]


def _report_heeds_wish(reads: Sequence[Read]) -> bool:
    said = text_of(_report(reads))
    return len(said.splitlines()) == 5 and "without bundles" in said
