"""Device measurement without a device: sides that say what times they take, and what the measurement makes of them."""

import contextlib
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from cuda_tui.evaluation import device_measure
from cuda_tui.evaluation.answers import Prepared
from cuda_tui.evaluation.baselines import Baselines
from cuda_tui.evaluation.candidate import Candidate, Rejected, read_prepared
from cuda_tui.evaluation.device_checks import check_audits, check_clock, check_company, check_replay
from cuda_tui.evaluation.device_measure import Process, measure
from cuda_tui.evaluation.machine import GpuWatch, Place
from cuda_tui.evaluation.progress import Progress, SliceDone
from cuda_tui.evaluation.reference import Reference
from cuda_tui.evaluation.report import BaselineState, Code, Measured, Outcome, Trial
from cuda_tui.evaluation.statistics import bootstrap_ratio, welch_ratio

KERNELS = {"kinds": {"kernel": 20}, "kernels": {"k": 1}, "alike": True, "least": 1, "programmatic": 0}


def prepared(**audit: Any) -> dict[str, Any]:
    """What a process says that has captured its model."""
    graph = {"sets": 12, "calls": 20, "replays": 7, "audit": KERNELS | audit}
    return {"not_capturable": "", "graph": graph}


class Simulated:
    """One process whose call takes `us` with 0.1% of noise."""

    def __init__(self, us: float, answer: dict[str, Any] | None = None, *, ticks: int = 0, probe: float = 3.0) -> None:
        self.us, self.answer, self.ticks, self.probe = us, answer or prepared(), ticks, probe
        self.noise = random.Random(us)

    def _one(self) -> float:
        return self.us * self.noise.gauss(1.0, 0.001)

    def graph_slice(self, seed: int, record: bool) -> dict[str, Any]:
        spans = [self._one() * 1e-3 for _ in range(6)]  # thousandths, so that a slice fits into no time at all
        return {"spans_us": spans, "total_ns": 1, "foreign_us": self.ticks, "probe_us": self.probe}

    def batch(self, seed: int) -> dict[str, Any]:
        return {"event_us": self._one(), "wall_us": 3 * self._one(), "total_ns": 1}

    # what the candidate's handle offers besides

    def set_state(self, draw: object) -> None:
        return

    def prepare_on_gpu(self, draw: object, changing: list[bool], how: str) -> Prepared:
        return read_prepared(self.answer)

    def export_replayed(self, number: int) -> tuple[Path, dict[str, Any]]:
        return Path("out"), {"number": number}

    def export_batched(self) -> tuple[Path, dict[str, Any]]:
        return Path("out"), {"made_from": {"sets": 3, "number": 0, "seed": 1, "replay": 0}}


class SimulatedCandidate:
    def __init__(self, **fields: Any) -> None:
        self.fields = fields
        self.started = 0

    @contextlib.contextmanager
    def process(self, *, cancel: threading.Event | None = None) -> Iterator[Simulated]:
        self.started += 1
        yield Simulated(**self.fields)


class SimulatedBaseline:
    def __init__(self, name: str, us: float, *, wall_only: bool = False, answer: dict[str, Any] | None = None) -> None:
        self.name, self.wall_only = name, wall_only
        self.workers = [Simulated(us, answer) for _ in range(2)]
        self.released = 0

    @property
    def processes(self) -> int:
        return len(self.workers)

    def ask(self, number: int, operation: str, **fields: Any) -> dict[str, Any]:
        worker = self.workers[number]
        if operation == "prepare_on_gpu":
            return worker.answer
        if operation == "release":
            self.released += 1
            return {}
        answer: dict[str, Any] = getattr(worker, operation)(
            **{key: fields[key] for key in ("seed", "record") if key in fields}
        )
        return answer


class SimulatedBaselines:
    def __init__(self, *baselines: SimulatedBaseline) -> None:
        self.all = list(baselines)

    def ready(self) -> list[SimulatedBaseline]:
        return self.all

    def enlarge(self, names: tuple[str, ...], count: int, *, cancel: threading.Event | None) -> None:
        for baseline in self.all:
            if baseline.name in names:
                baseline.workers += [Simulated(baseline.workers[0].us) for _ in range(count - baseline.processes)]

    def unavailable(self) -> tuple[BaselineState, ...]:
        return ()

    def note(self, name: str) -> str:
        return ""


class SimulatedReference:
    """Judges by a verdict given beforehand, and remembers what it was asked to make anew."""

    facts: dict[str, Any] = {"changing": [True]}  # noqa: RUF012

    def __init__(self, trial: Trial | None = None) -> None:
        self.trial = trial or Trial(name="timed call", checks=(), passed=True)
        self.rewritten: list[dict[str, int]] = []
        self.spent = 0
        self.stacked: Trial | None = None

    def draw(self, *, cancel: threading.Event | None) -> Any:
        return type("Draw", (), {"name": "draw-1", "seed": 5})()

    def spend(self, draw: object) -> None:
        self.spent += 1

    def ask(self, operation: str, **fields: Any) -> dict[str, Any]:
        self.rewritten.append(fields["made_from"])
        return {}

    def check_stacks(self, *, timed: bool) -> Trial | None:
        return self.stacked

    def compare(self, draw: object, outputs: Path, answer: dict[str, Any], *, label: str) -> Trial:
        return self.trial


def run(
    candidate: SimulatedCandidate, *baselines: SimulatedBaseline, reference: SimulatedReference | None = None
) -> tuple[Measured, list[Progress]]:
    """Measure the simulation."""
    progress: list[Progress] = []
    found = measure(
        cast(Candidate, candidate),
        cast(Reference, reference or SimulatedReference()),
        cast(Baselines, SimulatedBaselines(*baselines)),
        watch=GpuWatch(Place(lease="gpu"), name="cuda"),
        emit=progress.append,
    )
    return found, progress


def test_identical_times_are_within_one_percent_and_a_gain_is_found() -> None:
    found, progress = run(
        SimulatedCandidate(us=10.0), SimulatedBaseline("eager", 10.0), SimulatedBaseline("compile", 10.3)
    )
    eager, compiled = found.ratio_to("eager"), found.ratio_to("compile")
    assert eager is not None
    assert compiled is not None
    assert eager.outcome is Outcome.SAME
    assert compiled.outcome is Outcome.FASTER
    assert found.clock == "graph"
    assert len(found.candidate.process_medians_us) == device_measure.PROCESSES
    assert [timing.name for timing in found.wall] == ["candidate", "eager", "compile"]
    slices = [item for item in progress if isinstance(item, SliceDone) and item.side == "candidate"]
    assert len(slices) == device_measure.PROCESSES * device_measure.ROUNDS


def test_timed_outputs_are_checked_on_inputs_of_seeds_sent_after_the_capture() -> None:
    reference = SimulatedReference()
    run(SimulatedCandidate(us=10.0), SimulatedBaseline("eager", 10.0), reference=reference)
    assert len(reference.rewritten) == 2 * device_measure.PROCESSES
    assert len({made["seed"] for made in reference.rewritten}) == device_measure.PROCESSES
    assert all(made["replay"] == 6 and made["sets"] == 12 for made in reference.rewritten)
    assert reference.spent == 1


def test_calls_that_are_checked_are_different_ones_however_few_there_are() -> None:
    numbers: list[int] = []

    class Noting(Simulated):
        def export_replayed(self, number: int) -> tuple[Path, dict[str, Any]]:
            numbers.append(number)
            return super().export_replayed(number)

    few = prepared()
    few["graph"] |= {"calls": 2, "sets": 2}
    for _ in range(20):
        running = Noting(10.0, few)
        field = type("Field", (), {})()
        field.running, field.reference, field.changing = [running], SimulatedReference(), [True]
        field.draw = field.reference.draw(cancel=None)
        check_replay(field, process(few), seed=1)
    assert all(sorted(numbers[start : start + 2]) == [0, 1] for start in range(0, len(numbers), 2))


def test_wrong_output_of_a_timed_call_rejects() -> None:
    wrong = Trial(name="timed call", checks=(), passed=False, code=Code.NUM_MISMATCH, reason="out: error 1")
    with pytest.raises(Rejected) as caught:
        run(SimulatedCandidate(us=10.0), SimulatedBaseline("eager", 10.0), reference=SimulatedReference(wrong))
    assert caught.value.code is Code.STALE_RESULT


def test_small_outputs_of_timed_calls_are_judged_together() -> None:
    reference = SimulatedReference()
    reference.stacked = Trial(name="small", checks=(), passed=False, code=Code.NUM_MISMATCH, reason="out: error 1")
    with pytest.raises(Rejected) as caught:
        run(SimulatedCandidate(us=10.0), SimulatedBaseline("eager", 10.0), reference=reference)
    assert caught.value.code is Code.STALE_RESULT


def test_baselines_are_freed_of_their_graphs_however_a_measurement_ends() -> None:
    eager = SimulatedBaseline("eager", 10.0)
    wrong = Trial(name="timed call", checks=(), passed=False, code=Code.NUM_MISMATCH, reason="out: error 1")
    with pytest.raises(Rejected):
        run(SimulatedCandidate(us=10.0), eager, reference=SimulatedReference(wrong))
    assert eager.released == 2


def test_mode_with_graphs_of_its_own_is_shown_by_wall_time_alone() -> None:
    alone = {"not_capturable": "", "graph": None}
    found, _ = run(
        SimulatedCandidate(us=10.0),
        SimulatedBaseline("eager", 10.0),
        SimulatedBaseline("compile reduce-overhead", 9.0, wall_only=True, answer=alone),
    )
    assert [ratio.baseline for ratio in found.ratios] == ["eager"]
    assert "compile reduce-overhead" in [timing.name for timing in found.wall]


def test_what_cannot_be_captured_is_measured_in_batches_by_seven_processes_a_side() -> None:
    refusing = {"not_capturable": "operation not permitted when stream is capturing", "graph": None}
    candidate = SimulatedCandidate(us=10.0, answer=refusing)
    found, _ = run(candidate, SimulatedBaseline("eager", 10.2), SimulatedBaseline("compile", 30.0))
    assert found.clock == "events"
    assert not found.certified
    assert "the candidate cannot be captured: operation not permitted" in found.notes[0]
    assert len(found.baselines[0].process_medians_us) == device_measure.BATCH_PROCESSES
    eager, compiled = found.ratios
    assert eager.outcome is Outcome.INCONCLUSIVE  # 2% is within what identical code may differ by here
    assert compiled.outcome is Outcome.FASTER
    assert candidate.started == device_measure.PROCESSES + device_measure.BATCH_PROCESSES


def process(answer: dict[str, Any], **fields: Any) -> Process:
    """A process as the checks see it."""
    return Process("candidate", 0, lambda operation, **_: {}, read_prepared(answer), **fields)


@pytest.mark.parametrize(
    ("audit", "code"),
    [
        ({"kinds": {"kernel": 20, "host": 20}}, Code.DEFERRED_WORK),
        ({"kinds": {"memcpy": 20}, "kernels": {}}, Code.STALE_RESULT),
        ({"kinds": {}, "kernels": {}, "least": 0}, Code.DEFERRED_WORK),
        ({"alike": False}, Code.PHASE_SWITCH),
    ],
)
def test_graph_that_does_not_do_the_work_is_rejected(audit: dict[str, Any], code: Code) -> None:
    with pytest.raises(Rejected) as caught:
        check_audits([process(prepared(**audit))], [process(prepared())])
    assert caught.value.code is code


def test_programmatic_launches_are_noted_and_memory_copies_are_fine_where_eager_copies() -> None:
    copies = prepared(kinds={"memcpy": 20}, kernels={})
    assert check_audits([process(copies)], [process(copies)]) == []
    assert "overlap" in check_audits([process(prepared(programmatic=3))], [process(prepared())])[0]


def test_threads_and_kernels_beside_the_timed_graph_are_rejected() -> None:
    eager = [process(prepared(), probes_us=[3.0, 3.01])]
    check_company([process(prepared(), probes_us=[3.02], foreign_us=100, recorded_us=1e5)], eager)
    with pytest.raises(Rejected, match="other threads"):
        check_company([process(prepared(), probes_us=[3.0], foreign_us=380_000, recorded_us=1e6)], eager)
    with pytest.raises(Rejected, match="something else"):
        check_company([process(prepared(), probes_us=[3.3])], eager)


def test_kernel_beside_the_graph_says_nothing_while_the_clock_is_held_down() -> None:
    eager = [process(prepared(), probes_us=[3.0])]
    check_company([process(prepared(), probes_us=[3.6])], eager, clock_is_steady=False)


def test_measurement_by_graphs_after_one_by_batches_uses_as_many_baselines_as_it_needs() -> None:
    refusing = {"not_capturable": "it synchronises", "graph": None}
    eager = SimulatedBaseline("eager", 10.0)
    run(SimulatedCandidate(us=10.0, answer=refusing), eager)
    assert eager.processes == device_measure.BATCH_PROCESSES
    found, _ = run(SimulatedCandidate(us=10.0), eager)
    assert found.clock == "graph"
    assert len(found.baselines[0].process_medians_us) == device_measure.PROCESSES


def test_baseline_of_one_process_has_no_interval_and_is_shown_by_wall_time() -> None:
    refusing = {"not_capturable": "it synchronises", "graph": None}
    alone = SimulatedBaseline("compile max-autotune", 9.0)
    alone.workers = alone.workers[:1]
    found, _ = run(SimulatedCandidate(us=10.0, answer=refusing), SimulatedBaseline("eager", 10.0), alone)
    assert [ratio.baseline for ratio in found.ratios] == ["eager"]
    assert "compile max-autotune" in [timing.name for timing in found.wall]


def test_spans_that_do_not_fit_into_the_slice_are_no_times() -> None:
    found = read_prepared(prepared())
    check_clock({"spans_us": [10.0] * 6}, 0.01, found)
    for spans in ([1000.0] * 6, [], [-1.0] * 6):
        with pytest.raises(Rejected, match="spans"):
            check_clock({"spans_us": spans}, 0.01, found)


def test_bootstrap_is_the_same_every_time_and_spans_the_processes() -> None:
    pairs = [[(10.0, 9.0)] * 4, [(10.0, 9.1)] * 4, [(10.0, 9.2)] * 4, [(10.0, 9.05)] * 4]
    first = bootstrap_ratio("eager", pairs)
    assert first == bootstrap_ratio("eager", pairs)
    assert 10 / 9.2 < first.low < first.value < first.high < 10 / 9.0


def test_side_of_two_processes_that_disagree_widens_the_interval() -> None:
    candidate = [10.0, 10.1, 9.9, 10.0, 10.05, 9.95, 10.0]
    wide = welch_ratio("eager", [10.0, 12.0], candidate, margin=0.05)
    narrow = welch_ratio("eager", [11.9, 12.0, 12.1, 12.0, 12.0, 11.95, 12.05], candidate, margin=0.05)
    assert wide.outcome is Outcome.INCONCLUSIVE
    assert narrow.outcome is Outcome.FASTER
