"""How `foldlog context --prefix` is told."""

from rich.table import Table
from rich.text import Text

from foldlog.cli.describe import short
from foldlog.cli.output import console, print_json
from foldlog_projections.prefix import PrefixReport, PrefixStep


def print_report(report: PrefixReport, *, as_json: bool) -> None:
    """The report, for people or for programs."""
    if as_json:
        share = round(report.share, 4)
        print_json({"share": share, "reasons": report.reasons, "steps": report.steps})
        return
    table = Table(box=None, pad_edge=False)
    for column in ("version", "bytes", "repeated"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("why it broke", overflow="fold", ratio=1)
    for step in report.steps:
        cells = (f"{step.version}", f"{step.size:,}", f"{step.share:.1%}", _why(step))
        table.add_row(*map(Text, cells))
    console().print(table)
    said = ", ".join(f"{count} by {reason}" for reason, count in report.reasons.items())
    console().print(
        Text(
            f"{report.share:.1%} of all bytes repeated the request before"
            f"{f'; breaks: {said}' if said else ''}"
        )
    )


def _why(step: PrefixStep) -> str:
    if step.broken is None:
        return ""
    cause = step.broken.cause
    by = f" ({cause.kind} {short(cause.id)} at {cause.version})" if cause else ""
    return f"{step.broken.reason}, in the {step.broken.part}{by}"
