"""`foldlog dead`: what the services gave up on, and how it gets another chance."""

from typing import Annotated

from cyclopts import App, Parameter
from rich.table import Table
from rich.text import Text

from foldlog.announcing import Announcer
from foldlog.cli.common import Common
from foldlog.cli.output import console, one_line, print_json, safe, say
from foldlog.dead_letters import Buried, letter, letters
from foldlog.dead_letters import requeue as requeue_letter
from foldlog.policies import policies_of
from foldlog.session import Foldlog

dead = App(name="dead", help="What the services gave up on: list it, show it, requeue it.")


@dead.command(name="list")
@dead.default
async def list_(
    *,
    common: Common = Common(),  # noqa: B008 - frozen
) -> None:
    """List what was given up, of every tenant, oldest first.

    With --json one line for each: {"number", "what", "time", "letter": {"tenant",
    "conversation", "reason", "version", "tries"}}.
    """
    async with common.opened() as foldlog:
        found = [one async for one in letters(foldlog.records)]
    if common.json:
        for one in found:
            print_json(one)
        return
    table = Table(box=None, pad_edge=False)
    for name in ("number", "time", "what", "conversation", "version", "reason"):
        table.add_column(name, justify="right" if name in ("number", "version") else "left")
    for one in found:
        table.add_row(*map(Text, _row(one)))
    console().print(table)


@dead.command
async def show(
    number: Annotated[int, Parameter(help="As `foldlog dead list` shows it.")],
    /,
    *,
    common: Common = Common(),  # noqa: B008 - frozen
) -> None:
    """Show one of them whole: its error, its place, and the message where it is stored here."""
    async with common.opened() as foldlog:
        one = await letter(foldlog.records, number)
    if common.json:
        print_json(one)
        return
    for name, value in (
        ("number", str(one.number)),
        ("time", one.time.astimezone().isoformat(sep=" ", timespec="seconds")),
        ("what", one.what),
        ("tenant", one.letter.tenant),
        ("conversation", one.letter.conversation),
        ("subject", one.letter.subject),
        ("version", str(one.letter.version or "")),
        ("tries", str(one.letter.tries)),
        ("reason", one.letter.reason),
        ("message", one.letter.data),
    ):
        if value:
            console().print(Text(f"{name}: {safe(value)}"), soft_wrap=True)


@dead.command
async def requeue(
    *numbers: Annotated[int, Parameter(help="As `foldlog dead list` shows them.")],
    all: Annotated[bool, Parameter(help="All of them.", negative=())] = False,
    common: Common = Common(),  # noqa: B008 - frozen
) -> int:
    """Have them done after all: views are made anew from the log, pressure is queued again.

    What works is removed from the list. Ends with 1 where something did not work.
    """
    from foldlog.cli.app import CHECK_FAILED, DONE, UsageError

    if bool(numbers) == all:
        raise UsageError("say which: numbers, or --all")
    failures = 0
    async with common.opened() as foldlog:
        if all:
            chosen = [one async for one in letters(foldlog.records)]
        else:
            chosen = [await letter(foldlog.records, number) for number in numbers]
        announcer = Announcer(foldlog.records, policies_of(common.settings()))
        for one in chosen:
            failure = await _requeue(one, foldlog, announcer)
            failures += failure is not None
            if common.json:
                print_json({"number": one.number, "requeued": failure is None, "error": failure})
            elif failure is None:
                print(f"requeued {one.number}: {one_line(one.letter.conversation, 80)}")
            else:
                say(failure)
    return CHECK_FAILED if failures else DONE


async def _requeue(one: Buried, foldlog: Foldlog, announcer: Announcer) -> str | None:
    """Why it could not be requeued; whatever that is, the others are tried too."""
    try:
        await requeue_letter(one, foldlog.records, foldlog.contexts, foldlog.views, announcer)
    except Exception as error:
        return f"{one.number} stays: {type(error).__name__}: {error}"
    return None


def _row(one: Buried) -> tuple[str, ...]:
    return (
        str(one.number),
        one.time.astimezone().strftime("%Y-%m-%d %H:%M:%S"),
        one.what,
        one_line(one.letter.conversation, 40),
        str(one.letter.version or ""),
        one_line(one.letter.reason, 200),
    )
