"""`foldlog erase`, `foldlog delete`, `foldlog materialise`: removing for good."""

from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from foldlog.cli.common import Common
from foldlog.cli.output import console, one_line, print_json
from foldlog.erasure import Erasure

Reason = Annotated[str, Parameter(help="Kept on the tombstone: why it was removed.")]


async def erase(
    conversation: str,
    entry: str,
    /,
    *,
    reason: Reason = "",
    common: Common = Common(),  # noqa: B008 - frozen
) -> None:
    """Remove an entry for good, with edits, summaries, views and artifacts that hold its text.

    Needs an operator's rights. Called again, it completes what was interrupted. With --json:
    {"conversation", "entries", "summaries_remade", "artifacts", "conversations", "mentions"}.
    """
    async with common.opened() as foldlog:
        erasure = await foldlog.erase(conversation, entry, reason=reason)
    _tell(erasure, common)


async def delete(
    conversation: str,
    /,
    *,
    reason: Reason = "",
    common: Common = Common(),  # noqa: B008 - frozen
) -> None:
    """Remove a conversation for good; refused while forks inherit from it.

    Needs an operator's rights. With --json as `erase`.
    """
    async with common.opened() as foldlog:
        erasure = await foldlog.delete(conversation, reason=reason)
    _tell(erasure, common)


async def materialise(
    conversation: str,
    /,
    *,
    common: Common = Common(),  # noqa: B008 - frozen
) -> None:
    """Make a fork independent of its parent, with the context it has now.

    With --json: {"conversation", "version"}; the version is null where it was independent.
    """
    async with common.opened() as foldlog:
        await foldlog.contexts.require(foldlog.tenant, conversation)
        recorded = await foldlog.materialise(conversation)
    if common.json:
        version = recorded.version if recorded else None
        print_json({"conversation": conversation, "version": version})
    else:
        done = "is independent now" if recorded else "inherits nothing that is in force"
        console().print(Text(f"{one_line(conversation, 100)} {done}"), soft_wrap=True)


def _tell(erasure: Erasure, common: Common) -> None:
    if common.json:
        print_json(erasure)
        return
    inherited = f" and from {len(erasure.conversations)} forks" if erasure.conversations else ""
    console().print(
        Text(
            f"removed {erasure.entries} entries from {one_line(erasure.conversation, 100)}"
            f"{inherited}, {erasure.artifacts} artifacts; "
            f"{erasure.summaries_remade} summaries were replaced"
        ),
        soft_wrap=True,
    )
    for one in erasure.mentions:
        said = f"entry {one_line(one.id, 100)} at version {one.version} repeats its text: it stays"
        console().print(Text(said), soft_wrap=True)
