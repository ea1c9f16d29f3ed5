"""What runs found, as lines and as a table."""

import argparse
from collections import Counter

from tests.faults.plan import KINDS, Plan
from tests.faults.run import Result


def line(result: Result) -> str:
    """One run in one line."""
    findings = result.findings.all()
    verdict = "ok" if not findings else f"{len(findings)} BROKEN"
    return (
        f"seed {result.plan.seed:3} on {result.plan.nodes}: {verdict}, "
        f"{result.acknowledged:,} acknowledged, {sum(result.injected.values())} faults, "
        f"{sum(result.attempts.values())} attempts ({result.attempts['committed']} committed), "
        f"longest pause {result.longest_pause:.1f} s, {result.seconds:.0f} s"
    )


def replay(plan: Plan, given: argparse.Namespace) -> str:
    """The command that runs a schedule again."""
    only = "".join(f" --only '{kind}'" for kind in given.only or ())
    return (
        f"python -m tests.faults --seed {plan.seed} --nodes {plan.nodes} "
        f"--entries {given.entries} --seconds {given.seconds:g} --faults {given.faults}{only}"
    )


class Table:
    """Sums over runs, apart for one server and for three."""

    def __init__(self) -> None:
        self._results: dict[int, list[Result]] = {}

    @property
    def failed(self) -> bool:
        return any(
            result.findings.all() for results in self._results.values() for result in results
        )

    def add(self, result: Result) -> None:
        self._results.setdefault(result.plan.nodes, []).append(result)

    def text(self, seconds: float) -> str:
        """The table."""
        columns = sorted(self._results)
        rows = [("", *(f"{nodes} server{'s' * (nodes > 1)}" for nodes in columns), "all")]

        def row(name: str, values: list[float], *, total: float | None = None) -> None:
            shown = [*values, sum(values) if total is None else total]
            rows.append((name, *(f"{v:,}" if isinstance(v, int) else f"{v:.1f}" for v in shown)))

        row("schedules", [len(self._results[nodes]) for nodes in columns])
        injected = {
            nodes: sum((one.injected for one in self._results[nodes]), Counter[str]())
            for nodes in columns
        }
        for kind in KINDS:
            row(kind, [injected[nodes][kind] for nodes in columns])
        for name, value in (
            ("acknowledged entries", lambda one: one.acknowledged),
            ("compaction attempts", lambda one: sum(one.attempts.values())),
            ("of these committed", lambda one: one.attempts["committed"]),
            ("lost", lambda one: len(one.findings.lost)),
            ("duplicated", lambda one: len(one.findings.duplicated)),
            ("reordered", lambda one: len(one.findings.reordered)),
            ("written although refused", lambda one: len(one.findings.written_although_refused)),
            ("stale applied", lambda one: len(one.findings.stale_applied)),
            ("other findings", _others),
        ):
            row(name, [sum(value(one) for one in self._results[nodes]) for nodes in columns])
        pauses = [max(one.longest_pause for one in self._results[nodes]) for nodes in columns]
        row("longest pause of writers, s", pauses, total=max(pauses, default=0.0))
        widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
        lines = [
            "  ".join(
                cell.ljust(width) if place == 0 else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in rows
        ]
        return "\n".join(["", *lines, f"in {seconds / 60:.0f} min"])


def _others(result: Result) -> int:
    findings = result.findings
    named = (
        findings.lost,
        findings.duplicated,
        findings.reordered,
        findings.written_although_refused,
        findings.stale_applied,
    )
    return len(findings.all()) - sum(map(len, named))
