"""Intervals: against values worked out by hand, and how often identical code is called different."""

import math
import random

import pytest

from cuda_tui.evaluation.report import Outcome, Ratio
from cuda_tui.evaluation.statistics import paired_ratio, t95


@pytest.mark.parametrize(("degrees", "point"), [(1, 12.706), (3, 3.182), (10, 2.228), (30, 2.042), (1000, 1.960)])
def test_points_of_students_t_are_those_of_the_tables(degrees: int, point: float) -> None:
    assert t95(degrees) == point


def test_interval_is_the_one_worked_out_by_hand() -> None:
    # Log ratios 0, 0.1, 0.2, 0.3: mean 0.15, deviation 0.1291, half width 3.182 * 0.1291 / 2 = 0.2054.
    baseline = [[100.0 * math.exp(step)] for step in (0.0, 0.1, 0.2, 0.3)]
    ratio = paired_ratio("eager", baseline, [[100.0]] * 4)
    assert ratio.value == pytest.approx(math.exp(0.15))
    assert math.log(ratio.low) == pytest.approx(0.15 - 0.2054, abs=1e-4)
    assert math.log(ratio.high) == pytest.approx(0.15 + 0.2054, abs=1e-4)
    assert ratio.outcome is Outcome.INCONCLUSIVE


def test_round_that_is_slow_on_both_sides_changes_nothing() -> None:
    quiet = paired_ratio("eager", [[20.0, 20.0, 20.0]] * 4, [[10.0, 10.0, 10.0]] * 4)
    disturbed = paired_ratio("eager", [[20.0, 90.0, 20.0]] * 4, [[10.0, 45.0, 10.0]] * 4)
    assert quiet == disturbed
    assert quiet.value == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (1.02, 1.5, Outcome.FASTER),
        (1.009, 1.5, Outcome.INCONCLUSIVE),
        (0.995, 1.005, Outcome.SAME),
        (0.5, 0.98, Outcome.SLOWER),
        (0.9, 1.2, Outcome.INCONCLUSIVE),
    ],
)
def test_outcome_must_clear_one_percent(low: float, high: float, outcome: Outcome) -> None:
    assert Ratio(baseline="eager", value=(low * high) ** 0.5, low=low, high=high).outcome is outcome


def process(draw: random.Random, bias: float, noise: float, rounds: int = 6) -> list[float]:
    """Slice medians of one process: a bias of its own, and noise from slice to slice."""
    own = draw.gauss(0.0, bias)
    return [100.0 * math.exp(own + draw.gauss(0.0, noise)) for _ in range(rounds)]


@pytest.mark.parametrize(("bias", "noise"), [(0.002, 0.01), (0.005, 0.02), (0.02, 0.05)])
def test_identical_code_is_rarely_called_faster_or_slower(bias: float, noise: float) -> None:
    draw = random.Random(7)
    false = 0
    for _ in range(400):
        sides = [[process(draw, bias, noise) for _ in range(4)] for _ in range(2)]
        false += paired_ratio("eager", *sides).outcome in {Outcome.FASTER, Outcome.SLOWER}
    assert false / 400 <= 0.05


def test_three_percent_are_found_where_processes_agree_within_half_a_percent() -> None:
    draw = random.Random(8)
    found = 0
    for _ in range(200):
        baseline = [process(draw, 0.003, 0.01) for _ in range(4)]
        candidate = [[value / 1.03 for value in process(draw, 0.003, 0.01)] for _ in range(4)]
        found += paired_ratio("eager", baseline, candidate).outcome is Outcome.FASTER
    assert found / 200 > 0.8
