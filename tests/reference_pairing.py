"""Rules 3 and 4 of docs/fold.md a second time: replies that do not count, calls and results."""

import msgspec

from foldlog_events.messages import (
    AnyPart,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolCallResponse,
)

UNAVAILABLE = "Tool result unavailable: history ends before this call completed."

Place = tuple[int, int]
"""Of a part: the index of its message, and its own in it."""


def paired(said: list[Message]) -> list[Message]:
    """The messages as they are shown: each call answered once, directly after its reply."""
    answers = _answers(said)
    shown: list[Message] = []
    for index, message in enumerate(said):
        if message.role != "assistant":
            shown.extend(_without_tool_parts(message))
        elif _counts(message):
            shown.extend(_with_results(index, message, answers))
    return shown


def _counts(message: Message) -> bool:
    """Whether an assistant message contributes (3.1); results in it are no content (4.7)."""
    if message.finish_reason in ("aborted", "error", "deferred"):
        return False
    return any(
        part.content.strip() != ""
        if isinstance(part, Text)
        else not isinstance(part, Reasoning | ToolCallResponse)
        for part in message.parts
    )


def _without_tool_parts(message: Message) -> list[Message]:
    rest = tuple(
        part
        for part in message.parts
        if not isinstance(part, ToolCall | ToolCallResponse)  # 4.6, 4.7
    )
    if not rest:
        return []  # 4.6
    role = "user" if message.role == "tool" else message.role
    return [msgspec.structs.replace(message, role=role, parts=rest)]


def _answers(said: list[Message]) -> dict[Place, ToolCallResponse]:
    """For each answered call its result (4.1, 4.2)."""
    answers: dict[Place, ToolCallResponse] = {}
    for place, result in _results(said):
        arming = [
            index
            for index in range(place[0])
            if said[index].role == "assistant" and _calls(said, index, result.id)
        ]
        if not arming:
            continue  # 4.2, an orphan
        line = _calls(said, arming[-1], result.id)  # 4.1: only the latest message's calls wait
        earlier = [
            other
            for other, answer in _results(said)
            if answer.id == result.id and (arming[-1], 0) <= other < place
        ]
        if len(earlier) < len(line):
            answers[line[len(earlier)]] = result
    return answers


def _results(said: list[Message]) -> list[tuple[Place, ToolCallResponse]]:
    return [
        ((index, at), part)
        for index, message in enumerate(said)
        if message.role != "assistant"  # 4.7
        for at, part in enumerate(message.parts)
        if isinstance(part, ToolCallResponse)
    ]


def _calls(said: list[Message], index: int, call_id: str) -> list[Place]:
    """Calls of an id in a message; of replies that do not count too (3.2)."""
    return [
        (index, at)
        for at, part in enumerate(said[index].parts)
        if isinstance(part, ToolCall) and part.id == call_id
    ]


def _with_results(
    index: int, message: Message, answers: dict[Place, ToolCallResponse]
) -> list[Message]:
    """A reply, and its results in the order of its calls (4.3)."""
    names = _distinct_ids(message)
    parts: list[AnyPart] = []
    results: list[Message] = []
    for at, part in enumerate(message.parts):
        if isinstance(part, ToolCallResponse):
            continue  # 4.7
        if not isinstance(part, ToolCall):
            parts.append(part)
            continue
        unanswered = ToolCallResponse(id=part.id, result=UNAVAILABLE, is_error=True)  # 4.4
        answer = answers.get((index, at), unanswered)
        parts.append(msgspec.structs.replace(part, id=names[at]))
        results.append(Message(role="tool", parts=(msgspec.structs.replace(answer, id=names[at]),)))
    return [msgspec.structs.replace(message, parts=tuple(parts)), *results]


def _distinct_ids(message: Message) -> dict[int, str]:
    """The id each call is shown with, by the place of its part (4.5)."""
    calls = {at: part.id for at, part in enumerate(message.parts) if isinstance(part, ToolCall)}
    names: dict[int, str] = {}
    for at, call_id in calls.items():
        nth = 1 + sum(other == call_id for before, other in calls.items() if before < at)
        name = call_id
        if nth > 1:
            name = f"{call_id}-{nth}"
            while name in calls.values() or name in names.values():
                name = f"{name}-{nth}"
        names[at] = name
    return names
