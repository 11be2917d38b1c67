"""The controller's clock against the workers' accounts."""

from typing import Any

import pytest

from cuda_tui.evaluation.candidate import Rejected
from cuda_tui.evaluation.report import Code
from cuda_tui.evaluation.sides import Side, check_accounts, check_sums
from cuda_tui.evaluation.timed import Timed


def side(name: str, *, span_us: float, gap_us: float, unexplained_ms: float, calls: int = 400) -> Side:
    """A side as it looks after six slices."""
    found = Side(name, 0, Timed(lambda: None, lambda calls, salt: {}), calls=calls)
    found.medians_us += [span_us] * 6
    found.gaps_ns += [gap_us * 1e3] * 6
    found.unexplained_s += [unexplained_ms / 1e3] * 6
    return found


EAGER: dict[str, Any] = {"span_us": 100.0, "gap_us": 6.0, "unexplained_ms": 1.0}


@pytest.mark.parametrize(
    "candidate",
    [
        EAGER,
        {"span_us": 2.0, "gap_us": 6.0, "unexplained_ms": 1.2, "calls": 5000},
        {"span_us": 5000.0, "gap_us": 40.0, "unexplained_ms": 1.0, "calls": 8},
        {"span_us": 100.0, "gap_us": 12.0, "unexplained_ms": 4.0},
    ],
)
def test_honest_account_is_believed(candidate: dict[str, Any]) -> None:
    check_accounts([[side("candidate", **candidate), side("eager", **EAGER), side("compile", **EAGER)]])


def test_slices_disturbed_by_others_do_not_convict() -> None:
    disturbed = side("candidate", **EAGER)
    disturbed.unexplained_s[1:5] = [0.05] * 4
    disturbed.gaps_ns[1:5] = [5e5] * 4
    check_accounts([[disturbed, side("eager", **EAGER)]])


def test_clock_that_runs_at_half_speed_is_caught() -> None:
    # A slice of 40 ms by its own account takes 80 ms by ours.
    slow = side("candidate", span_us=50.0, gap_us=6.0, unexplained_ms=41.0)
    with pytest.raises(Rejected) as caught:
        check_accounts([[slow, side("eager", **EAGER)]])
    assert caught.value.code is Code.CLOCK


def test_work_between_the_timed_calls_is_caught() -> None:
    deferred = side("candidate", span_us=1.0, gap_us=105.0, unexplained_ms=1.0)
    with pytest.raises(Rejected) as caught:
        check_accounts([[deferred, side("eager", **EAGER)]])
    assert caught.value.code is Code.DEFERRED_WORK


@pytest.mark.parametrize(
    ("spans", "total", "wall_s"),
    [
        ([1000] * 3, 4000, 0.000004),  # fewer spans than calls
        ([0, 1000, 1000, 1000], 4000, 0.000004),
        ([5000] * 4, 4000, 0.00002),  # more inside than around
        ([1000] * 4, 10_000_000, 0.000004),  # longer than we waited
    ],
)
def test_account_of_a_slice_that_cannot_be_is_refused(spans: list[int], total: int, wall_s: float) -> None:
    with pytest.raises(Rejected) as caught:
        check_sums(spans, total, wall_s, 4)
    assert caught.value.code is Code.CLOCK


def ticking(waits_s: list[float]) -> Side:
    """A side whose slices are 10 ms by its own account and come back after the given times."""

    def time_slice(calls: int, salt: int) -> dict[str, Any]:
        now[0] += waits_s.pop(0)
        return {"spans_ns": [2_500_000] * 4, "busy_ns": [2_500_000] * 4, "total_ns": 10_000_000}

    now = [100.0]
    return Side("candidate", 0, Timed(lambda: None, time_slice), calls=4, clock=lambda: now[0])


def test_process_that_waited_for_its_core_is_timed_again_and_not_accused() -> None:
    found = ticking([0.4, 0.3, 0.011])
    assert found.run_undisturbed(1) == 2500.0
    assert found.dropped == 2


def test_clock_that_is_far_too_slow_each_time_is_caught() -> None:
    with pytest.raises(Rejected) as caught:
        ticking([0.4] * 4).run_undisturbed(1)
    assert caught.value.code is Code.CLOCK
