"""What the autopilot tries on the CPU once all groups are fused: fewer groups, other blocks, values computed again."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cuda_tui.autopilot import story
from cuda_tui.autopilot.cpp_nest import Tuning
from cuda_tui.autopilot.design import Candidate, Design
from cuda_tui.autopilot.ir import Unfusible

if TYPE_CHECKING:
    from cuda_tui.autopilot.strategy import Part, Strategy

TRIES = 3  # measurements spent on tuning


def tune(strategy: "Strategy", design: Design) -> "Part":
    """Measure a few changes of the best candidate so far."""
    tried = 0
    for change, idea in _variants(design, strategy.trials[-1].candidate):
        best = strategy.best()
        if best is None or tried == TRIES:
            return
        candidate = replace(best.candidate, **change)
        if not _differs(design, candidate, best.candidate):
            continue
        text = f"{idea}\nSo far: {story.verdict_line(strategy.trials[-1].report)}"
        strategy.note(text)
        tried += 1
        yield from strategy.evaluate(design, candidate, text=text, label=idea.split(":")[0].lower())
        if strategy.refused:
            return


def _differs(design: Design, candidate: Candidate, best: Candidate) -> bool:
    """Whether the change reaches the code; one that cannot be written is found out when it is."""
    try:
        return design.write(candidate).files != design.write(best).files
    except Unfusible:
        return candidate != best


def _variants(design: Design, first: Candidate) -> list[tuple[dict[str, Any], str]]:
    """Changes worth a measurement, the most promising first."""
    found: list[tuple[dict[str, Any], str]] = []
    for index in first.groups:
        plan = design.groups[index].plan
        if plan.columns is not None:
            for block in (64, 1024):
                change = {"tuning": ((index, Tuning(block=block)),)}
                found.append(
                    (
                        change,
                        f"Column block {block}: {design.names[index]} carries {block} columns at a "
                        f"time, so that its running values fit L1 with room to spare or loops run longer.",
                    )
                )
        elif plan.passes > 1:
            found.append(
                (
                    {"tuning": ((index, Tuning(keep=False)),)},
                    f"Recompute: {design.names[index]} computes its values again in the last walk over a row "
                    f"instead of keeping them.",
                )
            )
    small = [index for index in first.groups if design.estimates[index].saved_us < 0.02 * design.whole_us]
    if small and len(small) < len(first.groups):
        names = ", ".join(design.names[index] for index in small)
        kept = tuple(index for index in first.groups if index not in small)
        found.insert(
            0,
            (
                {"groups": kept, "tuning": ()},
                f"Without small groups: {names} should gain little, and each of our calls costs a few "
                f"microseconds; PyTorch may do them as well.",
            ),
        )
    return found
