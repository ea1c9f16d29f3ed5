"""A few schedules of faults; `make faults` runs a hundred. A failing one says how to replay it."""

from pathlib import Path

import msgspec
import pytest

from tests.faults.plan import KINDS, Fault, plan
from tests.faults.run import Result, run

pytestmark = pytest.mark.timeout(900)

SMALL = {"entries": 2_000, "seconds": 4.0, "faults": 5}


def again(result: Result) -> str:
    return f"seed {result.plan.seed} on {result.plan.nodes}: {result.findings.all()}"


@pytest.mark.parametrize(("seed", "nodes"), [(1, 1), (3, 3)])
async def test_nothing_acknowledged_is_lost(seed: int, nodes: int, tmp_path: Path) -> None:
    schedule = plan(seed, nodes, **SMALL)  # type: ignore[arg-type]
    result = await run(schedule, tmp_path)
    assert not result.findings.all(), again(result)
    assert result.acknowledged > 1_000
    assert result.injected.total() >= 3
    assert result.attempts["committed"]


async def test_the_naive_client_is_found_out(tmp_path: Path) -> None:
    """What writers without expected versions lose and repeat, the same checks report."""
    schedule = msgspec.structs.replace(
        plan(1, 1, entries=1_500, seconds=5.0),
        naive=True,
        faults=(
            *(
                Fault(at=0.3 + 0.2 * n, kind="lose acknowledgements", target=n, seconds=0.3)
                for n in range(8)
            ),
            Fault(at=2.0, kind="full disk", target=0, seconds=1.5),
        ),
        projectors=0,
        compactors=0,
        clocks=(0.0, 0.0, 0.0, 0.0),
    )
    result = await run(schedule, tmp_path)
    assert result.acknowledged > 500
    assert result.findings.lost
    assert result.findings.duplicated
    assert result.findings.reordered


def test_a_seed_is_a_schedule() -> None:
    assert plan(7, 3) == plan(7, 3)
    assert plan(7, 3) != plan(8, 3)
    assert plan(7, 3).faults != plan(7, 1).faults
    kinds = {fault.kind for seed in range(50) for fault in plan(seed, 3).faults}
    assert kinds == set(KINDS) - {"clock hours off"}
    assert all(any(plan(seed, nodes).clocks) for seed in range(50) for nodes in (1, 3))
