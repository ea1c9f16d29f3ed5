"""`foldlog verify`: fold everything from scratch, and compare."""

from rich.text import Text

from foldlog import audit
from foldlog.cli.app import CHECK_FAILED, DONE
from foldlog.cli.common import Common
from foldlog.cli.output import console, one_line, print_json, progress

SHOWN = 160
"""Characters of each side of a difference that people are shown."""


async def verify(
    *conversations: str,
    common: Common = Common(),  # noqa: B008 - frozen
) -> int:
    """Fold these conversations (or all) from their first entries and compare.

    Compared are the stored views, the digests that assistant messages recorded of what they
    answered, and each entry's predecessor. Ends with 1 where anything differs. With --json:
    {"conversations", "entries", "differences": [{"conversation", "version", "kind", "expected",
    "found"}]}.
    """
    async with common.opened() as foldlog:
        for conversation in conversations:
            await foldlog.contexts.require(foldlog.tenant, conversation)
        with progress() as bar:
            task = bar.add_task("folding from scratch", total=None)

            def tell(done: int, of: int) -> None:
                bar.update(task, completed=done, total=of)

            verdict = await audit.verify(foldlog, conversations or None, progress=tell)
    if common.json:
        print_json(verdict)
    else:
        _print(verdict)
    return CHECK_FAILED if verdict.differences else DONE


def _print(verdict: audit.Verdict) -> None:
    for one in verdict.differences:
        console().print(
            Text(
                f"{one_line(one.conversation, 80)} at version {one.version}: {one.kind}: "
                f"expected {one_line(one.expected, SHOWN)}, found {one_line(one.found, SHOWN)}"
            ),
            soft_wrap=True,
        )
    found = f"{len(verdict.differences)} differences" if verdict.differences else "no difference"
    print(f"{verdict.entries} entries of {verdict.conversations} conversations: {found}")
