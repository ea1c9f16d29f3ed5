"""`foldlog compact`: make a context smaller now, whatever its size."""

from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from foldlog.announcing import model_of
from foldlog.cli.app import CHECK_FAILED, DONE
from foldlog.cli.common import Common
from foldlog.cli.output import console, one_line, print_json
from foldlog.compaction import Ended
from foldlog.compactor import Compactor
from foldlog.policies import policies_of
from foldlog.session import Foldlog
from foldlog.settings import Settings
from foldlog.summarisers import close
from foldlog.summarisers.choosing import summariser_of
from foldlog_projections.pressure import Pressure


async def compact(
    conversation: str,
    /,
    *,
    instructions: Annotated[str, Parameter(help="What the summary shall heed.")] = "",
    common: Common = Common(),  # noqa: B008 - frozen
) -> int:
    """Compact a conversation's context now, in this process.

    Ends with 0 where the context is smaller, with 1 where it is as it was, and says why. With
    --json: {"conversation", "state", "reason", "entry", "tokens_before", "tokens_after"}.
    """
    settings = common.settings()
    async with common.opened() as foldlog:
        await foldlog.contexts.require(foldlog.tenant, conversation)
        ended = await _compact(foldlog, settings, conversation, instructions)
    if common.json:
        print_json(
            {
                "conversation": conversation,
                "state": ended.state,
                "reason": ended.reason,
                "entry": ended.entry,
                "tokens_before": ended.tokens_before,
                "tokens_after": ended.tokens_after,
            }
        )
    else:
        _print(conversation, ended)
    return DONE if ended.state in ("committed", "pruned") else CHECK_FAILED


async def _compact(
    foldlog: Foldlog, settings: Settings, conversation: str, instructions: str
) -> Ended:
    view = await foldlog.session(conversation).context()
    policy = policies_of(settings).of(model_of(view))
    pressure = Pressure(
        tenant=foldlog.tenant,
        conversation=conversation,
        version=view.version,
        base_version=view.base_version,
        head=view.head.id if view.head else None,
        tokens=view.tokens,
        soft=policy.soft_limit,
        hard=policy.hard_limit,
        level="soft",
        reason="manual",
        instructions=instructions,
    )
    summariser = summariser_of(settings)
    try:
        return await Compactor(foldlog.broker, settings, summariser).handle(pressure)
    finally:
        await close(summariser)


def _print(conversation: str, ended: Ended) -> None:
    said = f"{one_line(conversation, 100)}: {ended.state}"
    if ended.state in ("committed", "pruned"):
        said += f", {ended.tokens_before:,} tokens before and {ended.tokens_after:,} after"
    if ended.reason:
        said += f": {one_line(ended.reason)}"
    console().print(Text(said), soft_wrap=True)
