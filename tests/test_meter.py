"""How large a context is, by measurements and estimates."""

import pytest

from foldlog_events.messages import Usage
from foldlog_projections.meter import ContextMeter, is_usable

USAGE = Usage(input_tokens=10, cache_read_tokens=40_000, output_tokens=500)


def metered(*steps: int | Usage, calibration: float = 1.0) -> ContextMeter:
    meter = ContextMeter(calibration)
    for step in steps:
        if isinstance(step, Usage):
            meter.measure(step)
        else:
            meter.change(step)
    return meter


def test_the_newest_usage_covers_what_came_before_and_the_rest_is_estimated() -> None:
    old = Usage(input_tokens=1_500, output_tokens=50)
    meter = metered(100, 500, 1_000, old, 30_000, 7_000, USAGE, 200)
    ratio = 40_510 / (100 + 500 + 1_000 + 30_000 + 7_000)
    assert meter.tokens == 40_510 + round(ratio * 200)


def test_without_usage_everything_is_estimated() -> None:
    assert metered(50, 300, 400).tokens == 750
    assert metered(50, 300, 400, calibration=1.2).tokens == 900


def test_what_is_taken_back_no_longer_counts() -> None:
    assert metered(50, 300, -300).tokens == 50
    assert metered(40_000, USAGE, -300, calibration=1.0).tokens == 40_510 - round(
        300 * 40_510 / 40_000
    )


@pytest.mark.parametrize(
    "void",
    [Usage(), Usage(output_tokens=70), Usage(input_tokens=1, total_tokens=0)],
    ids=["all zero", "nothing sent", "zero total"],
)
def test_a_usage_that_does_not_tell_the_size_is_void(void: Usage) -> None:
    """Case 27: all-zero usage on an aborted reply."""
    assert metered(400, 600, void).tokens == 1_000
    assert metered(40_000, USAGE, 300, void).tokens == metered(40_000, USAGE, 300).tokens


def test_a_stated_total_makes_a_sum_over_calls_usable() -> None:
    """Case 27."""
    usage = Usage(
        input_tokens=12, cache_read_tokens=819_661, output_tokens=15_104, total_tokens=163_978
    )
    assert is_usable(usage)
    assert metered(9, usage).tokens == 163_978


@pytest.mark.parametrize(
    ("estimate", "ratio"), [(27_007, 1.5), (40_510, 1.0), (1_000, 2.0), (400_000, 0.5), (499, 1.0)]
)
def test_the_calibration_is_clamped_and_needs_enough_to_go_by(estimate: int, ratio: float) -> None:
    assert metered(estimate, USAGE).calibration == pytest.approx(ratio, abs=0.001)


@pytest.mark.parametrize(
    ("usage", "usable"),
    [
        (Usage(input_tokens=1), True),
        (Usage(cache_read_tokens=1), True),
        (Usage(cache_write_tokens=1), True),
        (Usage(input_tokens=5, cache_read_tokens=3, cache_write_tokens=2), True),
        (Usage(input_tokens=3, cache_read_tokens=1, cache_write_tokens=2), True),
        (Usage(input_tokens=1, cache_write_tokens=1), True),
        (Usage(input_tokens=1, cache_read_tokens=1), True),
        (Usage(cache_read_tokens=1, cache_write_tokens=1), True),
        (Usage(output_tokens=5), False),
        (Usage(input_tokens=-1, output_tokens=5), False),
        (Usage(input_tokens=1, total_tokens=-1), False),
        (Usage(input_tokens=1, total_tokens=0), False),
    ],
)
def test_a_usage_tells_the_size_where_something_was_sent(usage: Usage, usable: bool) -> None:
    assert is_usable(usage) is usable


@pytest.mark.parametrize(("estimate", "calibrates"), [(499, False), (500, True)])
def test_a_calibration_needs_five_hundred_tokens(estimate: int, calibrates: bool) -> None:
    meter = ContextMeter()
    assert meter.calibration == 1.0
    meter.change(estimate)
    meter.measure(Usage(input_tokens=600))
    assert (meter.calibration != 1.0) is calibrates


def test_a_context_is_never_smaller_than_nothing() -> None:
    meter = ContextMeter()
    meter.change(400)
    meter.measure(Usage(input_tokens=10))
    meter.change(-400)
    assert meter.tokens == 0
