"""Calls and their results (rules 3 and 4).

Pairing is by occurrence: ids repeat within real conversations, results come late, twice, or
never. Messages are placed once, in one pass; a result that comes later takes the place that its
call has kept for it.
"""

from collections import deque
from typing import NamedTuple

import msgspec

from foldlog_events.messages import (
    AnyPart,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolCallResponse,
)

RESULT_UNAVAILABLE = "Tool result unavailable: history ends before this call completed."

UNFINISHED = frozenset({"aborted", "error", "deferred"})


class _Waiting(NamedTuple):
    """A call without a result so far: where its result goes, and the call's name there."""

    place: int | None
    """None where the call itself is not shown: its result is dropped (rule 3.2)."""
    shown_id: str


def counts(message: Message) -> bool:
    """Whether an assistant message contributes (rule 3.1)."""
    return message.finish_reason not in UNFINISHED and any(map(_is_content, message.parts))


def _is_content(part: AnyPart) -> bool:
    if isinstance(part, Text):
        return bool(part.content.strip())
    return not isinstance(part, Reasoning | ToolCallResponse)


class Transcript:
    """Messages in the order in which a model is shown them, without the leading system message."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._waiting: dict[str, deque[_Waiting]] = {}

    def add(self, message: Message) -> list[int]:
        """Place one message; returns the places of earlier ones that changed."""
        if message.role == "assistant":
            self._add_assistant(message)
            return []
        return self._add_other(message)

    def _add_assistant(self, message: Message) -> None:
        parts = tuple(part for part in message.parts if not isinstance(part, ToolCallResponse))
        calls = [part for part in parts if isinstance(part, ToolCall)]
        if not counts(message):
            self._arm([(call.id, _Waiting(None, call.id)) for call in calls])
            return
        shown_ids = _distinct([call.id for call in calls])
        place = len(self.messages) + 1
        if len(parts) < len(message.parts) or shown_ids != [call.id for call in calls]:
            names = iter(shown_ids)
            parts = tuple(
                msgspec.structs.replace(part, id=next(names))
                if isinstance(part, ToolCall)
                else part
                for part in parts
            )
            message = msgspec.structs.replace(message, parts=parts)
        self.messages.append(message)
        self.messages.extend(
            _result_message(ToolCallResponse(id=shown_id, result=RESULT_UNAVAILABLE, is_error=True))
            for shown_id in shown_ids
        )
        self._arm(
            [
                (call.id, _Waiting(place + index, shown_id))
                for index, (call, shown_id) in enumerate(zip(calls, shown_ids, strict=True))
            ]
        )

    def _arm(self, calls: list[tuple[str, _Waiting]]) -> None:
        for call_id, _ in calls:
            self._waiting[call_id] = deque()
        for call_id, waiting in calls:
            self._waiting[call_id].append(waiting)

    def _add_other(self, message: Message) -> list[int]:
        changed: list[int] = []
        rest: list[AnyPart] = []
        for part in message.parts:
            if isinstance(part, ToolCallResponse):
                place = self._consume(part)
                if place is not None:
                    changed.append(place)
            elif not isinstance(part, ToolCall):
                rest.append(part)
        if rest:
            role = "user" if message.role == "tool" else message.role
            if role != message.role or len(rest) < len(message.parts):
                message = msgspec.structs.replace(message, role=role, parts=tuple(rest))
            self.messages.append(message)
        return changed

    def _consume(self, response: ToolCallResponse) -> int | None:
        line = self._waiting.get(response.id)
        if not line:
            return None
        waiting = line.popleft()
        if waiting.place is not None:
            if waiting.shown_id != response.id:
                response = msgspec.structs.replace(response, id=waiting.shown_id)
            self.messages[waiting.place] = _result_message(response)
        return waiting.place


def _result_message(response: ToolCallResponse) -> Message:
    return Message(role="tool", parts=(response,))


def _distinct(ids: list[str]) -> list[str]:
    """Rule 4.5: the k-th call of an id within one message becomes `id-k`."""
    if len(set(ids)) == len(ids):
        return ids
    taken = set(ids)
    seen: dict[str, int] = {}
    shown = []
    for call_id in ids:
        seen[call_id] = occurrence = seen.get(call_id, 0) + 1
        name = call_id
        if occurrence > 1:
            name = f"{call_id}-{occurrence}"
            while name in taken:
                name = f"{name}-{occurrence}"
            taken.add(name)
        shown.append(name)
    return shown
