"""Which candidate is the best so far."""

from collections.abc import Iterable

from cuda_tui.evaluation.report import Measured, Outcome, Verdict, superseded
from cuda_tui.events import CandidateEvaluated, Event


def headline(candidate: CandidateEvaluated) -> float | None:
    """How many times faster than the fastest baseline, where the interval allows saying "faster" at all."""
    report = candidate.report
    if report.verdict is not Verdict.PASSED or not isinstance(report.performance, Measured):
        return None
    ratio = report.performance.headline
    return ratio.value if ratio.outcome is Outcome.FASTER else None


def best_candidate(events: Iterable[Event]) -> CandidateEvaluated | None:
    """The verified candidate with the highest headline ratio; only ones whose interval says "faster" count.

    Of several measurements of the same sources the last one counts.
    """
    evaluated = [event for event in events if isinstance(event, CandidateEvaluated)]
    earlier = superseded([candidate.report for candidate in evaluated])
    standing = [candidate for position, candidate in enumerate(evaluated) if position not in earlier]
    faster = [candidate for candidate in standing if headline(candidate) is not None]
    return max(faster, key=lambda candidate: headline(candidate) or 0.0, default=None)
