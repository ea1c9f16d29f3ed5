"""`foldlog actions`: what was requested, allowed and really done outside the conversation."""

from rich.table import Table
from rich.text import Text

from foldlog.cli.common import Common
from foldlog.cli.output import console, one_line, print_json
from foldlog_projections.actions import Ledger


async def actions(
    conversation: str,
    /,
    *,
    common: Common = Common(),  # noqa: B008 - frozen
) -> None:
    """List a conversation's actions with the steps that took effect, and steps that did not.

    With --json: {"version", "actions": {id: {"action", "name", "arguments", "arguments_digest",
    "steps"}}, "refused"}.
    """
    async with common.opened() as foldlog:
        await foldlog.contexts.require(foldlog.tenant, conversation)
        ledger = await foldlog.session(conversation).actions()
    if common.json:
        print_json(ledger)
    else:
        _print(ledger)


def _print(ledger: Ledger) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("action", "name", "state", "steps"):
        table.add_column(column, overflow="fold")
    for action in ledger.actions.values():
        steps = ", ".join(
            f"{step.step}{f' by {step.actor}' if step.actor else ''} at {step.version}"
            for step in action.steps
        )
        state = f"{action.state} (inherited)" if action.inherited else action.state
        cells = (action.action, action.name, state, steps)
        table.add_row(*(Text(one_line(cell, 200)) for cell in cells))
    console().print(table)
    for refused in ledger.refused:
        console().print(
            Text(
                f"without effect: {one_line(refused.action, 80)} {refused.step} at version "
                f"{refused.version}: {one_line(refused.reason)}"
            ),
            soft_wrap=True,
        )
