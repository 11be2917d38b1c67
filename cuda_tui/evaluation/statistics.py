"""Intervals over processes, never over slices: slices of one process share its bias (MEASURING.md)."""

import math
import statistics
from collections.abc import Sequence

from cuda_tui.evaluation.report import Ratio

# Two-sided 95% points of Student's t by degrees of freedom (any statistics table); beyond 30 the normal's.
_T95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


def t95(degrees: int) -> float:
    """Two-sided 95% point of Student's t."""
    return _T95[degrees - 1] if degrees <= len(_T95) else 1.960


def paired_ratio(baseline: str, baseline_us: Sequence[float], candidate_us: Sequence[float]) -> Ratio:
    """Baseline time over candidate time with a t interval over the processes' paired log ratios.

    Both hold one median a process, paired by the round in which they were interleaved. Needs two pairs or more.
    """
    logs = [math.log(b / c) for b, c in zip(baseline_us, candidate_us, strict=True)]
    mean = statistics.fmean(logs)
    half = t95(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return Ratio(baseline=baseline, value=math.exp(mean), low=math.exp(mean - half), high=math.exp(mean + half))


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the samples lie, by nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))]
