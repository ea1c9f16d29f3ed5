"""`foldlog log`: the entries of a conversation, as they are in the log."""

from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.table import Table
from rich.text import Text

from foldlog.cli.common import Common
from foldlog.cli.describe import describe
from foldlog.cli.output import console, one_line, print_json
from foldlog.errors import UnknownConversation
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
        table = _table()
        count = 0
        async for read in foldlog.log.read(foldlog.tenant, conversation, after=after):
            if common.json:
                print_json(read)
            else:
                table.add_row(*_row(read))
            count += 1
            if count == limit:
                break
    if not common.json:
        console().print(table)


def _table() -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("version", justify="right", no_wrap=True)
    for name in ("time", "kind", "lane", "actor"):
        table.add_column(name, no_wrap=True)
    table.add_column("what it says", no_wrap=True, overflow="ellipsis", ratio=1)
    return table


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
