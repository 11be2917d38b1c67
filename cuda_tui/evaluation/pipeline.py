"""policy → build → verify → measure → attribute; stops at the first failure."""

import importlib.metadata
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

import msgspec

from cuda_tui.errors import Cancelled, InfrastructureError, ReferenceFault
from cuda_tui.evaluation import measure as measuring
from cuda_tui.evaluation import policy, profiler
from cuda_tui.evaluation.baselines import Baselines
from cuda_tui.evaluation.build import vectorisation
from cuda_tui.evaluation.build.build import Builder
from cuda_tui.evaluation.build.build import build as run_build
from cuda_tui.evaluation.build.plan import BuildOptions
from cuda_tui.evaluation.build.warm import warm_header
from cuda_tui.evaluation.candidate import Candidate, Rejected
from cuda_tui.evaluation.progress import Line, Progress, StageBegan, StageDone
from cuda_tui.evaluation.reference import Reference
from cuda_tui.evaluation.report import (
    BuildReport,
    Code,
    Flag,
    Measured,
    NotMeasured,
    Performance,
    Profile,
    Receipt,
    Report,
    StageTiming,
    Verdict,
    VerifyReport,
)
from cuda_tui.evaluation.runtime import Interpreter, Runtime
from cuda_tui.evaluation.verify import DrawPool, verify
from cuda_tui.gpu import lease
from cuda_tui.workspace.workspace import Workspace

OnProgress: TypeAlias = Callable[[Progress], None]
LEASE_WAIT_S = 900.0  # another measurement may take minutes, never a quarter of an hour

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
        on_progress: OnProgress = lambda _: None,
    ) -> None:
        self.workspace = workspace
        self.task = workspace.task
        self.on_progress = on_progress
        self._interpreter = interpreter
        self._runtime = Runtime(root=workspace.root, task=self.task, interpreter=interpreter)
        self._reference = Reference(self._runtime, workspace.root / self.task.file)
        self._pool = DrawPool(self._reference, self.task.draws)
        self._baselines = self._new_baselines()
        self._cancel = threading.Event()
        self._runtime.cancel = self._cancel
        self._busy = threading.Lock()
        self._warming: threading.Thread | None = None
        self._stages: list[StageTiming] = []

    def _new_baselines(self) -> Baselines:
        file = self.workspace.root / self.task.file
        return Baselines(self._runtime, self._reference, file, processes=measuring.PROCESSES)

    # ---- what front ends and tools call

    def warm_up(self) -> None:
        """Start the workers, the draws and the baselines in the background; failures surface in the first call."""
        if self._warming is None:
            self._warming = threading.Thread(target=self._warm, name="evaluator-warm-up", daemon=True)
            self._warming.start()

    def check_reference(self) -> None:
        """Load and examine the user's model. Raises ReferenceFault."""
        with self._call():
            self._reference.start(self._cancel)

    def trace(self) -> dict[str, Any]:
        """The reference's operators. Raises ReferenceFault."""
        with self._call():
            trace: dict[str, Any] = self._reference.ask("trace", cancel=self._cancel)["trace"]
            return trace

    def build(self) -> BuildReport:
        """Compile the kernels. Errors in the sources are in the report."""
        with self._call():
            return self._build()

    def evaluate(self, *, stop_after: StopAfter = "measure") -> Report:
        """The whole pipeline, or its beginning. Raises ReferenceFault and infrastructure errors, never a verdict."""
        with self._call():
            try:
                return self._evaluate(stop_after)
            except Cancelled:
                self._reset_baselines()
                return self._report(Verdict.UNVERIFIED, Code.CANCELLED, "cancelled", NotMeasured(reason="cancelled"))

    def profile(self, subject: Literal["reference", "candidate"]) -> Profile:
        """Where time goes. Raises Rejected's sentence as ReferenceFault where the candidate does not run."""
        with self._call():
            ceilings = self._reference.ask("profile", cancel=self._cancel)
            if subject == "reference":
                profile = profiler.to_profile(ceilings, subject=subject, device=self.task.device)
                return self._with_roofline(profile)
            build = self._build() if self._has_kernels() else None
            candidate = Candidate(self.workspace, build, self._runtime, self._reference)
            try:
                found = self._profile_candidate(candidate)
            except Rejected as rejected:
                raise ReferenceFault(
                    f"The candidate does not run: {rejected.reason}", hint="Verify it first."
                ) from None
            finally:
                candidate.close()
            found |= {"ceilings": ceilings["ceilings"]}
            notes = self._vectorisation() if build is not None and self.task.device == "cpu" else ()
            return profiler.to_profile(found, subject=subject, device=self.task.device, notes=notes)

    def cancel(self) -> None:
        """End the call under way. From any thread."""
        self._cancel.set()

    def close(self) -> None:
        """End all processes, the interpreter's too, and remove the run's files."""
        self._cancel.set()
        if self._warming is not None:
            self._warming.join(timeout=5)
        self._runtime.close()
        self._interpreter.close()

    # ---- stages

    def _evaluate(self, stop_after: StopAfter) -> Report:
        if problems := self.workspace.protected_problems():
            return self._report(Verdict.REJECTED, Code.TAMPER, problems[0], NotMeasured(reason="not verified"))
        with self._stage("policy") as say:
            flags = policy.scan(self.workspace.root, protected=self.workspace.protected_names())
            say(f"{len(flags)} flags" if flags else "nothing to flag")
        build: BuildReport | None = None
        if self._has_kernels():
            build = self._build()
            if not build.succeeded:
                first = build.errors[0] if build.errors else None
                text = f"{first.place}: {first.message}" if first else "the build failed"
                return self._report(
                    Verdict.REJECTED, Code.BUILD, text, NotMeasured(reason="not built"), build=build, flags=flags
                )
        if stop_after == "build" or self._compiled_only(build):
            message = "compiled; not run" if stop_after == "build" else "compiled; there is no GPU here to run it on"
            return self._report(
                Verdict.UNVERIFIED, Code.COMPILED_ONLY, message, NotMeasured(reason="not run"), build=build, flags=flags
            )
        return self._run(build, flags, stop_after)

    def _run(self, build: BuildReport | None, flags: tuple[Flag, ...], stop_after: StopAfter) -> Report:
        with self._stage("reference"):
            self._reference.start(self._cancel)
        try:
            candidate = Candidate(self.workspace, build, self._runtime, self._reference)
        except Rejected as rejected:
            failed_early = NotMeasured(reason="rejected")
            return self._report(
                Verdict.REJECTED, rejected.code, rejected.reason, failed_early, build=build, flags=flags
            )
        verified: VerifyReport | None = None
        seeds: tuple[int, ...] = ()
        performance: Performance = NotMeasured(reason="not asked for")
        profile: Profile | None = None
        try:
            with self._stage("verify") as say:
                verified, failed, more, seeds = verify(
                    candidate, self._reference, self._pool, emit=self.on_progress, cancel=self._cancel
                )
                flags += more
                say(f"{verified.tensors_compared} tensors compared in {len(verified.trials)} trials")
                if failed is not None:
                    raise Rejected(failed.code or Code.NUM_MISMATCH, f"{failed.name}: {failed.reason}")
            if any(flag.code == "DEGENERATE_TASK" for flag in flags):
                raise _Degenerate
            if stop_after == "measure":
                performance = self._measure(candidate)
                profile = self._attribute(candidate)
                flags += self._share_flags(profile)
            candidate.check_unchanged()
        except Rejected as rejected:
            return self._report(
                Verdict.REJECTED,
                rejected.code,
                rejected.reason,
                NotMeasured(reason="rejected"),
                build=build,
                verify=verified,
                flags=flags,
            )
        except _Degenerate:
            return self._report(
                Verdict.UNVERIFIED,
                Code.DEGENERATE_TASK,
                "the reference's outputs do not vary with its inputs beyond rounding, so nothing can be proved; "
                "where its precision is low by design, raise error_cap in task.toml",
                NotMeasured(reason="degenerate task"),
                build=build,
                verify=verified,
                flags=flags,
            )
        finally:
            candidate.close()
        receipt = Receipt(
            files=candidate.hashes,
            library_sha256=build.library_sha256 if build else None,
            seeds=seeds,
            versions=self._versions(),
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        return self._report(
            Verdict.PASSED,
            None,
            _summary(performance),
            performance,
            build=build,
            verify=verified,
            flags=flags,
            profile=profile,
            receipt=receipt,
        )

    def _measure(self, candidate: Candidate) -> Measured:
        self._join_warm_up()
        with self._stage("baselines"):
            self._baselines.start(cpu=measuring.conditions().cpu, cancel=self._cancel)
        with self._stage("measure") as say, self._lease():
            measured = measuring.measure(
                candidate, self._reference, self._baselines, emit=self.on_progress, cancel=self._cancel
            )
            threads = measuring.all_threads(candidate, self._reference, self._baselines, cancel=self._cancel)
            say(_summary(measured))
            return _with_threads(measured, threads)

    @contextmanager
    def _lease(self) -> Iterator[None]:
        """The device for the whole machine: one measurement at a time. Waits, and says for whom."""
        deadline = time.monotonic() + LEASE_WAIT_S
        told: set[str] = set()
        while True:
            if self._cancel.is_set():
                raise Cancelled("cancelled")
            with ExitStack() as stack:
                try:
                    stack.enter_context(lease(self.task.device.replace(":", "-")))
                except InfrastructureError as busy:
                    if time.monotonic() > deadline:
                        raise
                    if busy.message not in told:
                        told.add(busy.message)
                        self.on_progress(Line(source="measure", text=f"waiting: {busy.message}"))
                    time.sleep(0.2)
                    continue
                yield
                return

    def _attribute(self, candidate: Candidate) -> Profile:
        with self._stage("attribute") as say:
            found = self._profile_candidate(candidate)
            profile = profiler.to_profile(found, subject="candidate", device=self.task.device)
            say(f"{profiler.authored_share(profile):.0%} of the time in the candidate's own operators")
            return profile

    def _share_flags(self, profile: Profile) -> tuple[Flag, ...]:
        share = profiler.authored_share(profile)
        if self.task.library_policy == "strict" and share < 0.9:
            raise Rejected(
                Code.KERNEL_SHARE, f"authored kernels carry {share:.0%} of the time, strict policy wants 90%"
            )
        if share < 0.01:
            return (Flag(code="KERNEL_SHARE", message="the candidate's own operators carry under 1% of the time"),)
        return ()

    def _profile_candidate(self, candidate: Candidate) -> dict[str, Any]:
        draw = self._reference.draw(cancel=self._cancel)
        try:
            with candidate.process(cancel=self._cancel) as running:
                running.set_state(draw)
                return running.profile(draw)
        finally:
            self._reference.spend(draw)

    def _with_roofline(self, profile: Profile) -> Profile:
        try:
            trace = self._reference.ask("trace", cancel=self._cancel)["trace"]
        except ReferenceFault as untraceable:
            note = f"no roofline: {untraceable.message}"
            return msgspec.structs.replace(profile, notes=(*profile.notes, note))
        return profiler.with_roofline(profile, trace)

    def _vectorisation(self) -> tuple[str, ...]:
        """What the compiler says of each loop."""
        return vectorisation.report(self.workspace, builder=self._builder())

    def _builder(self) -> Builder:
        return Builder(
            python=self._runtime.python,
            env=self._runtime.environment,
            run=self._runtime.run_command(self.workspace.root),
            options=BuildOptions(build_dir=str(self._runtime.build_folder)),
            cancel=self._cancel,
            cache_folder=self._runtime.cache,
        )

    def _build(self) -> BuildReport:
        with self._stage("build") as say:
            report = run_build(self.workspace, builder=self._builder(), on_progress=self.on_progress)
            say(f"{len(report.compiled)} compiled, {len(report.cached)} up to date")
            return report

    # ---- pieces

    def _has_kernels(self) -> bool:
        folder = self.workspace.root / "kernels"
        sources = [path for path in folder.rglob("*") if path.suffix in {".cpp", ".cc", ".cu"}]
        return bool(sources)

    def _compiled_only(self, build: BuildReport | None) -> bool:
        return self.task.device.startswith("cuda") and (build is None or build.library is None)

    @contextmanager
    def _call(self) -> Iterator[None]:
        with self._busy:
            self._cancel.clear()
            self._stages = []
            yield

    @contextmanager
    def _stage(self, name: str) -> Iterator[Callable[[str], None]]:
        began = time.monotonic()
        summary = [""]
        self.on_progress(StageBegan(stage=name))
        try:
            yield lambda text: summary.__setitem__(0, text)
        finally:
            seconds = time.monotonic() - began
            self._stages.append(StageTiming(stage=name, seconds=round(seconds, 3)))
            self.on_progress(StageDone(stage=name, seconds=seconds, summary=summary[0]))

    def _warm(self) -> None:
        try:
            self._reference.start(self._cancel)
            self._pool.fill(self._cancel)
            self._warm_header()
            self._baselines.start(cpu=measuring.conditions().cpu, cancel=self._cancel)
        except Exception:  # the first call that needs it meets the same fault and reports it
            return

    def _warm_header(self) -> None:
        runtime = self._runtime
        warm_header(python=runtime.python, env=runtime.environment, cache_folder=runtime.cache, cancel=self._cancel)

    def _join_warm_up(self) -> None:
        while self._warming is not None and self._warming.is_alive():
            if self._cancel.is_set():
                raise Cancelled("cancelled")
            self._warming.join(timeout=0.1)

    def _reset_baselines(self) -> None:
        """After a cancel some of their processes may be gone."""
        self._baselines.close()
        self._baselines = self._new_baselines()

    def _versions(self) -> dict[str, str]:
        return self._runtime.zygote.versions | {"cuda-tui": importlib.metadata.version("cuda-tui")}

    def _report(
        self, verdict: Verdict, code: Code | None, message: str, performance: Performance, **parts: Any
    ) -> Report:
        return Report(
            verdict=verdict,
            code=code,
            message=message,
            performance=performance,
            stages=tuple(self._stages),
            sandbox=self._runtime.rung.summary,
            **parts,
        )


class _Degenerate(Exception):
    """The task proves nothing."""


def _with_threads(measured: Measured, threads: tuple[Any, ...]) -> Measured:
    return msgspec.structs.replace(measured, all_threads=threads)


def _summary(performance: Performance) -> str:
    if isinstance(performance, NotMeasured):
        return "verified"
    parts = [
        f"{ratio.value:.2f}x [{ratio.low:.2f}, {ratio.high:.2f}] against {ratio.baseline}: {ratio.outcome}"
        for ratio in performance.ratios
    ]
    return "; ".join(parts)
