"""`foldlog rebuild`: all views anew, beside the live ones, then swapped."""

from foldlog import rebuilding
from foldlog.cli.app import CHECK_FAILED, DONE
from foldlog.cli.common import Common
from foldlog.cli.output import one_line, print_json, progress, say


async def rebuild(
    *,
    common: Common = Common(),  # noqa: B008 - frozen
) -> int:
    """Make the views of every conversation of every tenant anew from the log, and swap them.

    Agents and services go on meanwhile. Views of conversations that the log does not hold are
    removed, as are consumers that a restored log does not reach. Ends with 1 where a conversation
    could not be folded; its view stays as it was. With --json: {"views", "failed", "removed"}.
    """
    async with common.opened() as foldlog:
        with progress() as bar:
            task = bar.add_task("making views anew", total=None)

            def tell(done: int, of: int) -> None:
                bar.update(task, completed=done, total=of)

            rebuilt = await rebuilding.rebuild_all(
                foldlog.broker, foldlog.contexts, foldlog.views, progress=tell
            )
    if common.json:
        print_json(rebuilt)
    else:
        for conversation, reason in rebuilt.failed.items():
            say(f"{one_line(conversation, 80)} stays as it was: {reason}")
        print(f"{rebuilt.views} views made anew, {rebuilt.removed} removed")
    return CHECK_FAILED if rebuilt.failed else DONE
