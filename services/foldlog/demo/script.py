"""What the demo's two agents do next: functions of the context alone, as a model is one.

After the compaction most of what was said is gone from the context, so what these functions
still know they know from the summary, from what was kept and from the latest correction.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from foldlog.demo import story
from foldlog.demo.figures import LAST_NIGHT, NIGHT_BEFORE, PAGES, WEEK_BEFORE
from foldlog_events.messages import (
    Message,
    Text,
    ToolCall,
    ToolCallResponse,
    assistant,
    tool_result,
)
from foldlog_projections.pairing import RESULT_UNAVAILABLE
from foldlog_projections.views import ContextView

_FALL = re.compile(r"viewers fell from [\d,]+ at [\d:]+ to [\d,]+ and were back at [\d:]+")
_DROP = 0.5
"""A minute with less than this share of the viewers of the one before is a fall."""


class Answered(NamedTuple):
    """A call and its result."""

    call: ToolCall
    result: str


def analyst(view: ContextView) -> Message | None:
    """The analyst's next message; None where it is for others to go on."""
    last = view.messages[-1] if view.messages else None
    if last is None or pending(view.messages) or last.role == "assistant":
        return None
    if last.role == "user":
        return _on_words(_text(last), view.messages)
    return _on_results(_last_answered(view.messages))


def warehouse(view: ContextView) -> tuple[Message, ...]:
    """The results of the calls that wait for one."""
    return tuple(
        tool_result(call.id, story.run_tool(call.name, dict(call.arguments)))
        for call in pending(view.messages)
        if not isinstance(call.arguments, str)
    )


def wants_room(message: Message) -> bool:
    """Whether a message asks for more than a context near its limit should take."""
    return any(isinstance(part, ToolCall) and part.name == "comments" for part in message.parts)


def pending(messages: Sequence[Message]) -> list[ToolCall]:
    """Calls whose place is held by the stand-in for a missing result."""
    missing = {
        part.id
        for message in messages
        for part in message.parts
        if isinstance(part, ToolCallResponse) and part.result == RESULT_UNAVAILABLE
    }
    return [
        part
        for message in messages
        for part in message.parts
        if isinstance(part, ToolCall) and part.id in missing
    ]


def _on_words(said: str, messages: Sequence[Message]) -> Message | None:
    match said:
        case story.QUESTION:
            return assistant(
                "I compare the whole show with that of the evening before.",
                _figures(NIGHT_BEFORE, "whole show"),
                _figures(LAST_NIGHT, "whole show"),
            )
        case story.NARROWED:
            return assistant(
                "Only new products, then, against the same weekday last week.",
                _figures(WEEK_BEFORE, "new products"),
                _figures(LAST_NIGHT, "new products"),
            )
        case story.WISH:
            return assistant(
                "Understood: without bundles, in five lines.",
                _figures(WEEK_BEFORE, "new products without bundles"),
                _figures(LAST_NIGHT, "new products without bundles"),
            )
        case story.WRITE:
            return assistant("\n".join(_report(messages)))
        case _:
            return None


def _on_results(answered: Sequence[Answered]) -> Message | None:
    """What the newest results say, and what to read next."""
    call = answered[-1].call
    arguments = call.arguments if isinstance(call.arguments, dict) else {}
    match call.name, arguments.get("scope") or arguments.get("start"):
        case "show_figures", "whole show":
            return assistant(f"{_comparison('The whole show', answered)} New products lost most.")
        case "show_figures", "new products":
            said = f"{_comparison('New products', answered)} Next I read the traffic by the minute."
            return assistant(said, _traffic(PAGES[0]))
        case "show_figures", _:
            said = f"{_comparison('New products without bundles', answered)}"
            said += " What did viewers write when the picture stood still?"
            return assistant(said, _call("comments", start="20:41", end="20:50"))
        case "traffic", start:
            place = PAGES.index(start)
            said = f"From {start}: {_traffic_note(answered[-1].result)}."
            if place + 1 < len(PAGES):
                return assistant(said, _traffic(PAGES[place + 1]))
            return assistant(f"{said} That was the whole show.")
        case "comments", _:
            text, count = _rows(answered[-1].result)[0]
            return assistant(f"{count} viewers wrote “{text}”. I am ready to write the report.")
        case _:
            return None


def _report(messages: Sequence[Message]) -> Iterator[str]:
    """Five lines, from what the context holds."""
    tables = {
        (one.call.arguments["scope"], one.call.arguments["show"]): one.result
        for one in _all_answered(messages)
        if one.call.name == "show_figures" and isinstance(one.call.arguments, dict)
    }
    scope = "new products"
    if any(story.WISH in _text(message) for message in messages if message.role == "user"):
        scope = "new products without bundles"
    before, after = tables[scope, WEEK_BEFORE], tables[scope, LAST_NIGHT]
    yield (
        f"1. Revenue of {scope} fell from {_total(before)} to {_total(after)} euros against the "
        "same weekday last week."
    )
    name, was, now = max(
        (
            (row[0], int(row[2].replace(",", "")), int(other[2].replace(",", "")))
            for row, other in zip(_rows(before)[:-1], _rows(after)[:-1], strict=True)
        ),
        key=lambda row: row[1] - row[2],
    )
    yield f"2. The {name} lost most: from {was:,} to {now:,} euros."
    said = "\n".join(_text(message) for message in messages)
    fall = _FALL.search(said)
    yield f"3. While they were on air, {fall[0] if fall else 'nothing unusual was seen'}."
    comments = [one.result for one in _all_answered(messages) if one.call.name == "comments"]
    text, count = _rows(comments[-1])[0]
    yield f"4. In these minutes {count} viewers wrote “{text}”."
    page = [one.result for one in _all_answered(messages) if one.call.name == "traffic"][-1]
    yield f"5. Demand was there: {_orders(page)} orders in the last half hour."


def _comparison(what: str, answered: Sequence[Answered]) -> str:
    before, after = (one.result for one in answered[-2:])
    was, now = (int(_total(table).replace(",", "")) for table in (before, after))
    share = round(100 * (was - now) / was)
    return f"{what}: {share} % less, {now:,} euros after {was:,}."


def _traffic_note(page: str) -> str:
    rows = [(row[0], int(row[1].replace(",", ""))) for row in _rows(page)]
    orders = f"{_orders(page)} orders"
    for (time, viewers), (_, lower) in pairwise(rows):
        if lower < viewers * _DROP:
            back = next(one for one, count in rows if one > time and count > viewers * _DROP)
            return f"viewers fell from {viewers:,} at {time} to {lower:,} and were back at {back}"
    return f"steady, never below {min(count for _, count in rows):,} viewers, {orders}"


def _orders(page: str) -> int:
    return sum(int(row[-1]) for row in _rows(page))


def _total(table: str) -> str:
    return _rows(table)[-1][2]


def _rows(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in table.splitlines()[1:]]


def _figures(show: str, scope: str) -> ToolCall:
    return _call("show_figures", show=show, scope=scope)


def _traffic(start: str) -> ToolCall:
    return _call("traffic", start=start)


def _call(name: str, **arguments: str) -> ToolCall:
    return ToolCall(id="-".join((name, *arguments.values())), name=name, arguments=dict(arguments))


def _last_answered(messages: Sequence[Message]) -> list[Answered]:
    """The results at the end of a context, with their calls."""
    count = 0
    for message in reversed(messages):
        if message.role != "tool":
            break
        count += sum(isinstance(part, ToolCallResponse) for part in message.parts)
    return list(_all_answered(messages))[-count:]


def _all_answered(messages: Sequence[Message]) -> Iterator[Answered]:
    calls: dict[str, ToolCall] = {}
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                calls[part.id] = part
            elif isinstance(part, ToolCallResponse) and isinstance(part.result, str):
                yield Answered(calls[part.id], part.result)


def _text(message: Message) -> str:
    return "\n".join(part.content for part in message.parts if isinstance(part, Text))
