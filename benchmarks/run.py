"""The runner: one benchmark or all, as a table or as a JSON object for each row."""

import argparse
import asyncio
import importlib
import logging
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import structlog
from rich.console import Console
from rich.table import Table

from benchmarks.marks import MARKS, verdict
from benchmarks.measure import Row

Benchmark = Callable[..., Coroutine[Any, Any, list[Row]]]

BENCHMARKS = {
    "append": "append:one",
    "append-64": "append:many",
    "append-turn": "append:turn",
    "append-processes": "append:contended",
    "fold": "fold:fold",
    "context-warm": "context:warm",
    "context-cold": "context:cold",
    "context-history": "context:history",
    "projector": "projecting:projector",
    "view-lag": "projecting:lag",
    "rebuild": "projecting:rebuild",
    "compaction": "compacting:compaction",
    "artifacts": "artifacts:artifacts",
    "memory": "memory:memory",
    "peers": "peers.comparison:peers",
}


def benchmark(name: str) -> Benchmark:
    """A benchmark by its name; what it needs is imported only now."""
    module, function = BENCHMARKS[name].split(":")
    found: Benchmark = getattr(importlib.import_module(f"benchmarks.{module}"), function)
    return found


def main() -> None:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--json", action="store_true", help="one JSON object for each row")
    parser.add_argument("--short", action="store_true", help="every code path, in a few seconds")
    parser.add_argument("--save", type=Path, help="write all rows to this file, as JSON lines")
    parser.add_argument("--plots", type=Path, help="draw the peers into this folder")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}: there are {', '.join(BENCHMARKS)}")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    rows: list[Row] = []
    for name in options.names or BENCHMARKS:
        started = time.perf_counter()
        found = asyncio.run(benchmark(name)(short=options.short))
        rows += found
        if options.json:
            for row in found:
                print(msgspec.json.encode(row).decode(), flush=True)
        taken = time.perf_counter() - started
        print(f"{name}: {taken:.0f} s", file=sys.stderr, flush=True)
    if options.save:
        options.save.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    if not options.json:
        Console(width=max(150, Console().width)).print(table(rows))
    if options.plots:
        from benchmarks.plots import draw

        draw(rows, options.plots)


def table(rows: list[Row]) -> Table:
    """The rows with their marks."""
    shown = Table("row", "value", "unit", "beside", "baseline", "ratio", "n", "spread", "to reach")
    for row in rows:
        mark = MARKS.get(row.name)
        shown.add_row(
            row.name,
            _number(row.value),
            row.unit,
            mark.baseline if mark else "",
            _number(row.baseline),
            _number(row.ratio),
            str(row.n),
            f"{row.spread:.0%}",
            verdict(row),
            style="yellow" if "misses" in verdict(row) else "",
        )
    return shown


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
