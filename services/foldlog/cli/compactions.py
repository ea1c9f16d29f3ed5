"""`foldlog compactions`: attempts to make a context smaller, its size over time, their sources."""

from typing import Annotated, Literal

import plotille
from cyclopts import Parameter
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from foldlog.announcing import model_of
from foldlog.cli.common import Common
from foldlog.cli.log import print_entries
from foldlog.cli.output import console, one_line, print_json
from foldlog.contexts import fold_in
from foldlog.policies import policies_of
from foldlog.session import Foldlog
from foldlog.sources import source_of
from foldlog_events.entries import ForkEntry, Recorded
from foldlog_projections.attempts import ENDS, CompactionRecord
from foldlog_projections.fold import ContextFold, empty

PLOT_HEIGHT = 12
"""Lines of the plot."""
NUMBERS = ("before", "after", "seconds", "calls", "tokens", "cost")
COLUMNS = ("time", "attempt", "trigger", "end", *NUMBERS, "model", "why")
WHY = 24
"""Characters of a line of a reason at the least."""
WIDEST = 100
"""Characters of the plot's width at the most."""


async def compactions(
    conversation: str,
    /,
    *,
    source: Annotated[
        str | None,
        Parameter(help="Id of a compaction or its attempt: list the entries it stands for."),
    ] = None,
    common: Common = Common(),  # noqa: B008 - frozen
) -> None:
    """List the attempts to make a context smaller, and plot its size over its entries.

    With --json: {"conversation", "attempts", "sizes"}; `attempts` are records as they are stored,
    `sizes` are [version, tokens] after each entry. With --source one line for each entry, as
    `foldlog log` has them.
    """
    settings = common.settings()
    async with common.opened() as foldlog:
        await foldlog.contexts.require(foldlog.tenant, conversation)
        if source is not None:
            print_entries(await source_of(foldlog, conversation, source), as_json=common.json)
            return
        records = await foldlog.attempts.read(foldlog.tenant, conversation)
        sizes = await sizes_over_time(foldlog, conversation)
        view = await foldlog.session(conversation).context()
    limit = policies_of(settings).of(model_of(view)).hard_limit
    if common.json:
        print_json({"conversation": conversation, "attempts": records, "sizes": sizes})
        return
    _print_table(records)
    _print_plot(sizes, limit)


async def sizes_over_time(foldlog: Foldlog, conversation: str) -> list[tuple[int, int]]:
    """The version of each entry, and the tokens that the context took from then on."""
    context = ContextFold(empty(foldlog.tenant, conversation))
    sizes = []
    async for read in foldlog.log.read(foldlog.tenant, conversation):
        if isinstance(read, Recorded) and isinstance(read.entry, ForkEntry):
            context = await foldlog.contexts.at(foldlog.tenant, conversation, read.version)
        else:
            fold_in(context, read)
        sizes.append((read.version, context.tokens()))
    return sizes


def _print_table(records: list[CompactionRecord]) -> None:
    """Only the reason is folded; a terminal too narrow for the rest wraps its lines."""
    ended = {record.id for record in records if record.state in ENDS}
    rows = [_cells(record) for record in records if record.state in ENDS or record.id not in ended]
    out = console()
    if not rows:
        out.print("No attempt is on record; records are kept for thirty days.")
        return
    widths = [max(map(cell_len, column)) for column in zip(COLUMNS, *rows, strict=True)]
    taken = sum(widths[:-1]) + len(COLUMNS)
    widths[-1] = max(WHY, min(widths[-1], out.width - taken))
    out.width = max(out.width, taken + widths[-1])
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for name, width in zip(COLUMNS, widths, strict=True):
        justify: Literal["left", "right"] = "right" if name in NUMBERS else "left"
        table.add_column(name, justify=justify, width=width, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    out.print(table, crop=False, soft_wrap=False)


def _cells(record: CompactionRecord) -> tuple[str, ...]:
    usage = record.usage
    return (
        record.time.astimezone().strftime("%Y-%m-%d %H:%M:%S"),
        record.entry or record.id,
        record.trigger,
        record.state,
        f"{record.tokens_before:,}",
        f"{record.tokens_after:,}" if record.tokens_after else "",
        f"{record.seconds:.1f}",
        str(record.calls),
        f"{usage.context_tokens:,}" if usage else "",
        "" if record.cost is None else f"{record.cost:.4f}",
        one_line(record.model, 30),
        one_line(record.reason),
    )


def _print_plot(sizes: list[tuple[int, int]], limit: int) -> None:
    """The size after each entry; and the hard limit, where the context came near it."""
    out = console()
    largest = max(tokens for _, tokens in sizes)
    figure = plotille.Figure()
    figure.width = min(WIDEST, max(20, out.width - 20))
    figure.height = PLOT_HEIGHT
    figure.color_mode = "names"
    figure.with_colors = out.is_terminal
    figure.x_label, figure.y_label = "entries", "tokens"
    figure.register_label_formatter(float, _whole)
    figure.register_label_formatter(int, _whole)
    near = limit <= 2 * largest
    figure.set_x_limits(0, max(1, len(sizes)))
    figure.set_y_limits(0, max(1, largest, limit if near else 0))
    figure.plot(range(1, len(sizes) + 1), [tokens for _, tokens in sizes])
    if near:
        figure.plot([0, max(1, len(sizes))], [limit, limit])
    out.print(Text(f"\nTokens of the context after each entry; the hard limit is {limit:,}."))
    out.print(Text.from_ansi(figure.show()), crop=False, soft_wrap=True)


def _whole(value: float, chars: int, delta: float, left: bool = False) -> str:
    said = f"{value:,.0f}"
    return said.ljust(chars) if left else said.rjust(chars)
