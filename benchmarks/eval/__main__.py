"""`python -m benchmarks.eval [--json]`: the task four ways, as a table or as JSON."""

import asyncio
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.eval import story
from benchmarks.eval.run import WAYS, WINDOW, Score, play
from foldlog.data_folder import locate
from foldlog.embedded import attach_or_start
from foldlog.logging_setup import configure
from foldlog.session import connect
from foldlog.settings import Settings
from foldlog_projections.policy import Policies, default, load

ROWS: tuple[tuple[str, Callable[[Score], str]], ...] = (
    ("scope correct at every step", lambda one: f"{one.scope_right} of {one.scope_asked}"),
    ("figures equal to the records", lambda one: f"{one.figures_right} of {one.figures_asked}"),
    ("gaps named in the report", lambda one: f"{one.gaps_named} of {len(story.GAP_PAGES)}"),
    ("references resolvable", lambda one: f"{one.references_resolved} of {one.references}"),
    ("calls without their result", lambda one: f"{one.unpaired_calls}"),
    ("queries repeated", lambda one: f"{one.repeated_queries}"),
    ("requests over the window", lambda one: f"{one.over_window} of {one.requests}"),
    ("tokens sent in total", lambda one: f"{one.tokens_sent:,}"),
    ("share of cached prefix", lambda one: f"{one.cached_share:.1%}"),
    ("tokens sent and not cached", lambda one: f"{one.tokens_sent - one.tokens_cached:,}"),
    ("compactions (and cancelled)", lambda one: f"{one.compactions} ({one.cancelled})"),
    ("compaction seconds", lambda one: f"{one.compaction_seconds:.2f}"),
    ("summary tokens", lambda one: f"{one.summary_tokens:,}"),
    ("summary cost", lambda one: f"{one.summary_cost:.4f}"),
)


async def scores() -> list[Score]:
    """Each way on a log of its own."""
    found = []
    with tempfile.TemporaryDirectory(prefix="foldlog-eval-") as folder:
        async with attach_or_start(locate(Path(folder))) as server:
            for way in WAYS:
                # An agent without compaction sends what it has: the window is counted, not kept.
                policy = load(way.policy) if way.policy else default(10_000_000)
                policies = Policies(fallback=policy)
                async with connect(server.address, tenant=way.name, policies=policies) as foldlog:
                    found.append(await play(foldlog, way))
    return found


def main() -> None:
    """Run and print."""
    configure("eval", Settings(log_level="error"))
    found = asyncio.run(scores())
    if "--json" in sys.argv[1:]:
        print(msgspec.json.encode(found).decode())
        return
    table = Table(title=f"One task of {story.PAGES} pages in a window of {WINDOW:,} tokens")
    table.add_column("")
    for score in found:
        table.add_column(score.way, justify="right")
    for name, cell in ROWS:
        table.add_row(name, *map(cell, found))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
