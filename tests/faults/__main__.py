"""`python -m tests.faults --seed N --nodes 1|3` runs one schedule; `--runs K` that many."""

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.plan import KINDS, plan
from tests.faults.report import Table, line, replay
from tests.faults.run import run_in


def main() -> int:
    """0 where every run kept every promise."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the first schedule")
    parser.add_argument("--nodes", type=int, choices=(1, 3), action="append", help="servers")
    parser.add_argument("--runs", type=int, default=1, help="schedules for each number of servers")
    parser.add_argument("--entries", type=int, default=11_000, help="acknowledged in a run, about")
    parser.add_argument("--seconds", type=float, default=8.0, help="that writers take, at least")
    parser.add_argument("--faults", type=int, default=8, help="in a run")
    parser.add_argument("--only", action="append", choices=KINDS, help="faults of this kind")
    parser.add_argument("--keep", type=Path, help="folder for what the runs leave behind")
    given = parser.parse_args()
    # However it ends, servers are stopped and their file systems unmounted.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    table = Table()
    began = time.monotonic()
    for nodes in given.nodes or [1]:
        for seed in range(given.seed, given.seed + given.runs):
            schedule = plan(
                seed,
                nodes,
                entries=given.entries,
                seconds=given.seconds,
                faults=given.faults,
                only=given.only or (),
            )
            with tempfile.TemporaryDirectory(prefix="foldlog-faults-") as scratch:
                folder = given.keep / f"{nodes}-{seed}" if given.keep else Path(scratch)
                result = run_in(schedule, folder)
            table.add(result)
            print(line(result), flush=True)
            for finding in result.findings.all()[:20]:
                print(f"    {finding}", flush=True)
            if result.findings.all():
                print(f"    again: {replay(schedule, given)}", flush=True)
    print(table.text(time.monotonic() - began))
    return 1 if table.failed else 0


if __name__ == "__main__":
    sys.exit(main())
