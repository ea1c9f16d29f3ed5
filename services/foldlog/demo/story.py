"""The demo's story: what people say, what the agents are told, and the limits they work in."""

from collections.abc import Callable
from typing import Any

from foldlog.demo.figures import comments, show_figures, traffic
from foldlog_events.entries import Section
from foldlog_events.messages import Tool

CONVERSATION = "last-nights-show"

QUESTION = "Why did the sales of last night's live-shopping show fall?"
NARROWED = "Only new products, please, and against the same weekday last week."
WISH = "One more wish: leave bundles out, and keep the report to five lines."
WRITE = "The orders of 21:47 were booked twice, the table is corrected. Please write the report."

CORRECTION = "the orders of 21:47 were booked twice"

POLICY: dict[str, Any] = {
    "name": "demo",
    "window": 4_800,
    "reserve_output": 600,
    "safety_margin": 200,
    "background_margin": 750,
    "keep_recent": 1_000,
}
"""A small window, so that a short story comes under pressure.

The fourth page of traffic crosses the soft limit, and what comes after it until the summary is
there takes less than `keep_recent`: so the cut is before the fourth page, whatever the timing.
"""

ROOM = 500
"""Tokens that the analyst wants free before it reads what viewers wrote."""

SECTIONS = (
    Section(name="role", text="You are an analyst of a live-shopping channel."),
    Section(
        name="rules",
        text="Every figure comes from a tool. A person's wish holds until that person changes it.",
    ),
)

_TEXT = {"type": "string"}
TOOLS = (
    Tool(
        name="show_figures",
        description="Pieces and revenue of each product in one show.",
        parameters={"type": "object", "properties": {"show": _TEXT, "scope": _TEXT}},
    ),
    Tool(
        name="traffic",
        description="Viewers, carts and orders of half an hour of last night's show.",
        parameters={"type": "object", "properties": {"start": _TEXT}},
    ),
    Tool(
        name="comments",
        description="What viewers wrote in a part of last night's show.",
        parameters={"type": "object", "properties": {"start": _TEXT, "end": _TEXT}},
    ),
)


def run_tool(name: str, arguments: dict[str, Any]) -> str:
    """What a tool answers. Raises KeyError for a tool that is not offered."""
    tools: dict[str, Callable[..., str]] = {
        "show_figures": show_figures,
        "traffic": traffic,
        "comments": comments,
    }
    return tools[name](**arguments)
