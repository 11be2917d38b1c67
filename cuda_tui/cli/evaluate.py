"""`cuda-tui eval WORKSPACE`: the evaluation alone, for any other agent or script."""

import sys
from pathlib import Path

from cuda_tui.cli.devices import Host, look, on_device
from cuda_tui.evaluation.conditions import gpu_lines
from cuda_tui.evaluation.pipeline import Evaluator, StopAfter
from cuda_tui.evaluation.progress import Line, Progress, SliceDone, StageBegan, StageDone, TrialDone
from cuda_tui.evaluation.report import BuildReport, KernelResources, Measured, Report, Verdict
from cuda_tui.evaluation.runtime import Interpreter
from cuda_tui.records import encode
from cuda_tui.sandbox.rung import detect
from cuda_tui.workspace.workspace import Workspace

EXIT = {Verdict.PASSED: 0, Verdict.REJECTED: 4, Verdict.UNVERIFIED: 5}


def run(
    workspace: Path,
    *,
    host: Host,
    cache: Path,
    as_json: bool,
    device: str | None = None,
    stop_after: StopAfter = "measure",
) -> int:
    """Evaluate and print: lines for a person, or the report as one JSON object. Returns the exit code.

    `device` is another GPU than the task's. Raises UsageError where it is not there.
    """
    opened = on_device(Workspace.open(workspace), device)
    for note in look(opened.task.device, host).notes:
        print(f"note: {note}", file=sys.stderr)
    evaluator = Evaluator(
        opened,
        interpreter=Interpreter.at(host.python, environment=host.env, rung=detect(), cache=cache),
        on_progress=_ignore if as_json else _print,
    )
    try:
        report = evaluator.evaluate(stop_after=stop_after)
    finally:
        evaluator.close()
    if as_json:
        sys.stdout.write(encode(report).decode() + "\n")
    else:
        print("\n".join(lines(report)))
    return EXIT[report.verdict]


def _ignore(progress: Progress) -> None:
    """Nothing is printed but the report."""


def _print(progress: Progress) -> None:
    match progress:
        case Line(source=source, text=text):
            print(f"  {source}: {text}", file=sys.stderr)
        case StageBegan(stage=stage):
            print(f"{stage} ...", file=sys.stderr)
        case StageDone(stage=stage, seconds=seconds, summary=summary):
            print(f"{stage} {seconds:.1f} s  {summary}", file=sys.stderr)
        case TrialDone(name=name, passed=passed, detail=detail):
            print(f"  {'pass' if passed else 'FAIL'}  {name}  {detail}", file=sys.stderr)
        case SliceDone():
            pass


def lines(report: Report) -> list[str]:
    """The report for a person."""
    code = f"({report.code})" if report.code else ""
    rows = [f"{report.verdict}{code}: {report.message}"]
    rows += _build_lines(report.build) if report.build else []
    if isinstance(report.performance, Measured):
        measured = report.performance
        for timing in (measured.candidate, *measured.baselines):
            note = f"  ({timing.note})" if timing.note else ""
            rows.append(
                f"  {timing.name:<22} {timing.median_us:>12,.1f} µs  ±{timing.spread:.1%}  "
                f"n={len(timing.process_medians_us)} processes, {timing.calls} calls{note}"
            )
        for ratio in measured.ratios:
            rows.append(
                f"  {ratio.value:.2f}x [{ratio.low:.2f}, {ratio.high:.2f}] vs {ratio.baseline}: {ratio.outcome}"
            )
        rows += [f"  {state.name}: not available, {state.reason}" for state in measured.unavailable]
        rows += [f"  {timing.name} with {timing.note}: {timing.median_us:,.1f} µs" for timing in measured.all_threads]
        rows.append(f"  {measured.method}; {measured.device}")
        rows += [f"  {line}" for line in gpu_lines(measured)]
    rows += [f"  flag {flag.code}: {flag.message}" for flag in report.flags]
    milestone = "" if report.verdict is Verdict.UNVERIFIED else f"milestone {report.milestone}; "
    rows.append(f"{milestone}sandbox {report.sandbox}")
    return rows


def _build_lines(build: BuildReport) -> list[str]:
    """The first errors with their context, and what each GPU kernel uses."""
    rows = [f"  built for {build.target} with {build.toolchain}"] if build.toolchain else []
    for error in build.errors[:3]:
        rows += [f"  {error.place}: {error.message}", *(f"    {line}" for line in error.context)]
    if build.errors and build.log:
        rows.append(f"  the whole log: {build.log}")
    return rows + [_resources(kernel) for kernel in build.resources]


def _resources(kernel: KernelResources) -> str:
    spills = f"spills {kernel.spill_store_bytes} B stored, {kernel.spill_load_bytes} B loaded"
    memory = f"{kernel.static_shared_bytes} B shared, {kernel.stack_bytes} B stack"
    return f"  {kernel.kernel} ({kernel.architecture}): {kernel.registers} registers, {memory}, {spills}"
