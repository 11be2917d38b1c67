"""The autopilot's words: hypothesis, prediction, verdict, summary. Short, with the numbers they rest on."""

from cuda_tui.autopilot.estimate import Estimate
from cuda_tui.evaluation.report import Measured, Outcome, Ratio, Report, Verdict
from cuda_tui.words import counted


def size(count: float) -> str:
    """Bytes for a person: "12.6 MB"."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count:.0f} B"


def time(us: float) -> str:
    """Microseconds for a person: "3.2 ms", "45 us"."""
    return f"{us / 1e3:.3g} ms" if us >= 1e3 else f"{us:.3g} us"


def group_line(name: str, works: str, estimated: Estimate, note: str = "") -> str:
    """One group in the plan."""
    more = f"; {note}" if note else ""
    calls = counted(estimated.calls, "operator")
    return (
        f"- {name}: {calls} ({works}) move {size(estimated.eager_bytes)}; one kernel moves "
        f"{size(estimated.own_bytes)}. Predicted saving: {time(estimated.saved_us)}{more}"
    )


def ratio(found: Ratio) -> str:
    """ "1.52x [1.49, 1.55] against eager, faster"."""
    return f"{found.value:.2f}x [{found.low:.2f}, {found.high:.2f}] against {found.baseline}, {found.outcome.value}"


def verdict_line(report: Report) -> str:
    """What an evaluation said, in one or two sentences."""
    if report.verdict is not Verdict.PASSED:
        code = f" ({report.code.value})" if report.code else ""
        return f"{report.verdict.value}{code}: {report.message}"
    if not isinstance(report.performance, Measured):
        return f"Verified; not measured: {report.performance.reason}"
    measured = report.performance
    listed = "; ".join(ratio(item) for item in measured.ratios)
    return f"Verified and measured: {time(measured.candidate.median_us)} a call; {listed}."


def eager_ratio(report: Report) -> Ratio | None:
    """The measured ratio to eager, where the candidate was verified."""
    if report.verdict is not Verdict.PASSED or not isinstance(report.performance, Measured):
        return None
    return report.performance.ratio_to("eager") or report.performance.headline


def is_faster(report: Report) -> bool:
    """Whether the interval allows saying that the candidate beats eager."""
    found = eager_ratio(report)
    return found is not None and found.outcome is Outcome.FASTER
