"""What the writers of a run append: conversations that look like an agent's."""

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from foldlog_events.entries import (
    Edit,
    EditEntry,
    Entry,
    MessageEntry,
    NoteEntry,
    ResetEntry,
)
from foldlog_events.messages import Message, Seen, ToolCall, assistant, tool_result, user
from tests.faults.plan import AVERAGE_BATCH, LARGEST_BATCH

_TEXT = "the order of table nine went to the kitchen at noon and came back cold for a refund"
_WORDS = tuple(_TEXT.split())


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """What one writer is told."""

    url: str
    name: str
    seed: int
    journal: str
    conversations: tuple[str, ...]
    appends: int
    pause: float
    """Seconds between two appends, on average."""
    clock_hours: float = 0.0


class Author:
    """Makes entries; `clock_hours` is how far its clock is ahead."""

    def __init__(self, name: str, random_: random.Random, clock_hours: float) -> None:
        self._name = name
        self._random = random_
        self._ahead = timedelta(hours=clock_hours)
        self._count = 0
        self._own: dict[str, list[str]] = {}

    def batch(self, conversation: str, seen: Seen | None = None) -> tuple[Entry, ...]:
        """The next entries for a conversation: mostly messages, now and then another kind.

        Where a context was seen, a reply that says so.
        """
        if seen is not None:
            reply = msgspec.structs.replace(assistant(f"{self._name} has seen"), seen=seen)
            return (MessageEntry(**self._envelope(conversation), messages=(reply,)),)
        draw = self._random.random()
        if draw < 0.25:
            return (self._message(conversation),)
        if draw < 0.28:
            return (self._edit(conversation),)
        if draw < 0.29:
            return (ResetEntry(**self._envelope(conversation), handoff=(user("start over"),)),)
        size = round(self._random.uniform(2, LARGEST_BATCH * 1.33))
        entries: list[Entry] = [self._message(conversation) for _ in range(size)]
        if draw < 0.33:
            entries.insert(self._random.randrange(size), self._edit(conversation))
        elif draw < 0.36:
            entries.append(NoteEntry(**self._envelope(conversation), name="n", data={"n": size}))
        return tuple(entries)

    def remember(self, conversation: str, entries: Sequence[Entry]) -> None:
        """These are in the log; a later edit may name one of them."""
        own = self._own.setdefault(conversation, [])
        own.extend(entry.id for entry in entries if isinstance(entry, MessageEntry))
        del own[:-AVERAGE_BATCH]

    def _message(self, conversation: str) -> MessageEntry:
        return MessageEntry(**self._envelope(conversation), messages=self._messages())

    def _messages(self) -> tuple[Message, ...]:
        self._count += 1
        text = f"{self._name} {self._count}: " + " ".join(
            self._random.choices(_WORDS, k=self._random.randint(4, 30))
        )
        match self._random.randrange(8):
            case 0:
                call = f"{self._name}-{self._count}"
                return (
                    assistant("", ToolCall(id=call, name="look", arguments={"table": self._count})),
                    tool_result(call, text),
                )
            case 1 | 2 | 3:
                return (assistant(text),)
            case _:
                return (user(text),)

    def _edit(self, conversation: str) -> EditEntry:
        target = self._random.choice(self._own.get(conversation) or ["unknown"])
        replace = None if self._random.random() < 0.5 else (user("in other words"),)
        return EditEntry(
            **self._envelope(conversation), edits=(Edit(target=target, replace=replace),)
        )

    def _envelope(self, conversation: str) -> dict[str, Any]:
        now = datetime.now(UTC) + self._ahead
        made = int(now.timestamp() * 1000)
        entry_id = UUID(int=(made << 80) | (7 << 76) | (2 << 62) | self._random.getrandbits(62))
        return {
            "id": str(entry_id),
            "conversation": conversation,
            "time": now,
            "actor": self._name,
        }
