"""Which result answers which call, by place (rule 4): what the cut and the pruning need to know
of a range without rendering it.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from foldlog_events.messages import Message, ToolCall, ToolCallResponse
from foldlog_projections.pairing import counts


class Place(NamedTuple):
    """A part of a message of an item."""

    item: int
    message: int
    part: int


class Waiting(NamedTuple):
    """A call that a result could still answer."""

    place: Place
    id: str
    shown: bool
    """False for a call of a reply that does not count: its result is dropped."""


class Answered(NamedTuple):
    """A call and the result that consumed it."""

    call: Place
    result: Place
    shown: bool


class Pairs(NamedTuple):
    """How the calls and results of a range belong together."""

    answered: tuple[Answered, ...]
    """In the order of the results."""
    waiting: tuple[Waiting, ...]


def pair(items: Sequence[Sequence[Message]]) -> Pairs:
    """Pairs the calls and results of these items' messages, in order."""
    lines: dict[str, deque[Waiting]] = {}
    answered: list[Answered] = []
    for item, messages in enumerate(items):
        for number, message in enumerate(messages):
            if message.role == "assistant":
                _arm(lines, item, number, message)
                continue
            for place, part in enumerate(message.parts):
                line = lines.get(part.id) if isinstance(part, ToolCallResponse) else None
                if line:
                    call = line.popleft()
                    answered.append(Answered(call.place, Place(item, number, place), call.shown))
    return Pairs(tuple(answered), tuple(call for line in lines.values() for call in line))


def _arm(lines: dict[str, deque[Waiting]], item: int, number: int, message: Message) -> None:
    calls = [
        Waiting(Place(item, number, place), part.id, counts(message))
        for place, part in enumerate(message.parts)
        if isinstance(part, ToolCall)
    ]
    lines.update({call.id: deque() for call in calls})
    for call in calls:
        lines[call.id].append(call)
