"""policy → build → verify → measure → attribute; stops at the first failure."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

import msgspec

from cuda_tui.errors import Cancelled
from cuda_tui.evaluation import device_measure, policy, profiler
from cuda_tui.evaluation import measure as measuring
from cuda_tui.evaluation.baselines import Baselines
from cuda_tui.evaluation.bench import LEASE_WAIT_S, Bench
from cuda_tui.evaluation.build import vectorisation
from cuda_tui.evaluation.build.build import Builder
from cuda_tui.evaluation.build.build import build as run_build
from cuda_tui.evaluation.build.plan import BuildOptions
from cuda_tui.evaluation.candidate import Candidate, Rejected
from cuda_tui.evaluation.findings import Findings, summary
from cuda_tui.evaluation.machine import GpuWatch, Place
from cuda_tui.evaluation.memory import TooLittleMemory
from cuda_tui.evaluation.profile.sanitizer import Check, Checked
from cuda_tui.evaluation.profile.sass import Disassembly
from cuda_tui.evaluation.profile.tools import Building, ProfileTools
from cuda_tui.evaluation.progress import Emit, Line
from cuda_tui.evaluation.reference import Draw
from cuda_tui.evaluation.report import (
    BaselineState,
    BuildReport,
    Code,
    Flag,
    Measured,
    NotMeasured,
    Performance,
    Profile,
    Receipt,
    Report,
)
from cuda_tui.evaluation.runtime import Interpreter
from cuda_tui.evaluation.stages import Stages
from cuda_tui.evaluation.verify import verify
from cuda_tui.evaluation.workers import WorkerDied, WorkerFault, WorkerTimedOut
from cuda_tui.gpu import lease
from cuda_tui.words import counted
from cuda_tui.workspace.data import version
from cuda_tui.workspace.workspace import Workspace

STRICT_SHARE = 0.9  # of the time, by authored operators, under the strict library policy
NEGLIGIBLE_SHARE = 0.01

StopAfter: TypeAlias = Literal["build", "verify", "measure"]


class Evaluator:
    """Evaluates the candidate in one workspace; keeps oracle and baselines warm between calls.

    Blocking; calls are serialised. `on_progress` receives records of `evaluation.progress`. `cancel` may be called
    from another thread: the call under way then ends within two seconds, with a report UNVERIFIED(CANCELLED) or,
    where there is no report to return, with Cancelled.
    """

    def __init__(
        self,
        workspace: Workspace,
        *,
        interpreter: Interpreter,
        on_progress: Emit = lambda _: None,
    ) -> None:
        self.workspace = workspace
        self.task = workspace.task
        self.on_progress = on_progress
        self._interpreter = interpreter
        self._place = Place.of(self.task.device, interpreter.environment)
        self._on_gpu = self.task.device.startswith("cuda")
        self._cancel = threading.Event()
        self._bench = Bench(workspace, interpreter=interpreter, cancel=self._cancel)
        self._reference = self._bench.reference
        self._runtime = self._bench.runtime
        building = Building(build=self._build_if_any, vectorisation=self._vectorisation)
        self._tools = ProfileTools(workspace, self._runtime, self._reference, building, cancel=self._cancel)
        self._busy = threading.Lock()
        self._stages = Stages(on_progress)

    # ---- what front ends and tools call

    def warm_up(self) -> None:
        """Start the workers, the draws and the baselines in the background; failures surface in the first call."""
        self._bench.warm_up()

    def check_reference(self) -> None:
        """Load and examine the user's model. Raises ReferenceFault."""
        with self._call():
            self._reference.start(self._cancel)

    def trace(self) -> dict[str, Any]:
        """The reference's operators; with `gpu`, what is known of the task's GPU. Raises ReferenceFault."""
        with self._call():
            return self._trace() | {"gpu": self._place.facts()}

    def build(self) -> BuildReport:
        """Compile the kernels. Errors in the sources are in the report."""
        with self._call():
            return self._build()

    def evaluate(self, *, stop_after: StopAfter = "measure") -> Report:
        """The whole pipeline, or its beginning. Raises ReferenceFault and infrastructure errors, never a verdict."""
        with self._call():
            found = Findings(stages=self._stages, sandbox=self._runtime.rung.summary)
            try:
                return self._evaluate(found, stop_after)
            except Rejected as rejected:
                return found.rejected(rejected.code, rejected.reason)
            except Cancelled:
                self._bench.reset_baselines()
                return found.unverified(Code.CANCELLED, "cancelled", not_measured="cancelled")

    def profile(self, subject: Literal["reference", "candidate"]) -> Profile:
        """Where time goes. Raises ReferenceFault, also where the candidate does not run."""
        with self._call(), self._leased():
            return self._tools.profile(subject, present=self._place.present)

    def sanitize(self, check: Check) -> Checked:
        """One check of compute-sanitizer on the candidate. Raises ReferenceFault where it does not load."""
        with self._call(), self._leased():
            return self._tools.sanitize(check, present=self._place.present)

    def sass(self, kernel: str, line: int | None) -> Disassembly:
        """Machine code of the kernels whose name contains `kernel`; with an excerpt for one source line."""
        with self._call():
            return self._tools.sass(kernel=kernel, line=line)

    def cancel(self) -> None:
        """End the call under way. From any thread."""
        self._cancel.set()

    def close(self) -> None:
        """End all processes, the interpreter's too, and remove the run's files."""
        self._cancel.set()
        self._bench.close()
        self._interpreter.close()

    # ---- the pipeline

    def _evaluate(self, found: Findings, stop_after: StopAfter) -> Report:
        if problems := self.workspace.protected_problems():
            return found.rejected(Code.TAMPER, problems[0], not_measured="not verified")
        with self._stages.stage("policy") as say:
            found.flags = policy.scan(self.workspace.root, protected=self.workspace.protected_names())
            say(counted(len(found.flags), "flag") if found.flags else "nothing to flag")
        if self._has_kernels():
            found.build = self._build()
            if not found.build.succeeded:
                first = found.build.errors[0] if found.build.errors else None
                text = f"{first.place}: {first.message}" if first else "the build failed"
                return found.rejected(Code.BUILD, text, not_measured="not built")
        if message := "compiled; not run" if stop_after == "build" else self._not_run(found.build):
            return found.unverified(Code.COMPILED_ONLY, message, not_measured="not run")
        if message := self._place.cannot_run(found.build.target if found.build and found.build.library else ""):
            return found.rejected(Code.LAUNCH_ERROR, f"launch refused: {message}", not_measured="cannot be launched")
        with self._stages.stage("reference"):
            self._reference.start(self._cancel)
        if self._on_gpu:
            found.flags += policy.unguarded(self.workspace.root, gpus=self._reference.facts["gpus"])
        candidate = Candidate(self.workspace, found.build, self._runtime, self._reference)
        try:
            return self._judge(candidate, found, stop_after)
        finally:
            candidate.close()

    def _judge(self, candidate: Candidate, found: Findings, stop_after: StopAfter) -> Report:
        """Run the candidate: verify, then measure and attribute. Raises Rejected."""
        seeds = self._verify(candidate, found)
        if any(flag.code == Code.DEGENERATE_TASK for flag in found.flags):
            text = (
                "the reference's outputs do not vary with its inputs beyond rounding, so nothing can be proved; "
                "where its precision is low by design, raise error_cap in task.toml"
            )
            return found.unverified(Code.DEGENERATE_TASK, text, not_measured="degenerate task")
        performance: Performance = NotMeasured(reason="not asked for")
        if stop_after == "measure":
            with self._naming_faults(candidate):
                found.flags += self._compile_flags(candidate)
                performance = self._measure(candidate)
                found.profile = self._attribute(candidate, found.build)
            found.flags += self._share_flags(found.profile)
        candidate.check_unchanged()
        return found.passed(performance, self._receipt(candidate, found.build, seeds))

    def _build(self) -> BuildReport:
        with self._stages.stage("build") as say:
            report = run_build(self.workspace, builder=self._builder(), on_progress=self.on_progress)
            say(f"{len(report.compiled)} compiled, {len(report.cached)} up to date")
            return report

    def _verify(self, candidate: Candidate, found: Findings) -> tuple[int, ...]:
        """The seeds that were spent. Raises Rejected where an output is wrong."""
        with self._stages.stage("verify") as say:
            verified = verify(
                candidate,
                self._reference,
                self._bench.pool,
                emit=self.on_progress,
                cancel=self._cancel,
                name_fault=self._tools.name_fault,
            )
            found.verify, failed = verified.report, verified.failed
            found.flags += verified.flags
            tensors = counted(found.verify.tensors_compared, "tensor")
            say(f"{tensors} compared in {counted(len(found.verify.trials), 'trial')}")
            if failed is not None:
                raise Rejected(failed.code or Code.NUM_MISMATCH, f"{failed.name}: {failed.reason}")
        return verified.seeds

    def _measure(self, candidate: Candidate) -> Performance:
        try:
            with self._stages.stage("baselines"):
                self._bench.quiet()
                baselines = self._bench.baselines()
            return self._timed(candidate, baselines)
        except TooLittleMemory as problem:
            return NotMeasured(reason=str(problem))
        except (WorkerFault, WorkerDied, WorkerTimedOut) as fault:
            # The candidate's own faults are verdicts; what arrives here is a baseline's.
            self._bench.reset_baselines()
            return NotMeasured(reason=f"a baseline failed while it was timed: {fault}"[:500])

    def _timed(self, candidate: Candidate, baselines: Baselines) -> Measured:
        sides = (candidate, self._reference, baselines)
        with (
            self._stages.stage("measure") as say,
            lease(self._place.lease, wait_s=LEASE_WAIT_S, on_wait=self._say_waiting, cancel=self._cancel),
        ):
            if self._on_gpu:
                with GpuWatch(self._place, name=self.task.device) as watch:
                    found = device_measure.measure(*sides, watch=watch, emit=self.on_progress, cancel=self._cancel)
                say(summary(found))
                return found
            measured = measuring.measure(*sides, emit=self.on_progress, cancel=self._cancel)
            threads = measuring.all_threads(*sides, cancel=self._cancel)
            say(summary(measured))
            if isinstance(threads, BaselineState):
                return msgspec.structs.replace(measured, unavailable=(*measured.unavailable, threads))
            return msgspec.structs.replace(measured, all_threads=threads)

    def _compile_flags(self, candidate: Candidate) -> tuple[Flag, ...]:
        """Whether the candidate can stand in a larger model that is compiled. It never rejects."""
        with self._stages.stage("compile check") as say, self._drawn() as draw:
            try:
                with candidate.process(cancel=self._cancel) as running:
                    running.set_state(draw)
                    reason = running.breaks_compile(draw)
            except Rejected as rejected:
                reason = rejected.reason
            say(f"breaks torch.compile: {reason}" if reason else "one graph under torch.compile")
        return (Flag(code="COMPILE", message=f"breaks torch.compile: {reason}"),) if reason else ()

    @contextmanager
    def _drawn(self) -> Iterator[Draw]:
        draw = self._reference.draw(cancel=self._cancel)
        try:
            yield draw
        finally:
            self._reference.spend(draw)

    @contextmanager
    def _naming_faults(self, candidate: Candidate) -> Iterator[None]:
        """A fault of a kernel inside is told with the kernel's name."""
        try:
            yield
        except Rejected as rejected:
            raise self._tools.name_timed_fault(candidate, rejected) from None

    def _attribute(self, candidate: Candidate, build: BuildReport | None) -> Profile:
        with self._stages.stage("attribute") as say:
            profile = self._tools.attribute(candidate, build)
            what = "kernels" if self._on_gpu else "operators"
            say(f"{profiler.authored_share(profile):.0%} of the time in the candidate's own {what}")
            return profile

    def _share_flags(self, profile: Profile) -> tuple[Flag, ...]:
        if not profile.rows:
            text = "nobody knows whose kernels carry the time: " + "; ".join(profile.notes)
            return (Flag(code="KERNEL_SHARE", message=text),)
        share = profiler.authored_share(profile)
        if self.task.library_policy == "strict" and share < STRICT_SHARE:
            raise Rejected(
                Code.KERNEL_SHARE,
                f"authored kernels carry {share:.0%} of the time, strict policy wants {STRICT_SHARE:.0%}",
            )
        if self.task.library_policy == "vendor":
            text = "the vendor policy is not enforced by this version: look at the shares in the profile"
            return (Flag(code="POLICY", message=text),)
        if share < NEGLIGIBLE_SHARE:
            return (Flag(code="KERNEL_SHARE", message="the candidate's own operators carry under 1% of the time"),)
        return ()

    # ---- pieces

    def _say_waiting(self, text: str) -> None:
        self.on_progress(Line(source="measure", text=text))

    def _trace(self) -> dict[str, Any]:
        trace: dict[str, Any] = self._reference.ask("trace", cancel=self._cancel)["trace"]
        return trace

    def _vectorisation(self) -> tuple[str, ...]:
        """What the compiler says of each loop."""
        return vectorisation.report(self.workspace, builder=self._builder())

    def _build_if_any(self) -> BuildReport | None:
        return self._build() if self._has_kernels() else None

    @contextmanager
    def _leased(self) -> Iterator[None]:
        """Profilers on a GPU would disturb whoever measures on it; on the CPU nothing is leased."""
        if not self._on_gpu or not self._place.present:
            yield
            return
        self._bench.quiet()
        with lease(self._place.lease, wait_s=LEASE_WAIT_S, on_wait=self._say_waiting, cancel=self._cancel):
            yield

    def _builder(self) -> Builder:
        return Builder(
            python=self._runtime.python,
            env=self._runtime.environment,
            run=self._runtime.run_command(self.workspace.root),
            options=BuildOptions(build_dir=str(self._runtime.build_folder)),
            cancel=self._cancel,
            cache_folder=self._runtime.cache,
        )

    def _has_kernels(self) -> bool:
        folder = self.workspace.root / "kernels"
        return any(path.suffix in {".cpp", ".cc", ".cu"} for path in folder.rglob("*"))

    def _not_run(self, build: BuildReport | None) -> str:
        """Why the kernels are compiled and not run; empty where they are run."""
        if not self._on_gpu:
            return ""
        if reason := self._runtime.no_gpu:
            done = "compiled" if build is None or build.library is None else "compiled and linked"
            return f"{done}; {reason}"
        if build is not None and build.library is None:
            return "compiled and not linked: see the build's log"
        return ""

    def _receipt(self, candidate: Candidate, build: BuildReport | None, seeds: tuple[int, ...]) -> Receipt:
        return Receipt(
            files=candidate.hashes,
            library_sha256=build.library_sha256 if build else None,
            seeds=seeds,
            versions=self._runtime.zygote.versions | {"cuda-tui": version()},
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    @contextmanager
    def _call(self) -> Iterator[None]:
        with self._busy:
            self._cancel.clear()
            self._stages = Stages(self.on_progress)
            yield
