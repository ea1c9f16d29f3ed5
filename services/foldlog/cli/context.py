"""`foldlog context`: what a model is shown, now or at any moment before."""

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.table import Table
from rich.text import Text

from foldlog.cli.app import UsageError
from foldlog.cli.common import Common
from foldlog.cli.describe import describe_message
from foldlog.cli.output import console, one_line, print_json, safe
from foldlog.cli.prefix import print_report
from foldlog.contexts import At
from foldlog.prefixes import prefix_report
from foldlog_projections.renderers import anthropic, openai_chat
from foldlog_projections.views import ContextView

Rendering = Literal["neutral", "openai", "anthropic"]


async def context(
    conversation: str,
    /,
    *,
    at: Annotated[
        str | None,
        Parameter(help="A version, an entry's id, or a time (ISO 8601; UTC where it has none)."),
    ] = None,
    render: Annotated[
        Rendering, Parameter(help="The form: foldlog's own, or a provider's request.")
    ] = "neutral",
    prefix: Annotated[
        bool,
        Parameter(help="Instead: how much of each request repeats the one before.", negative=()),
    ] = False,
    common: Common = Common(),  # noqa: B008 - frozen
) -> None:
    """Show what a model is shown, now or as it was at a moment.

    With --json: {"conversation", "version", "head", "tokens", "digest", "messages"}; rendered for
    OpenAI the list of chat messages, for Anthropic {"system", "tools", "messages"}. With --prefix
    {"share", "reasons", "steps": [{"version", "size", "shared", "broken"}]}: what a provider
    caches is a request's beginning, and `broken` says why it ceased to repeat.
    """
    if prefix and at is not None:
        raise UsageError("--prefix is about all requests of a conversation: leave --at out")
    async with common.opened() as foldlog:
        await foldlog.contexts.require(foldlog.tenant, conversation)
        if prefix:
            form = anthropic.render if render == "anthropic" else openai_chat.render
            report = await prefix_report(foldlog, conversation, form)
            print_report(report, as_json=common.json)
            return
        session = foldlog.session(conversation)
        view = await session.context(at=None if at is None else parse_moment(at))
    if common.json:
        print_json(_rendered(view, render))
    elif render != "neutral":
        console().print_json(data=_rendered(view, render), highlight=False, indent=2)
    else:
        _print(view)


def parse_moment(text: str) -> At:
    """A version where the text is a number, else a time where it is one, else an entry's id.

    `entry:` before an id keeps one that looks like a number or a time from being taken for it.
    """
    if text.startswith("entry:"):
        return text.removeprefix("entry:")
    if re.fullmatch(r"[0-9]{1,18}", text):
        return int(text)
    if re.match(r"[0-9]{4}-?[0-9]{2}-?[0-9]{2}(?![0-9])", text):
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return text
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return text


def _rendered(view: ContextView, render: Rendering) -> Any:
    if render == "openai":
        return openai_chat.render(view)
    if render == "anthropic":
        return anthropic.render(view)
    return {
        "conversation": view.conversation,
        "version": view.version,
        "head": view.head,
        "tokens": view.tokens,
        "digest": view.digest,
        "messages": view.messages,
    }


def _print(view: ContextView) -> None:
    head = f", after {view.head.kind} at version {view.head.version}" if view.head else ""
    console().print(
        Text(
            f"{one_line(view.conversation, 100)} at version {view.version}: "
            f"{len(view.messages)} messages, {view.tokens:,} tokens{head}"
        )
    )
    table = Table(box=None, pad_edge=False)
    table.add_column("role", no_wrap=True)
    table.add_column("what it says", overflow="fold", ratio=1)
    for message in view.messages:
        said = describe_message(message).removeprefix(f"{message.role}: ")
        table.add_row(Text(message.role), Text(safe(said)))
    console().print(table)
    for fault in view.faults:
        console().print(Text(f"version {fault.version} is not shown: {one_line(fault.reason)}"))
