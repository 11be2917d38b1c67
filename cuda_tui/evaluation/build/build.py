"""Compile what is in `kernels/`: plan, ninja in the sandbox with a live log, messages parsed, the library named."""

import hashlib
import os
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from cuda_tui.errors import Cancelled, InfrastructureError, UsageError
from cuda_tui.evaluation.build import cache, diagnostics, ptxas
from cuda_tui.evaluation.build.lock import build_lock
from cuda_tui.evaluation.build.plan import BuildOptions, Plan, SourcesRefused, make_plan
from cuda_tui.evaluation.build.target import attached_target
from cuda_tui.evaluation.build.toolchain import describe, nvcc_version, processor_name, unknown_targets
from cuda_tui.evaluation.progress import Line
from cuda_tui.evaluation.report import BuildReport, Diagnostic
from cuda_tui.process import Finished
from cuda_tui.workspace.workspace import Workspace

BUILD_TIMEOUT_S = 600.0


class Run(Protocol):
    """Runs one command, as `process.run` does; the caller wraps it in the sandbox."""

    def __call__(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        on_line: Callable[[str], None] | None = None,
        timeout_s: float | None = None,
        cancel: threading.Event | None = None,
    ) -> Finished: ...


@dataclass(frozen=True, kw_only=True)
class Builder:
    """How builds run: the user's interpreter, the environment for tools, and the way into the sandbox."""

    python: str
    env: Mapping[str, str]
    run: Run
    options: BuildOptions = field(default_factory=BuildOptions)
    timeout_s: float = BUILD_TIMEOUT_S
    cancel: threading.Event | None = None
    cache_folder: Path | None = None  # of the machine, for what no workspace's sandbox may write; None keeps nothing


def build(workspace: Workspace, *, builder: Builder, on_progress: Callable[[Line], None]) -> BuildReport:
    """Build the workspace's library; an error in its sources is a report, not an exception.

    Raises UsageError where the machine or the task does not allow a build (no compiler, no target, a build already
    running), InfrastructureError where a tool of ours broke or ran out of memory, and Cancelled.
    """
    options = task_options(builder.options, workspace, env=builder.env)
    folder = build_folder(options, workspace)
    with build_lock(folder) as note:
        if note:
            on_progress(Line(source="build", text=note))
        try:
            plan = make_plan(workspace.root, python=builder.python, env=builder.env, options=options, write=True)
        except SourcesRefused as refusal:
            return _refused(refusal.message, workspace)
        _refuse_other_cuda(plan)
        _refuse_unknown_targets(plan)
        for text in plan.notes:
            on_progress(Line(source="build", text=f"note: {text}"))
        plan = _with_cached_header(plan, builder, options)
        finished = _run_ninja(plan, builder=builder, on_progress=on_progress)
        if finished.returncode == 0 and not plan.is_ready:
            if builder.cache_folder is not None:
                cache.give_to_cache(plan, builder.cache_folder)
            cache.prune(folder, plan)
    return _report(workspace, plan, finished)


def task_options(options: BuildOptions, workspace: Workspace, *, env: Mapping[str, str]) -> BuildOptions:
    """The caller's options, with the task's device and targets where the caller named none.

    Where nobody names a target, TORCH_CUDA_ARCH_LIST included, it is the attached device's own. Raises UsageError
    where the task names a GPU that is not there.
    """
    device = options.device or workspace.task.device
    architectures = options.architectures or workspace.task.architectures
    if not architectures and env.get("TORCH_CUDA_ARCH_LIST", "native") in ("", "native"):
        attached = attached_target(device, env)
        architectures = (attached,) if attached else ()
    return BuildOptions(
        device=device,
        cxx=options.cxx,
        nvcc=options.nvcc,
        cuda_home=options.cuda_home,
        architectures=architectures,
        jobs=options.jobs,
        build_dir=options.build_dir,
    )


def _with_cached_header(plan: Plan, builder: Builder, options: BuildOptions) -> Plan:
    """The plan once more, if the machine's cache had the precompiled header that it lacks."""
    if builder.cache_folder is None or plan.is_ready or all(item.ready for item in plan.precompiled):
        return plan
    cache.take_from_cache(plan, builder.cache_folder)
    return make_plan(Path(plan.root), python=builder.python, env=builder.env, options=options, write=True)


def build_folder(options: BuildOptions, workspace: Workspace) -> Path:
    """Where objects and libraries lie."""
    return Path(options.build_dir) if options.build_dir else workspace.root / ".cuda-tui" / "build"


def _refuse_other_cuda(plan: Plan) -> None:
    """Stop before compiling where nvcc and torch are of different major versions: the result could not be loaded."""
    if plan.tools.nvcc is None or plan.torch.cuda is None or not any(item.cuda for item in plan.objects):
        return
    version = nvcc_version(plan.tools.nvcc)
    if version is not None and version.split(".")[0] != plan.torch.cuda.split(".")[0]:
        raise UsageError(
            f"nvcc {version} ({plan.tools.nvcc}) and torch {plan.torch.version}, built with CUDA {plan.torch.cuda}, "
            "have different major versions.",
            hint=f"Install CUDA toolkit {plan.torch.cuda}, or a torch built with CUDA {version.split('.')[0]}.",
        )


def _refuse_unknown_targets(plan: Plan) -> None:
    """Stop before compiling for what this nvcc has never heard of."""
    if plan.tools.nvcc is None or plan.target == "cpu":
        return
    problem = unknown_targets(plan.tools.nvcc, plan.target.split(","))
    if problem:
        hint = "Install a newer CUDA toolkit, or name its newest target with PTX, as in --arch sm_90+PTX."
        raise UsageError(problem, hint=hint)


def _run_ninja(plan: Plan, *, builder: Builder, on_progress: Callable[[Line], None]) -> Finished:
    """Run what is missing. A compiler that was killed for memory gets one more try, alone."""
    if plan.is_ready:
        return Finished(returncode=0, output="", seconds=0.0)
    if plan.tools.ninja is None:
        raise InfrastructureError("ninja is missing.", hint=f"{builder.python} -m pip install ninja")
    ninja_file = str(Path(plan.root, plan.build_dir, "build.ninja"))
    finished = Finished(returncode=1, output="", seconds=0.0)
    for jobs in dict.fromkeys((plan.jobs, 1)):
        argv = [plan.tools.ninja, "-f", ninja_file, "-j", str(jobs), "-k", "0"]
        finished = builder.run(
            argv,
            cwd=Path(plan.root),
            env=builder.env,
            on_line=_QuietFailures(on_progress),
            timeout_s=builder.timeout_s,
            cancel=builder.cancel,
        )
        if finished.cancelled:
            raise Cancelled("The build was stopped.")
        if finished.returncode == 0 or finished.timed_out or not diagnostics.is_out_of_memory(finished.output):
            return finished
        on_progress(Line(source="build", text=f"a compiler was killed for memory with {jobs} at once"))
    raise InfrastructureError(
        "A compiler was killed by signal 9 even when it ran alone: the machine has too little memory for this source.",
        hint="Split the source, or allow more memory (one compile of full torch headers needs about 2 GB).",
    )


class _QuietFailures:
    """Passes lines on, without the whole command that ninja repeats after `FAILED:`; the log file has it."""

    def __init__(self, on_progress: Callable[[Line], None]) -> None:
        self._on_progress = on_progress
        self._skip = False

    def __call__(self, text: str) -> None:
        skip, self._skip = self._skip, text.startswith("FAILED: ")
        if not skip:
            self._on_progress(Line(source="build", text=text))


def _refused(reason: str, workspace: Workspace) -> BuildReport:
    """A build that did not start because of what the sources say."""
    problem = Diagnostic(file="kernels", severity="error", message=reason)
    return BuildReport(succeeded=False, seconds=0.0, target=workspace.task.device, toolchain="", diagnostics=(problem,))


def _report(workspace: Workspace, plan: Plan, finished: Finished) -> BuildReport:
    root = workspace.root
    compiled = [item for item in plan.objects if not item.ready]
    cached = [item for item in plan.objects if item.ready]
    earlier = "".join(_read(root / item.log) for item in cached)
    found = diagnostics.parse((finished.output + earlier).splitlines())
    succeeded = finished.returncode == 0 and not finished.timed_out
    if finished.timed_out:
        found = (Diagnostic(file="ninja", severity="error", message=f"not done in {finished.seconds:.0f} s"), *found)
    if not succeeded and not any(item.severity == "error" for item in found):
        last = next((line for line in reversed(finished.output.splitlines()) if line.strip()), "no output")
        found = (Diagnostic(file="ninja", severity="error", message=last.strip()), *found)
    library = root / plan.library if succeeded and plan.library else None  # absolute where build_dir is
    resources = ptxas.parse("".join(_read(root / item.log) for item in plan.objects if item.cuda).splitlines())
    return BuildReport(
        succeeded=succeeded,
        seconds=round(finished.seconds, 3),
        target=plan.target if plan.target != "cpu" else f"cpu ({processor_name()}, -march=native)",
        toolchain=describe(plan),
        diagnostics=found,
        warnings=sum(item.severity == "warning" for item in found),
        resources=ptxas.demangled(resources),
        compiled=tuple(item.source for item in compiled),
        cached=tuple(item.source for item in cached),
        library_sha256=hashlib.sha256(library.read_bytes()).hexdigest() if library else None,
        library=_inside(root, library) if library else None,
        log=_write_log(root, finished.output or "everything was up to date\n"),
    )


def _inside(root: Path, library: Path) -> str:
    """The library's path inside the workspace, into which it is copied from a build folder elsewhere.

    Whoever loads that copy compares it with `library_sha256`, which is that of the original.
    """
    if library.is_relative_to(root):
        return str(library.relative_to(root))
    folder = root / ".cuda-tui" / "build" / "libraries"
    folder.mkdir(parents=True, exist_ok=True)
    for source in (library.with_suffix(".json"), library):
        partial = folder / f"{source.name}.part"
        shutil.copyfile(source, partial)
        os.replace(partial, folder / source.name)
    return str((folder / library.name).relative_to(root))


def _write_log(root: Path, text: str) -> str:
    """Keep the whole log; returns its path inside the workspace."""
    folder = root / ".cuda-tui" / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    last = max((int(path.stem.rpartition("-")[2]) for path in folder.glob("build-[0-9]*.log")), default=0)
    path = folder / f"build-{last + 1:04d}.log"
    path.write_text(text, encoding="utf-8", errors="replace")
    return str(path.relative_to(root))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
