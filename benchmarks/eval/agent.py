"""The scripted agent: it knows nothing but the context that it is shown."""

import re
from collections.abc import Iterator

from benchmarks.eval.story import Figure
from foldlog_events.messages import Text, ToolCall, ToolCallResponse
from foldlog_projections.views import ContextView

_SCOPE = re.compile(r"The scope must be: ([^.\n]+)\.")
_FIGURE = re.compile(
    r"Figure P(\d\d): ([\d,]+) orders, coverage (\d+:\d\d-\d+:\d\d), source (report-\d\d-\d\d)"
)
_GAP = re.compile(r"Missing P(\d\d): ")


def texts(view: ContextView) -> Iterator[tuple[str, str]]:
    """Role and text of everything that the context says, in its order."""
    for message in view.messages:
        for part in message.parts:
            if isinstance(part, Text):
                yield message.role, part.content
            elif isinstance(part, ToolCallResponse) and isinstance(part.result, str):
                yield message.role, part.result


def scope(view: ContextView) -> str:
    """The scope in force: the newest that a person set; empty where the context says none."""
    found = ""
    for role, text in texts(view):
        if role == "user":
            for match in _SCOPE.finditer(text):
                found = match[1]
    return found


def figures(view: ContextView) -> dict[int, Figure]:
    """The figures that stand in the context, whole, with coverage and source; the newest wins."""
    found = {}
    for _, text in texts(view):
        for match in _FIGURE.finditer(text):
            page = int(match[1])
            found[page] = Figure(page, match[2], match[3], match[4])
    return found


def gaps(view: ContextView) -> set[int]:
    """The pages that the context says have no figure."""
    return {int(match[1]) for _, text in texts(view) for match in _GAP.finditer(text)}


def unpaired_calls(view: ContextView) -> int:
    """Calls that are not answered by exactly one result before anything else is said."""
    unpaired = 0
    waiting: set[str] = set()
    for message in view.messages:
        if message.role != "tool":
            unpaired += len(waiting)
            waiting = set()
        for part in message.parts:
            if isinstance(part, ToolCall):
                waiting.add(part.id)
            elif isinstance(part, ToolCallResponse):
                if part.id not in waiting:
                    unpaired += 1
                waiting.discard(part.id)
    return unpaired + len(waiting)
