"""`foldlog diff`: what changed for the model between two moments, and which entries caused it."""

from typing import Annotated

from cyclopts import Parameter
from rich.table import Table
from rich.text import Text

from foldlog.cli.common import Common
from foldlog.cli.context import parse_moment
from foldlog.cli.describe import describe_message, short
from foldlog.cli.output import console, one_line, print_json, safe
from foldlog_events.entries import SectionInForce
from foldlog_events.messages import Message, Tool
from foldlog_projections.diff import (
    Cause,
    ContextDiff,
    MessageChange,
    SectionChange,
    ToolChange,
)

SHOWN = 2_000
"""Characters of a message that people are shown."""


async def diff(
    conversation: str,
    first: Annotated[str, Parameter(help="A version, an entry's id, or a time.")],
    second: Annotated[str | None, Parameter(help="A later one; now where it is missing.")] = None,
    /,
    *,
    common: Common = Common(),  # noqa: B008 - frozen
) -> None:
    """Show what entered, left, was replaced or reordered between two moments, side by side.

    With --json: {"version_before", "version_after", "head_before", "head_after", "tokens_before",
    "tokens_after", "messages", "sections", "tools"}, each change with its cause.
    """
    async with common.opened() as foldlog:
        await foldlog.contexts.require(foldlog.tenant, conversation)
        changes = await foldlog.session(conversation).diff(
            parse_moment(first), None if second is None else parse_moment(second)
        )
    if common.json:
        print_json(changes)
    else:
        _print(conversation, changes)


def _print(conversation: str, changes: ContextDiff) -> None:
    before, after = changes.version_before, changes.version_after
    console().print(
        Text(
            f"{one_line(conversation, 100)}, from version {before} to {after}: "
            f"{changes.tokens_before:,} tokens, then {changes.tokens_after:,}"
        )
    )
    if changes.empty:
        console().print(Text("a model is shown the same"))
        return
    table = Table(pad_edge=False, expand=True)
    table.add_column("change", no_wrap=True)
    table.add_column(f"at version {before}", overflow="fold", ratio=1)
    table.add_column(f"at version {after}", overflow="fold", ratio=1)
    table.add_column("by", no_wrap=True)
    rows: tuple[SectionChange | ToolChange | MessageChange, ...] = (
        *changes.sections,
        *changes.tools,
        *changes.messages,
    )
    for one in rows:
        cells = (one.change, _shown(one.before), _shown(one.after), _cause(one.cause))
        table.add_row(*map(Text, cells))
    console().print(table)


def _shown(what: Message | SectionInForce | Tool | None) -> str:
    match what:
        case None:
            return ""
        case Message():
            said = describe_message(what)
        case SectionInForce(name=name, text=text, exact=exact):
            said = f"section {name}{' (exact)' if exact else ''}: {text}"
        case Tool(name=name, description=description):
            said = f"tool {name}: {description}"
    text = safe(said)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def _cause(cause: Cause | None) -> str:
    return f"{cause.kind} {short(cause.id)} at {cause.version}" if cause else ""
