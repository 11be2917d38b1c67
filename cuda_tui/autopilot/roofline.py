"""How close each kernel comes to the memory bandwidth of the GPU, predicted and reached."""

from cuda_tui.autopilot import story
from cuda_tui.autopilot.cuda_launches import kernel_times
from cuda_tui.autopilot.design import Candidate, Design
from cuda_tui.evaluation.report import Report


def reached(design: Design, candidate: Candidate, report: Report) -> list[str]:
    """A line for each kernel: bytes that it must move, its time, and its share of the bandwidth of a copy.

    Kernels whose time the report's profile does not show are left out, never guessed.
    """
    names = design.kernel_names(candidate)
    shown = kernel_times(report, list(names.values()))
    measured = report.profile.ceilings if report.profile is not None else ()
    rate = next((item.value * 1e3 for item in measured if item.name == "copy"), design.machine.bytes_per_us)
    lines = []
    for name in dict.fromkeys(names.values()):
        sharing = [index for index, other in names.items() if other == name]
        if name in shown:
            needed = sum(design.estimates[index].own_bytes for index in sharing)
            predicted = sum(design.estimates[index].own_us for index in sharing)
            lines.append(_line(name, needed, predicted, shown[name], rate))
    return lines


def _line(name: str, needed: int, predicted_us: float, us: float, bytes_per_us: float) -> str:
    """One kernel."""
    share = needed / us / bytes_per_us
    place = (
        f"{share:.0%} of the bandwidth of a copy" if share <= 1.02
        else "faster than memory could be: its tensors were still in L2"
    )  # fmt: skip
    expected = needed / predicted_us / bytes_per_us
    return (
        f"- {name}: {story.size(needed)} in {story.time(us)}, {place} (predicted {story.time(predicted_us)}, "
        f"{expected:.0%})."
    )
