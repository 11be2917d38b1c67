"""Reports as values: milestones, outcomes, and which of several measurements counts."""

import pytest

from cuda_tui.evaluation.report import (
    Measured,
    Milestone,
    NotMeasured,
    Outcome,
    Performance,
    Ratio,
    Receipt,
    Report,
    Timing,
    Verdict,
    superseded,
)


def report(performance: Performance, *, sources: dict[str, str]) -> Report:
    receipt = Receipt(files=sources, library_sha256=None, seeds=(), versions={}, created_at="2026-11-30T00:00:00+00:00")
    return Report(verdict=Verdict.PASSED, message="", performance=performance, receipt=receipt)


def measured(*ratios: Ratio) -> Measured:
    timing = Timing(name="candidate", process_medians_us=(10.0, 11.0), calls=2, slices=2)
    baselines = tuple(
        Timing(name=ratio.baseline, process_medians_us=(10.0 * ratio.value,) * 2, calls=2, slices=2) for ratio in ratios
    )
    return Measured(candidate=timing, baselines=baselines, ratios=ratios, method="test", device="test")


def ratio(value: float, half: float = 0.01, baseline: str = "eager") -> Ratio:
    return Ratio(baseline=baseline, value=value, low=value - half, high=value + half)


@pytest.mark.parametrize(
    ("found", "outcome"),
    [
        (ratio(1.03), Outcome.FASTER),
        (ratio(1.015), Outcome.INCONCLUSIVE),
        (ratio(0.97), Outcome.SLOWER),
        (ratio(1.0, 0.009), Outcome.SAME),
        (ratio(1.5, 0.6), Outcome.INCONCLUSIVE),
    ],
)
def test_outcome_needs_the_whole_interval(found: Ratio, outcome: Outcome) -> None:
    assert found.outcome is outcome


@pytest.mark.parametrize(
    ("performance", "milestone"),
    [
        (NotMeasured(reason="not asked for"), Milestone.CORRECT),
        (measured(ratio(1.04)), Milestone.CORRECT),
        (measured(ratio(1.2)), Milestone.FASTER_THAN_EAGER),
        (measured(ratio(1.2), ratio(1.02, baseline="compile")), Milestone.FASTER_THAN_EAGER),
        (measured(ratio(1.2), ratio(1.1, baseline="compile")), Milestone.FASTER_THAN_COMPILE),
    ],
)
def test_milestone_counts_only_what_the_interval_clears(performance: Performance, milestone: Milestone) -> None:
    assert report(performance, sources={}).milestone is milestone


def test_headline_is_against_the_fastest_baseline() -> None:
    assert measured(ratio(2.0), ratio(1.4, baseline="compile")).headline.baseline == "compile"


def test_later_measurement_of_the_same_sources_counts() -> None:
    first = report(measured(ratio(2.0)), sources={"model_new.py": "a", "NOTES.md": "x"})
    other = report(measured(ratio(1.5)), sources={"model_new.py": "b"})
    again = report(measured(ratio(1.8)), sources={"model_new.py": "a", "NOTES.md": "y"})
    verified = report(NotMeasured(reason="not asked for"), sources={"model_new.py": "b"})
    assert superseded([first, other, again, verified]) == {0}
