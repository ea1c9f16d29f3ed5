"""`foldlog conversations`: what the log holds."""

from rich.table import Table
from rich.text import Text

from foldlog.cli.common import Common
from foldlog.cli.output import console, one_line, print_json


async def conversations(
    *,
    common: Common = Common(),  # noqa: B008 - frozen
) -> None:
    """List the conversations of a tenant: how many entries, and the last one's version.

    With --json: {"conversations": [{"conversation", "tenant", "entries", "version"}]}.
    """
    async with common.opened() as foldlog:
        found = [one async for one in foldlog.log.conversations(foldlog.tenant)]
    found.sort(key=lambda one: one.conversation)
    if common.json:
        print_json(
            {
                "conversations": [
                    {
                        "conversation": one.conversation,
                        "tenant": one.tenant,
                        "entries": one.entries,
                        "version": max(one.versions.log, one.versions.shape),
                    }
                    for one in found
                ]
            }
        )
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("conversation", overflow="fold")
    table.add_column("entries", justify="right")
    table.add_column("version", justify="right")
    for one in found:
        version = max(one.versions.log, one.versions.shape)
        cells = (one_line(one.conversation, 200), str(one.entries), str(version))
        table.add_row(*map(Text, cells))
    console().print(table)
