"""`foldlog recall`: search a conversation's whole log, or read a part of it back."""

from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.text import Text

from foldlog.cli.app import CHECK_FAILED, DONE, UsageError
from foldlog.cli.common import Common
from foldlog.cli.output import console, one_line, print_json, safe
from foldlog.recall_tool import DEFAULT_LIMIT
from foldlog_projections.recall import Expired, NotAllowed, Outcome, Passage, SearchResult


async def recall(
    conversation: str,
    /,
    *words: str,
    reference: Annotated[
        str | None, Parameter(help="Read this entry (its id) or artifact (sha256:...) instead.")
    ] = None,
    offset: Annotated[
        int, Parameter(help="Characters to leave out first.", validator=Number(gte=0))
    ] = 0,
    limit: Annotated[
        int, Parameter(help="Characters to read at most.", validator=Number(gte=1))
    ] = DEFAULT_LIMIT,
    common: Common = Common(),  # noqa: B008 - frozen
) -> int:
    """Find the entries in which all words occur, newest first; or read one with --reference.

    Ends with 1 where a reference cannot be read. With --json: {"hits": [{"reference", "version",
    "kind", "time", "snippet", "offset", "total"}], "total"}, or the passage.
    """
    if bool(words) == (reference is not None):
        raise UsageError("give words to search for, or --reference to read: one of the two")
    async with common.opened() as foldlog:
        await foldlog.contexts.require(foldlog.tenant, conversation)
        session = foldlog.session(conversation)
        found = await session.recall(
            " ".join(words), reference=reference or "", offset=offset, limit=limit
        )
    if common.json:
        print_json(found)
    elif isinstance(found, SearchResult):
        _print_hits(found)
    else:
        _print_outcome(found)
    return DONE if isinstance(found, SearchResult | Passage) else CHECK_FAILED


def _print_hits(found: SearchResult) -> None:
    for hit in found.hits:
        heading = f"{hit.reference}  version {hit.version}  {hit.kind}  {hit.time:%Y-%m-%d %H:%M}"
        console().print(Text(heading), soft_wrap=True)
        console().print(Text(f"    {one_line(hit.snippet)}"), soft_wrap=True)
    console().print(Text(f"{found.total} entries, {len(found.hits)} shown"))


def _print_outcome(found: Outcome) -> None:
    if isinstance(found, Passage):
        end = found.offset + len(found.text)
        console().print(Text(safe(found.text)), soft_wrap=True)
        console().print(Text(f"characters {found.offset} to {end} of {found.total}"))
    elif isinstance(found, Expired):
        console().print(Text(f"past its validity, which ended {found.valid_until.isoformat()}"))
    else:
        what = "not to be read here" if isinstance(found, NotAllowed) else "nothing is there"
        console().print(Text(f"{what}: {found.reason}"), soft_wrap=True)
