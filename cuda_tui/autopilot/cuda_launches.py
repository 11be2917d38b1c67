"""Chooses the launches of all CUDA kernels by measurement: each round tries another launch for every kernel at once.

A measurement also says how long each kernel took, so one round judges one launch of each of them. In the end every
kernel gets its best one, and that combination is measured afresh.
"""

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cuda_tui.autopilot import story
from cuda_tui.autopilot.cuda_shape import CudaTuning
from cuda_tui.autopilot.cuda_variants import Variant, variants
from cuda_tui.autopilot.design import Candidate, Design
from cuda_tui.evaluation.report import Measured, Report, Verdict

if TYPE_CHECKING:
    from cuda_tui.autopilot.strategy import Part, Strategy

SINGLE_BYTES = 1 << 22  # single operators are tried from this size
TRIES = 2  # measurements of other launches or groups; the best combination of launches is one more
BUDGET_S = 90.0  # of evaluation, for these
BETTER = 0.97  # a launch replaces the rules' own where it takes at most this share of its time
WORTH = 0.01  # of a call: what other launches must save together to be measured as a candidate


def kernel_times(report: Report, names: list[str]) -> dict[str, float]:
    """Microseconds a call in each named kernel (all its passes), of those that the report's profile shows."""
    rows = report.profile.rows if report.profile is not None else ()
    found: dict[str, float] = {}
    for name in names:
        own = re.compile(rf"(?<!\w){re.escape(name)}_(kernel|pass\d+|join)(?!\w)")
        times = [row.total_us for row in rows if own.search(row.name)]
        if times:
            found[name] = sum(times)
    return found


@dataclass
class Launches:
    """Launches tried so far, for each group of the best candidate."""

    design: Design
    start: Candidate
    times: dict[int, dict[CudaTuning, float]] = field(default_factory=dict)

    def record(self, candidate: Candidate, report: Report) -> None:
        """What a measurement says about the launches of a candidate."""
        if report.verdict is not Verdict.PASSED:
            return
        names = self.design.kernel_names(candidate)
        shown = kernel_times(report, list(names.values()))
        sharing = list(names.values())
        tuning = dict(candidate.tuning)
        for index, name in names.items():
            if name in shown:
                own = tuning.get(index, self.design.rules[index])
                assert isinstance(own, CudaTuning)
                self.times.setdefault(index, {})[own] = shown[name] / sharing.count(name)

    def best(self) -> Candidate:
        """Every kernel with its best launch; the rules' own unless another is clearly better."""
        chosen = []
        for index, times in sorted(self.times.items()):
            fastest = min(times, key=lambda tuning: times[tuning])
            own = self.own(index)
            if fastest != own and own in times and times[fastest] <= BETTER * times[own]:
                chosen.append((index, fastest))
        kept = {index: item for index, item in self.start.tuning if index not in dict(chosen)}
        return replace(self.start, tuning=tuple(sorted([*kept.items(), *chosen], key=lambda item: item[0])))

    def own(self, index: int) -> CudaTuning:
        """The launch of a group in the candidate that all began with."""
        found = dict(self.start.tuning).get(index, self.design.rules[index])
        assert isinstance(found, CudaTuning)
        return found

    def saved_us(self, candidate: Candidate) -> float:
        """What its launches save of a call, against those of the start."""
        return sum(
            self.times[index][self.own(index)] - self.times[index][tuning]
            for index, tuning in candidate.tuning
            if isinstance(tuning, CudaTuning) and tuning != self.own(index)
        )


def tune(strategy: "Strategy", design: Design) -> "Part":
    """Single operators as well, then rounds of launches; leaves the best combination measured."""
    before = len(strategy.trials)
    yield from _single_operators(strategy, design)
    best = strategy.best()
    if best is not None and not strategy.refused:
        launches = Launches(design, best.candidate)
        launches.record(best.candidate, best.report)
        yield from _rounds(strategy, launches, before)
        yield from _combined(strategy, launches, best.report)


def _spent_s(strategy: "Strategy", since: int) -> float:
    return sum(stage.seconds for trial in strategy.trials[since:] for stage in trial.report.stages)


def _single_operators(strategy: "Strategy", design: Design) -> "Part":
    """One operator alone saves no bytes, but PyTorch's own kernel for it may be further from the bandwidth."""
    first = strategy.trials[-1].candidate
    single = tuple(
        index for index, item in enumerate(design.estimates)
        if index not in first.groups and index not in strategy.dropped and item.own_bytes >= SINGLE_BYTES
    )  # fmt: skip
    if not single:
        return
    names = ", ".join(design.names[index] for index in single)
    text = (
        f"Single operators as well ({names}): they move no fewer bytes than PyTorch's own kernels, but may come closer "
        f"to the bandwidth.\nSo far: {story.verdict_line(strategy.trials[-1].report)}"
    )
    strategy.note(text)
    wider = replace(first, groups=tuple(sorted((*first.groups, *single))))
    yield from strategy.evaluate(design, wider, text=text, label="single operators as well")


def _rounds(strategy: "Strategy", launches: Launches, before: int) -> "Part":
    """Another launch of every kernel in each round."""
    design, start = launches.design, launches.start
    clusters = design.machine.clusters and not start.tuning  # else they were refused
    offered = {index: variants(design.groups[index].plan, clusters=clusters) for index in start.groups}
    number = 0
    while len(strategy.trials) - before < TRIES and _spent_s(strategy, before) < BUDGET_S:
        chosen = {index: listed[number] for index, listed in offered.items() if number < len(listed)}
        if not chosen:
            return
        number += 1
        others = {**dict(start.tuning), **{index: item.tuning for index, item in chosen.items()}}
        candidate = replace(start, tuning=tuple(sorted(others.items(), key=lambda item: item[0])))
        text = _idea(design, number, chosen, strategy)
        strategy.note(text)
        report: Any = yield from strategy.evaluate(design, candidate, text=text, label=f"launches, round {number}")
        if report is None:
            return
        launches.record(candidate, report)


def _combined(strategy: "Strategy", launches: Launches, start: Report) -> "Part":
    """Every kernel with its best launch, where that saves enough to be seen."""
    best = launches.best()
    call_us = start.performance.candidate.median_us if isinstance(start.performance, Measured) else float("inf")
    if launches.saved_us(best) < WORTH * call_us or any(trial.candidate == best for trial in strategy.trials):
        return
    changed = [(index, tuning) for index, tuning in best.tuning if tuning != launches.own(index)]
    said = "; ".join(_gain(launches, index, tuning) for index, tuning in changed)
    tried = len(strategy.trials)
    yield from strategy.evaluate(
        launches.design, best, text=f"Each kernel with the launch that was fastest for it: {said}.",
        label="the best launch of each kernel",
    )  # fmt: skip
    for trial in strategy.trials[tried:]:
        trial.favoured = True


def _idea(design: Design, number: int, chosen: dict[int, Variant], strategy: "Strategy") -> str:
    lines = [f"Other launches, round {number}; the profile of the measurement says what each did:"]
    lines += [f"- {design.names[index]} {variant.reason}" for index, variant in chosen.items()]
    lines.append(f"So far: {story.verdict_line(strategy.trials[-1].report)}")
    return "\n".join(lines)


def _gain(launches: Launches, index: int, tuning: Any) -> str:
    times = launches.times[index]
    return f"{launches.design.names[index]} {story.time(times[launches.own(index)])} to {story.time(times[tuning])}"
