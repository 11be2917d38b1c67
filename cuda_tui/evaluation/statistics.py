"""Intervals over processes, never over slices: slices of one process share its bias (MEASURING.md)."""

import itertools
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


def paired_ratio(
    baseline: str, baseline_us: Sequence[Sequence[float]], candidate_us: Sequence[Sequence[float]]
) -> Ratio:
    """Baseline time over candidate time with a t interval over processes.

    Both hold the slice medians of each process, paired by process and by the round in which they ran one after the
    other. A pair's log ratio is the median over its rounds, so that a machine that slows down for some rounds slows
    both sides of the ratio. Needs two processes or more.
    """
    logs = [
        statistics.median(math.log(b / c) for b, c in zip(ours, theirs, strict=True))
        for ours, theirs in zip(baseline_us, candidate_us, strict=True)
    ]
    mean = statistics.fmean(logs)
    half = t95(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return Ratio(baseline=baseline, value=math.exp(mean), low=math.exp(mean - half), high=math.exp(mean + half))


def bootstrap_ratio(baseline: str, pairs: Sequence[Sequence[tuple[float, float]]]) -> Ratio:
    """Baseline time over candidate time with the 95% bootstrap interval over candidate processes.

    Each process has one (baseline, candidate) pair of times a round. A process's log ratio is the mean over its rounds;
    all resamples of the processes are taken, which for four are 256, so that the interval is the same every time.
    """
    logs = [statistics.fmean(math.log(theirs / own) for theirs, own in rounds) for rounds in pairs]
    means = sorted(statistics.fmean(resample) for resample in itertools.product(logs, repeat=len(logs)))
    low, high = (means[int(share * (len(means) - 1))] for share in (0.025, 0.975))
    return Ratio(baseline=baseline, value=math.exp(statistics.fmean(logs)), low=math.exp(low), high=math.exp(high))


def welch_ratio(baseline: str, baseline_us: Sequence[float], candidate_us: Sequence[float], *, margin: float) -> Ratio:
    """Baseline time over candidate time from one median a process, the processes of both sides taken as they come.

    Welch's t interval (95%) of the difference of mean logs: both sides' spread between processes counts, and a side of
    few processes widens it. Needs two processes a side.
    """
    ours, theirs = ([math.log(value) for value in side] for side in (candidate_us, baseline_us))
    parts = [statistics.variance(side) / len(side) for side in (ours, theirs)]
    total = sum(parts)
    half = 0.0
    if total:
        degrees = total**2 / sum(part**2 / (len(side) - 1) for part, side in zip(parts, (ours, theirs), strict=True))
        half = t95(max(1, int(degrees))) * math.sqrt(total)
    mean = statistics.fmean(theirs) - statistics.fmean(ours)
    return Ratio(
        baseline=baseline, value=math.exp(mean), low=math.exp(mean - half), high=math.exp(mean + half), margin=margin
    )
