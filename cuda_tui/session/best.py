"""Which candidate is the best so far."""

from collections.abc import Iterable

from cuda_tui.evaluation.report import Measured, Outcome, Verdict
from cuda_tui.events import CandidateEvaluated, Event


def headline(candidate: CandidateEvaluated) -> float | None:
    """How many times faster than the fastest baseline, where the interval allows saying "faster" at all."""
    report = candidate.report
    if report.verdict is not Verdict.PASSED or not isinstance(report.performance, Measured):
        return None
    ratio = report.performance.headline
    return ratio.value if ratio.outcome is Outcome.FASTER else None


def best_candidate(events: Iterable[Event]) -> CandidateEvaluated | None:
    """The verified candidate with the highest headline ratio; only ones whose interval says "faster" count."""
    evaluated = [event for event in events if isinstance(event, CandidateEvaluated)]
    faster = [candidate for candidate in evaluated if headline(candidate) is not None]
    return max(faster, key=lambda candidate: headline(candidate) or 0.0, default=None)
