"""What is appended: turns of an agent that calls a tool, about a thousand characters a message."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from typing import NamedTuple

from uuid_utils import uuid7

from foldlog_events.codec import encode
from foldlog_events.entries import (
    BaseVersion,
    CompactionEntry,
    Entry,
    EntryReference,
    MessageEntry,
    SourceRange,
    lane_of,
)
from foldlog_events.messages import Message, ToolCall, assistant, tool_result, user
from foldlog_events.subjects import message_id, subject_of

TENANT = "default"
_WORDS = [
    "revenue",
    "margin",
    "region",
    "quarter",
    "customer",
    "order",
    "invoice",
    "shipment",
    "return",
    "forecast",
    "delta",
    "growth",
    "north",
    "south",
    "table",
    "column",
    "join",
    "filter",
    "average",
    "median",
    "total",
    "net",
    "gross",
    "between",
    "above",
    "below",
    "and",
    "the",
    "of",
    "in",
    "for",
    "with",
    "without",
    "compared",
    "against",
    "last",
    "this",
    "next",
    "week",
    "month",
    "year",
]


@cache
def _texts() -> tuple[str, ...]:
    chance = random.Random(7)
    return tuple(
        " ".join(
            chance.choice(_WORDS) if chance.random() > 0.08 else f"{chance.random() * 10_000:.2f}"
            for _ in range(150)
        )
        for _ in range(64)
    )


def text(number: int, size: int = 900) -> str:
    """A text of that many characters, another one for every number."""
    texts = _texts()
    return f"{number}: {texts[number % 64]} {texts[(number // 64 + 1) % 64]}"[:size]


def message(number: int) -> Message:
    """The messages of a conversation: asked, called, answered by the tool, told."""
    match number % 4:
        case 0:
            return user(text(number))
        case 1:
            call = ToolCall(id=f"call_{number}", name="query", arguments={"sql": text(number, 750)})
            return assistant("", call)
        case 2:
            return tool_result(f"call_{number - 1}", text(number))
        case _:
            return assistant(text(number), model="model-a")


def entry_of(number: int, conversation: str) -> MessageEntry:
    """A message as an entry of its own."""
    return MessageEntry(
        id=str(uuid7()),
        conversation=conversation,
        tenant=TENANT,
        time=datetime.now(UTC),
        actor="agent",
        messages=(message(number),),
    )


def entries(count: int, conversation: str, *, start: int = 0) -> list[MessageEntry]:
    """The first `count` messages of a conversation, or those from `start` on."""
    return [entry_of(number, conversation) for number in range(start, start + count)]


class Stored(NamedTuple):
    """An entry as it is published."""

    subject: str
    data: bytes
    message_id: str
    offset: int = 0
    """Versions back to the entry before it in its lane, as a negative number; 0: not said."""


def stored(entry: Entry) -> Stored:
    """An entry ready to be published without foldlog."""
    lane = lane_of(entry)
    return Stored(
        subject_of(entry.tenant, entry.conversation, lane),
        encode(entry),
        message_id(entry.tenant, entry.conversation, entry.id),
    )


def compacted_history(count: int, conversation: str, *, every: int, keep: int) -> Iterator[Stored]:
    """`count` entries, a compaction after every `every` that keeps the newest `keep`.

    The stream has to be empty: versions count from 1.
    """
    recent: list[EntryReference] = []
    last_shape = 0
    for version in range(1, count + 1):
        if version % every or len(recent) < keep + 1:
            entry = entry_of(version, conversation)
            recent.append(EntryReference(entry.id, version))
            recent = recent[-every:]
            yield stored(entry)
            continue
        compaction = CompactionEntry(
            id=str(uuid7()),
            conversation=conversation,
            tenant=TENANT,
            time=datetime.now(UTC),
            base_version=BaseVersion(log=version - 1, shape=last_shape),
            source_range=SourceRange(
                first=recent[0], last=recent[-keep - 1], count=len(recent) - keep, digest="sha256:0"
            ),
            kept_from=recent[-keep],
            summary=text(version, 2_000),
        )
        last_shape = version
        yield stored(compaction)
