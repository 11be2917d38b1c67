"""Verification: fresh draws at the timed shapes, redrawn state, special values; every output compared."""

import secrets
import threading
import time
from collections.abc import Callable

from cuda_tui.evaluation.candidate import Candidate, CandidateProcess, Rejected
from cuda_tui.evaluation.progress import Emit, TrialDone
from cuda_tui.evaluation.reference import Draw, Reference
from cuda_tui.evaluation.report import Flag, Trial, VerifyReport


class TrialPlan:
    """What one trial draws."""

    def __init__(self, label: str, *, redraw_state: bool = False, special: bool = False) -> None:
        self.label = label
        self.redraw_state = redraw_state
        self.special = special


def plan_trials(draws: int) -> list[TrialPlan]:
    """`draws` fresh draws, two of them with redrawn state, and one with NaN and infinities among the inputs.

    State is redrawn before the first call: a candidate that copies parameters when constructed is then found out.
    """
    trials = [TrialPlan("draw 1, state redrawn", redraw_state=True)]
    for number in range(2, draws + 1):
        redrawn = number == draws and draws > 1
        label = f"draw {number}, state redrawn" if redrawn else f"draw {number}"
        trials.append(TrialPlan(label, redraw_state=redrawn))
    return [*trials, TrialPlan("NaN and infinities", special=True)]


class DrawPool:
    """Draws made ahead, with their references ready, each shown to one candidate and then dropped."""

    def __init__(self, reference: Reference, draws: int) -> None:
        self._reference = reference
        self._plans = plan_trials(draws)
        self._ready: list[tuple[TrialPlan, Draw]] = []
        self._lock = threading.Lock()

    def fill(self, cancel: threading.Event | None = None) -> None:
        """Make what is missing for one verification."""
        with self._lock:
            # The answers of a draw live in the oracle that made it.
            if any(draw.generation != self._reference.generation for _, draw in self._ready):
                self._ready = []
            for plan in self._plans[len(self._ready) :]:
                if cancel is not None and cancel.is_set():
                    return
                seed = secrets.randbits(48) if plan.redraw_state else None
                draw = self._reference.draw(state_seed=seed, special=plan.special, cancel=cancel)
                self._ready.append((plan, draw))

    def take(self, cancel: threading.Event | None = None) -> list[tuple[TrialPlan, Draw]]:
        """A whole set; made now where it is not ready."""
        self.fill(cancel)
        with self._lock:
            ready, self._ready = self._ready, []
        return ready


def verify(
    candidate: Candidate,
    reference: Reference,
    pool: DrawPool,
    *,
    emit: Emit,
    cancel: threading.Event | None,
    name_fault: Callable[[Candidate, Draw, Rejected], Rejected],
) -> tuple[VerifyReport, Trial | None, tuple[Flag, ...], tuple[int, ...]]:
    """Run all trials, stopping at the first that fails.

    Returns the report, the failed trial if any, flags, and the seeds that were spent. `name_fault` adds where a fault
    happened to what is said of it. Raises Rejected where the candidate fails other than on a trial.
    """
    began = time.monotonic()
    draws = pool.take(cancel)
    flags: dict[str, Flag] = {}
    trials: list[Trial] = []
    try:
        with candidate.process(cancel=cancel) as running:
            for plan, draw in draws:
                if refused := draw.written.get("refused"):
                    # The reference itself cannot take these inputs, so nothing can be asked of the candidate.
                    text = f'the trial "{plan.label}" was not made: the reference raises {refused}'
                    flags[f"SKIPPED {plan.label}"] = Flag(code="SKIPPED_TRIAL", message=text)
                    continue
                try:
                    trial = _one(running, reference, plan, draw, flags=flags, cancel=cancel)
                except Rejected as rejected:
                    found = name_fault(candidate, draw, rejected)
                    trial = Trial(name=plan.label, checks=(), passed=False, code=found.code, reason=found.reason)
                trials.append(trial)
                emit(TrialDone(name=plan.label, passed=trial.passed, detail=trial.reason or _detail(trial)))
                if not trial.passed:
                    break
        stacked = reference.check_stacks()
        if stacked is not None and all(trial.passed for trial in trials):
            trials.append(stacked)
            emit(TrialDone(name=stacked.name, passed=stacked.passed, detail=stacked.reason))
    finally:
        for _, draw in draws:
            reference.spend(draw)
    compared = sum(len(trial.checks) for trial in trials)
    failed = next((trial for trial in trials if not trial.passed), None)
    if reference.weak:
        whole = set(reference.facts["outputs"]) <= reference.weak
        text = f"{', '.join(sorted(reference.weak))}: no variation from draw to draw beyond rounding"
        code = "DEGENERATE_TASK" if whole else "CONSTANT_OUTPUT"
        flags[code] = Flag(code=code, message=text)
    report = VerifyReport(
        passed=failed is None and compared > 0,
        trials=tuple(trials),
        tensors_compared=compared,
        seconds=time.monotonic() - began,
        not_compared=tuple(reference.facts.get("not_compared", ())),
        reference_dtype=str(reference.facts.get("reference_dtype", "float64")),
    )
    return report, failed, tuple(flags.values()), tuple(draw.seed for _, draw in draws)


def _one(
    running: CandidateProcess,
    reference: Reference,
    plan: TrialPlan,
    draw: Draw,
    *,
    flags: dict[str, Flag],
    cancel: threading.Event | None,
) -> Trial:
    running.set_state(draw)
    outputs, answer = running.run(draw)
    for path, owner in answer["alias"].items():
        flags[f"ALIAS {path}"] = Flag(code="ALIAS", message=f"{path} shares memory with {owner}")
    return reference.compare(draw, outputs, answer, label=plan.label, cancel=cancel)


def _detail(trial: Trial) -> str:
    """The tightest comparison of a trial, in words."""
    tight = max(trial.checks, key=lambda check: float(check.error) / check.limit if check.limit else 0.0, default=None)
    if tight is None:
        return ""
    return f"{tight.output} error {float(tight.error):.1e}, limit {tight.limit:.1e}"
