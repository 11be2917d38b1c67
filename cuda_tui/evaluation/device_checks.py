"""What a measurement on a GPU must not let through: each check raises Rejected with the fact."""

import secrets
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cuda_tui.evaluation.answers import Prepared
from cuda_tui.evaluation.candidate import Rejected, accept_timed
from cuda_tui.evaluation.report import BaselineState, Code

if TYPE_CHECKING:
    from cuda_tui.evaluation.device_measure import Field, Process

MOST_SETS = 64
CHECKED_CALLS = 2  # of one slice of each candidate process
# Processor time of a process's other threads over all its slices: in all, and as a share; honest ones use next to none.
FOREIGN_US, FOREIGN_SHARE = 30_000, 0.1
PROBE = 1.05  # our own kernel beside the candidate over the same beside eager
COPIES = frozenset({"memcpy", "memset"})


def check_clock(answer: dict[str, Any], wall_s: float, prepared: Prepared) -> None:
    """The device time of a slice cannot be more than it took by our clock, nor its spans be no times."""
    spans: list[float] = answer["spans_us"]
    calls = prepared.graph.calls if prepared.graph else 1
    if not spans or min(spans) <= 0 or sum(spans) * calls > 1e6 * wall_s:
        raise Rejected(Code.CLOCK, f"a slice of {wall_s * 1e3:.1f} ms by our clock holds spans that do not fit into it")


def check_audits(candidates: "list[Process]", eager: "list[Process]") -> list[str]:
    """What the driver says of the very graphs that are timed. Returns notes."""
    usual = eager[0].prepared.graph
    assert usual is not None
    for process in candidates:
        facts = process.prepared.graph
        assert facts is not None
        audit = facts.audit
        if audit.kinds.get("host", 0) > usual.audit.kinds.get("host", 0):
            raise Rejected(Code.DEFERRED_WORK, "the captured call runs code on the host while the GPU is timed")
        if not audit.alike:
            raise Rejected(Code.PHASE_SWITCH, "the calls of one window launch different kernels")
        if audit.least == 0 and usual.audit.least > 0:
            raise Rejected(Code.DEFERRED_WORK, "the captured call is empty: its work is not on PyTorch's stream")
        if set(audit.kinds) <= COPIES and not set(usual.audit.kinds) <= COPIES:
            raise Rejected(Code.STALE_RESULT, "the captured call only copies memory: its result was made before")
    programmatic = sum(process.prepared.graph.audit.programmatic for process in candidates if process.prepared.graph)
    return ["kernels of one call overlap by programmatic launches; calls do not"] if programmatic else []


def uncaptured(sides: "dict[str, list[Process]]") -> tuple[BaselineState, ...]:
    """Baselines that were meant to be captured and cannot be."""
    return tuple(
        BaselineState(name=name, reason=f"not capturable, see its wall time: {processes[0].prepared.not_capturable}")
        for name, processes in sides.items()
        if processes[0].prepared.not_capturable
    )


def check_company(candidates: "list[Process]", eager: "list[Process]", *, clock_is_steady: bool = True) -> None:
    """Nothing else of the candidate's may run while it is timed: no thread of its, no work beside the graph.

    Under a power limit the clock itself differs from side to side, and our kernel's time says nothing.
    """
    usual_us = max(process.foreign_us for process in eager)
    for process in candidates:
        if process.foreign_us > max(FOREIGN_US, FOREIGN_SHARE * process.recorded_us, 2 * usual_us):
            seconds = process.foreign_us / 1e6
            text = f"other threads of the candidate's process ran for {seconds:.2f} s while its graph was timed"
            raise Rejected(Code.DEFERRED_WORK, text)
    usual_probe = statistics.median(value for process in eager for value in process.probes_us)
    probe = statistics.median(value for process in candidates for value in process.probes_us)
    if clock_is_steady and probe > PROBE * usual_probe:
        text = f"a kernel of ours takes {probe / usual_probe:.2f} times as long beside the candidate as beside eager"
        raise Rejected(Code.DEFERRED_WORK, f"{text}: something else of its runs on the GPU")


def check_replay(field: "Field", process: "Process", seed: int) -> None:
    """Outputs of calls of the last replay, chosen now, against the reference on the inputs that those calls had."""
    facts = process.prepared.graph
    assert facts is not None
    # Different ones: what a call returned must share no memory with what another did.
    for number in secrets.SystemRandom().sample(range(facts.calls), min(CHECKED_CALLS, facts.calls)):
        outputs, answer = field.running[process.number].export_replayed(number)
        made_from = {"sets": facts.sets, "number": number % facts.sets, "seed": seed, "replay": facts.replays - 1}
        _compare(field, outputs, answer, made_from)


def check_batch(field: "Field", process: "Process", seed: int) -> None:
    """The output of the last call of a batch."""
    outputs, answer = field.running[process.number].export_batched()
    made_from = answer["made_from"] | {"seed": seed}
    _compare(field, outputs, answer, made_from)


def _compare(field: "Field", outputs: Path, answer: dict[str, Any], made_from: dict[str, int]) -> None:
    reference, draw = field.reference, field.draw
    reference.ask("rewrite", name=draw.name, changing=field.changing, made_from=made_from)
    trial = reference.compare(draw, outputs, answer, label="timed call")
    accept_timed(trial)


def check_small_outputs(field: "Field") -> None:
    """Small outputs of all checked calls together: one alone has no spread to be measured by."""
    stacked = field.reference.check_stacks(timed=True)
    if stacked is not None:
        accept_timed(stacked)
