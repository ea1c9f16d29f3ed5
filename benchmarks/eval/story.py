"""The task: a show's figures, asked for page by page, until contexts are far too large.

Invented, and the same in every run. What is asked at a step depends on the step alone, never on
how contexts are kept.
"""

from typing import NamedTuple

from foldlog_events.entries import Section
from foldlog_events.messages import Tool

PAGES = 78
KEY_PAGES = tuple(range(3, PAGES, 5))
"""Pages whose figure the report must state with its coverage and its source."""
GAP_PAGES = (19, 44)
"""Pages that have no figure: the report must name them."""
LARGE_PAGE = 27
"""A page whose result is as large as ten others."""
ROWS = 100
LARGE_ROWS = 620

SECTIONS = (
    Section(name="role", text="You are an analyst of a live-shopping channel."),
    Section(name="rules", text="Every figure has its coverage and its source. Scope is a wish."),
)
_NUMBER = {"type": "object", "properties": {"page": {"type": "integer"}}}
TOOLS = (Tool(name="page", description="One page of the show's figures.", parameters=_NUMBER),)

QUESTION = "Why did the sales of last night's show fall? Please read all pages and report."

SCOPES = (
    "the whole show",
    "only new products",
    "only new products without bundles",
    "only new products without bundles, against last week",
    "only returning viewers",
)


def scope_message(number: int) -> str:
    """What a person says to set the scope for all that follows."""
    if number == 0:
        return f"The scope must be: {SCOPES[0]}."
    if number == len(SCOPES) - 1:
        return f"The task changes, please. The scope must be: {SCOPES[number]}."
    return f"A correction, please. The scope must be: {SCOPES[number]}."


class Figure(NamedTuple):
    """A page's figure, as the records have it."""

    page: int
    orders: str
    coverage: str
    source: str

    def said(self) -> str:
        """As a tool's result ends, and as the analyst notes it."""
        return (
            f"Figure P{self.page:02}: {self.orders} orders, coverage {self.coverage}, "
            f"source {self.source}."
        )


def figure(page: int) -> Figure:
    """A page's figure."""
    begin, end = _clock(page * 2), _clock(page * 2 + 2)
    orders = f"{1_000 + page * 7919 % 8_777:,}"
    return Figure(page, orders, f"{begin}-{end}", f"report-{page:02}-{page * 37 % 91:02}")


def gap(page: int) -> str:
    """What a page without a figure says instead."""
    return f"Missing P{page:02}: the feed failed from {_clock(page * 2)} to {_clock(page * 2 + 2)}."


def result(page: int, scope: str) -> str:
    """What the tool answers: a table by the second, and the figure or the gap at its end."""
    rows = LARGE_ROWS if page == LARGE_PAGE else ROWS
    lines = [f"page {page}, {scope}: second | viewers | carts | orders | video kbit/s"]
    for row in range(rows):
        seed = page * 1_009 + row * 131
        lines.append(
            f"{_clock(page * 2)}:{row % 120:03} | {9_000 + seed % 977:,} | {90 + seed % 29} | "
            f"{10 + seed % 9} | {4_000 + seed % 611:,}"
        )
    return "\n".join([*lines, gap(page) if page in GAP_PAGES else figure(page).said()])


def _clock(minute: int) -> str:
    return f"{20 + minute // 60}:{minute % 60:02}"
