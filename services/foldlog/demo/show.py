"""What the demo prints once the story is over: the log, four moments, tokens, and what holds."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from foldlog.cli.describe import describe
from foldlog.cli.output import one_line
from foldlog.demo.facts import Shown, is_said, messages_of, text_of
from foldlog.reading import Read
from foldlog_events.entries import CompactionEntry, EditEntry, Recorded, SystemEntry, kind_of
from foldlog_events.messages import Message, ToolCall, ToolCallResponse
from foldlog_projections.views import ContextView

AS_SAID, CORRECTED, SUMMARISED, NOT_YET = "●", "✎", "Σ", " "
NUMBERS = "①②③④"
WHO = 9
"""Width of the longest name."""
SHOWN_OF_A_RUN = 7
"""Rows of a moment that are shown one by one; of a longer run the middle is counted."""
_STYLES = {AS_SAID: "green", CORRECTED: "yellow", SUMMARISED: "cyan", NOT_YET: ""}


class Row(NamedTuple):
    """An entry of the log, and how a model saw it."""

    mark: str
    log: str
    model: str


def render(shown: Shown) -> Iterator[RenderableType]:
    """Everything, in the order in which it is read."""
    yield _log(shown)
    for number, moment, view in zip(NUMBERS, shown.facts.moments, shown.views, strict=True):
        yield Text()
        yield _moment(f"{number} {moment.name}", shown.reads, view)
    yield Text()
    yield _tokens(shown)
    yield Text()
    yield Panel(
        Group(*(_check(holds, said) for holds, said in checks(shown))),
        title="What holds",
        title_align="left",
        box=box.ROUNDED,
    )


def checks(shown: Shown) -> Iterator[tuple[bool, str]]:
    """What the demo claims, and whether the log bears it out."""
    facts = shown.facts
    moment = facts.moments[2]
    yield (
        moment.model_tokens < moment.log_tokens,
        f"The context was compacted: {moment.log_tokens:,} tokens were said, "
        f"{moment.model_tokens:,} are shown.",
    )
    yield (
        facts.wish_given_during_compaction and facts.wish_stands_after_summary,
        "The wish given during the compaction stands after the summary, word for word.",
    )
    yield facts.report_heeds_wish, "The report heeds it: five lines, without bundles."
    died = [one for one in shown.attempts if one.reason.startswith("its worker died")]
    yield (
        bool(died) and facts.compactions == 1,
        f"The {facts.killed} was killed at work; another made the summary, once.",
    )
    stale = next((one.reason for one in shown.attempts if one.state == "stale"), "none was made")
    yield facts.stale_compaction_refused, f"A stale compaction was refused: {stale}."
    yield facts.report_uses_correction, "The report has the corrected figure."
    yield facts.stored_view_equals_fold, "The projector's view is what the agents fold themselves."
    verdict = shown.verdict
    found = len(verdict.differences)
    yield (
        not found,
        f"verify: {verdict.entries} entries folded from scratch, "
        f"{found or 'no'} difference{'s' if found > 1 else ''}.",
    )


def _log(shown: Shown) -> Table:
    table = Table(
        title="The log: every entry, and how the model saw it at four moments",
        caption=f"{AS_SAID} as said   {CORRECTED} as corrected   {SUMMARISED} in the summary",
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        expand=True,
    )
    table.add_column("", justify="right", width=len(str(shown.reads[-1].version)))
    table.add_column("who", width=WHO)
    table.add_column("what it says", no_wrap=True, overflow="ellipsis", ratio=1)
    for number in NUMBERS:
        table.add_column(number, width=1)
    marks = [_marks(shown.reads, view) for view in shown.views]
    for read in shown.reads:
        entry = read.entry if isinstance(read, Recorded) else None
        who = "compactor" if isinstance(entry, CompactionEntry) else entry.actor if entry else ""
        said = Text(_said(read), style="" if is_said(read) else "bold cyan")
        seen = [Text(one.get(read.version, NOT_YET)) for one in marks]
        for mark in seen:
            mark.stylize(_STYLES[mark.plain])
        table.add_row(str(read.version), Text(one_line(who)), said, *seen)
    return table


def _moment(title: str, reads: Sequence[Read], view: ContextView) -> Table:
    rows = _rows(reads, view)
    entries = sum(is_said(read) and read.version <= view.version for read in reads)
    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, expand=True
    )
    log, model = f"the log held {entries} entries", f"the model saw {len(view.messages)} messages"
    for heading in (log, model):
        table.add_column(heading, no_wrap=True, overflow="ellipsis", ratio=1)
    for row in rows:
        table.add_row(Text(row.log), Text(row.model, style=_STYLES[row.mark]))
    return table


def _rows(reads: Sequence[Read], view: ContextView) -> Iterator[Row]:
    """Entries beside what the model was shown for them; runs of the like are cut short."""
    marks = _marks(reads, view)
    said = [read for read in reads if messages_of(read) and read.version in marks]
    yield Row(AS_SAID, "the prompt and the tools", "the prompt and the tools")
    for mark, run in groupby(said, key=lambda read: marks[read.version]):
        entries = list(run)
        if mark == SUMMARISED:
            summary = view.messages[1 if view.messages[0].role == "system" else 0]
            yield Row(mark, _said(entries[0]), _said_in_summary(summary))
            yield Row(mark, f"⋮ {len(entries) - 1} more", "⋮")
            continue
        rows = [Row(mark, *_pair(read, view)) for read in entries]
        if len(rows) > SHOWN_OF_A_RUN:
            left_out = len(rows) - SHOWN_OF_A_RUN + 1
            yield from rows[:2]
            yield Row(mark, f"⋮ {left_out} more", f"⋮ {left_out} more")
            yield from rows[2 + left_out :]
        else:
            yield from rows


def _pair(read: Read, view: ContextView) -> tuple[str, str]:
    """An entry as it was said, and as it is shown; of a corrected one the cells that differ."""
    said = _said(read)
    shown = [
        message
        for message, origin in zip(view.messages, view.origins, strict=True)
        if origin.version == read.version and message.role != "system"
    ]
    if not shown or tuple(shown) == messages_of(read):
        return said, said
    before, after = (_lines(messages) for messages in (messages_of(read), shown))
    differs = next((pair for pair in zip(before, after, strict=False) if pair[0] != pair[1]), None)
    if differs is None:
        return said, said
    cells, corrected = (line.split(" | ") for line in differs)
    pairs = [pair for pair in zip(cells, corrected, strict=False) if pair[0] != pair[1]]
    was, now = zip(*pairs, strict=True)
    return f"{said}  {cells[0]}: {', '.join(was)}", f"{said}  {cells[0]}: {', '.join(now)}"


def _marks(reads: Sequence[Read], view: ContextView) -> dict[int, str]:
    """How a view shows each entry that was there; the head marker's own is left out."""
    edited = {
        edit.target
        for read in reads
        if isinstance(read, Recorded) and isinstance(read.entry, EditEntry)
        for edit in read.entry.edits
        if read.version <= view.version
    }
    head = next(
        (
            read.entry
            for read in reads
            if isinstance(read, Recorded)
            and isinstance(read.entry, CompactionEntry)
            and view.head is not None
            and read.version == view.head.version
        ),
        None,
    )
    kept_from = head.kept_from.version if head and head.kept_from else 0
    marks: dict[int, str] = {}
    for read in reads:
        if not isinstance(read, Recorded) or read.version > view.version:
            continue
        if isinstance(read.entry, SystemEntry):
            marks[read.version] = AS_SAID
        elif is_said(read) and read.version < kept_from:
            marks[read.version] = SUMMARISED
        elif is_said(read):
            marks[read.version] = CORRECTED if read.entry.id in edited else AS_SAID
    return marks


def _tokens(shown: Shown) -> Table:
    table = Table(title="Tokens", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("moment", no_wrap=True)
    table.add_column("in the log", justify="right")
    table.add_column("in the context", justify="right")
    for number, moment in zip(NUMBERS, shown.facts.moments, strict=True):
        table.add_row(
            f"{number} {moment.name}", f"{moment.log_tokens:,}", f"{moment.model_tokens:,}"
        )
    return table


def _check(holds: bool, said: str) -> Table:
    line = Table.grid(padding=(0, 1))
    line.add_row(Text("✓", style="bold green") if holds else Text("✗", style="bold red"), said)
    return line


def _said(read: Read) -> str:
    """An entry in one line: a text, what is called, the first line of each result."""
    if not isinstance(read, Recorded):
        return "(unreadable)"
    if isinstance(read.entry, SystemEntry):
        names = ", ".join(section.name for section in read.entry.sections)
        return f"prompt: {names}, and {len(read.entry.tools_added)} tools"
    if not messages_of(read):
        return f"{kind_of(read.entry)}: {describe(read.entry)}"
    return one_line(" ".join(_brief(message) for message in messages_of(read)))


def _brief(message: Message) -> str:
    said = [text_of(message)]
    for part in message.parts:
        if isinstance(part, ToolCall):
            said.append(f"→ {part.name}")
        elif isinstance(part, ToolCallResponse) and isinstance(part.result, str):
            lines = part.result.splitlines()
            said.append(f"← {lines[0].partition(': ')[0]}")
    return " ".join(filter(None, said))


def _lines(messages: Sequence[Message]) -> list[str]:
    return [
        line
        for message in messages
        for part in message.parts
        if isinstance(part, ToolCallResponse) and isinstance(part.result, str)
        for line in part.result.splitlines()
    ]


def _said_in_summary(summary: Message) -> str:
    text = text_of(summary).partition("<summary>")[2].replace("## ", "")
    return f"a summary: {one_line(text)}"


def show(console: Console, shown: Shown) -> None:
    """Print everything."""
    for part in render(shown):
        console.print(part)
