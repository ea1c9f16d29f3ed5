"""`foldlog log`: the entries of a conversation, as they are in the log."""

from collections.abc import Sequence
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from foldlog.cli.common import Common
from foldlog.cli.describe import describe
from foldlog.cli.output import console, one_line, print_json
from foldlog.errors import UnknownConversation
from foldlog.reading import Read
from foldlog_events.entries import BaseVersion, Recorded, Unreadable, kind_of, lane_of

NOTHING = BaseVersion(log=0, shape=0)


async def log(
    conversation: str,
    /,
    *,
    after: Annotated[
        int, Parameter(help="Only entries after this version.", validator=Number(gte=0))
    ] = 0,
    limit: Annotated[
        int | None, Parameter(help="At most so many entries.", validator=Number(gte=1))
    ] = None,
    common: Common = Common(),  # noqa: B008 - frozen
) -> None:
    """List a conversation's entries in the order of their versions.

    With --json one line for each: {"version", "entry", "predecessor"}, or {"version", "lane",
    "reason", "predecessor"} where the stored bytes are no entry.
    """
    async with common.opened() as foldlog:
        if await foldlog.log.last_versions(foldlog.tenant, conversation) == NOTHING:
            raise UnknownConversation(conversation, tenant=foldlog.tenant)
        rows: list[tuple[Text, ...]] = []
        count = 0
        async for read in foldlog.log.read(foldlog.tenant, conversation, after=after):
            if common.json:
                print_json(read)
            else:
                rows.append(_row(read))
            count += 1
            if count == limit:
                break
    if not common.json:
        _print(rows)


def print_entries(reads: Sequence[Read], *, as_json: bool) -> None:
    """Entries as `foldlog log` prints them."""
    if not as_json:
        _print([_row(read) for read in reads])
        return
    for read in reads:
        print_json(read)


def _print(rows: list[tuple[Text, ...]]) -> None:
    """The last column gets what room the others leave; they are never cut."""
    out = console()
    names = ("version", "time", "kind", "lane", "actor", "what it says")
    widths = [
        max(cell_len(name), *(row[column].cell_len for row in rows), 0)
        for column, name in enumerate(names)
    ]
    room = max(20, out.width - sum(widths[:-1]) - len(names))
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for name, width in zip(names, widths, strict=True):
        justify: Literal["left", "right"] = "right" if name == "version" else "left"
        table.add_column(name, no_wrap=True, justify=justify, width=min(width, room))
    for row in rows:
        row[-1].truncate(room, overflow="ellipsis")
        table.add_row(*row)
    out.print(table, crop=False, soft_wrap=False)


def _row(read: Recorded | Unreadable) -> tuple[Text, ...]:
    if isinstance(read, Unreadable):
        return tuple(map(Text, (str(read.version), "", "unreadable", read.lane, "", read.reason)))
    entry = read.entry
    cells = (
        str(read.version),
        entry.time.astimezone().strftime("%Y-%m-%d %H:%M:%S"),
        one_line(kind_of(entry)),
        lane_of(entry),
        one_line(entry.actor, 20),
        describe(entry),
    )
    return tuple(map(Text, cells))
