"""`foldlog import`: conversations of other programs."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.text import Text

from foldlog.cli.app import CHECK_FAILED, DONE, UsageError
from foldlog.cli.common import Common
from foldlog.cli.output import console, one_line, print_json, progress
from foldlog.importers import UnknownFormat
from foldlog.importing import FileOutcome, Import


async def import_(
    *files: Path,
    repair: Annotated[
        bool,
        Parameter(
            help="Replace what JSON cannot hold (lone surrogates, NaN).",
            negative=(),
        ),
    ] = False,
    common: Common = Common(),  # noqa: B008 - frozen
) -> int:
    """Import files of other programs; the first lines of a file tell its format.

    Importing a file again appends nothing twice. Every line is accounted for. Ends with 1 where
    a line is malformed, a format is unknown or a conversation was refused; the rest is imported
    all the same.
    """
    if not files:
        raise UsageError("give the files to import")
    for path in files:
        if not path.is_file():
            raise UsageError(f"{path} is no file that can be read")
    accounts = []
    async with common.opened() as foldlog:
        importing = Import(foldlog.log, foldlog.tenant)
        with progress() as bar:
            for path in files:
                task = bar.add_task(one_line(path.name, 40), total=None)

                def tell(entries: int, task: Any = task) -> None:
                    bar.advance(task, entries)

                accounts.append(await _account(importing, path, repair, tell))
                bar.remove_task(task)
    if common.json:
        print_json({"files": accounts})
    else:
        for account in accounts:
            _print(account)
    return DONE if all(_is_whole(account) for account in accounts) else CHECK_FAILED


async def _account(importing: Import, path: Path, repair: bool, tell: Any) -> dict[str, Any]:
    """What became of a file, as it is printed."""
    try:
        outcome: FileOutcome = await importing.file(path, repair=repair, progress=tell)
    except UnknownFormat as error:
        return {"file": str(path), "error": {"type": "UnknownFormat", "message": str(error)}}
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    report = outcome.report
    return {
        "file": str(path),
        "format": report.format,
        "lines": len(report.lines),
        "imported": report.count("imported"),
        "skipped": [_fate(fate) for fate in report.lines if fate.status == "skipped"],
        "malformed": [_fate(fate) for fate in report.lines if fate.status == "malformed"],
        "conversations": outcome.conversations,
        "entries": report.entries,
        "appended": outcome.appended,
        "refused": outcome.refused,
        "not_carried": report.lost,
        "remarks": report.remarks,
    }


def _fate(fate: Any) -> dict[str, Any]:
    return {"line": fate.line, "reason": fate.reason}


def _is_whole(account: dict[str, Any]) -> bool:
    return "error" not in account and not account["malformed"] and not account["refused"]


def _print(account: dict[str, Any]) -> None:
    out = console()

    def line(text: str) -> None:
        indent = "  " if text.startswith("  ") else ""
        out.print(Text(indent + one_line(text)), soft_wrap=True)

    if "error" in account:
        line(account["error"]["message"])
        return
    line(
        f"{account['file']} ({account['format']}): {account['lines']} lines, "
        f"{account['imported']} imported, {len(account['skipped'])} skipped, "
        f"{len(account['malformed'])} malformed; {account['conversations']} conversations, "
        f"{account['entries']} entries, {account['appended']} of them appended now"
    )
    for fate in account["malformed"]:
        line(f"  line {fate['line']} is malformed: {fate['reason']}")
    for fate in account["skipped"]:
        line(f"  line {fate['line']} was skipped: {fate['reason']}")
    for refused in account["refused"]:
        line(f"  conversation {refused.conversation} was refused: {refused.reason}")
    for lost in account["not_carried"]:
        line(f"  not carried over: {lost.what} ({lost.count}×, first in line {lost.first_line})")
    for remark in account["remarks"]:
        line(f"  line {remark.line}: {remark.text}")
