"""A session as it could have happened: the events of an optimisation, made by our own records.

`session_events()` has the transient events too; `session_entries()` is what the log of it would hold.
"""

from collections.abc import Iterator

from cuda_tui.evaluation.report import (
    BuildReport,
    Code,
    Diagnostic,
    KernelResources,
    KernelRow,
    Measured,
    NotMeasured,
    OutputCheck,
    Profile,
    Ratio,
    Receipt,
    Report,
    Timing,
    Trial,
    Verdict,
    VerifyReport,
    Worst,
)
from cuda_tui.events import (
    AnyEvent,
    Approval,
    ApprovalAsked,
    ApprovalGiven,
    Built,
    CallStreamed,
    CandidateEvaluated,
    Decision,
    Durable,
    Entry,
    LineLogged,
    MachineSampled,
    NoteWritten,
    Outcome,
    Profiled,
    ReplyReceived,
    RetryScheduled,
    SessionEnded,
    SessionStarted,
    SliceMeasured,
    StageEnded,
    StageStarted,
    StepCommitted,
    StreamWithdrawn,
    TextStreamed,
    ThinkingStreamed,
    ToolFinished,
    ToolStarted,
    TrialChecked,
    UserSpoke,
    is_durable,
)
from cuda_tui.messages import (
    AssistantReply,
    BuildDetails,
    ChangeDetails,
    Effect,
    ReadDetails,
    ReportDetails,
    ToolCall,
    ToolResult,
    Usage,
)

START = 1_790_000_000.0

KERNEL = """\
#include <torch/csrc/stable/library.h>

// One row at a time: the row (4096 floats, 16 KiB) stays in L1 between the two passes.
void rms_norm_swiglu(const float* x, const float* gate, float* out, int64_t rows, int64_t columns, float eps) {
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < rows; ++row) {
    const float* in = x + row * columns;
    float sum = 0.0f;
    for (int64_t i = 0; i < columns; ++i) sum += in[i] * in[i];
    const float scale = 1.0f / std::sqrt(sum / columns + eps);
    for (int64_t i = 0; i < columns; ++i) {
      const float g = gate[row * columns + i];
      out[row * columns + i] = in[i] * scale * g / (1.0f + std::exp(-g));
    }
  }
}
"""

MODEL_NEW = """\
 import torch
 import torch.nn as nn
+
+import cuda_extension


 class ModelNew(nn.Module):
     def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
-        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
-        return x * scale * self.weight * torch.nn.functional.silu(gate)
+        return cuda_extension.rms_norm_swiglu(x, self.weight, gate, self.eps)
"""


def new_file_diff(path: str, text: str) -> str:
    """A unified diff that creates a file."""
    lines = text.rstrip("\n").split("\n")
    body = "\n".join(f"+{line}" for line in lines)
    return f"diff --git a/{path} b/{path}\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1,{len(lines)} @@\n{body}\n"


KERNEL_DIFF = new_file_diff("kernels/rms_norm_swiglu.cpp", KERNEL)
MODEL_DIFF = (
    f"diff --git a/model_new.py b/model_new.py\n--- a/model_new.py\n+++ b/model_new.py\n@@ -1,8 +1,9 @@\n{MODEL_NEW}"
)
VECTOR_DIFF = """\
diff --git a/kernels/rms_norm_swiglu.cpp b/kernels/rms_norm_swiglu.cpp
--- a/kernels/rms_norm_swiglu.cpp
+++ b/kernels/rms_norm_swiglu.cpp
@@ -7,7 +7,10 @@ void rms_norm_swiglu(const float* x, const float* gate, float* out)
     const float* in = x + row * columns;
-    float sum = 0.0f;
-    for (int64_t i = 0; i < columns; ++i) sum += in[i] * in[i];
+    // Eight partial sums: one chain of additions would bound the loop by latency.
+    float part[8] = {};
+    for (int64_t i = 0; i + 8 <= columns; i += 8)
+      for (int lane = 0; lane < 8; ++lane) part[lane] += in[i + lane] * in[i + lane];
+    float sum = reduce(part);
     const float scale = 1.0f / std::sqrt(sum / columns + eps);
"""
METHOD = "perf_counter_ns over slices of about 5 ms, 4 fresh processes a side, interleaved, one pinned thread"
DEVICE = "AMD EPYC 9654, 1 thread"


def failed_build() -> BuildReport:
    """A build with two distinct errors."""
    return BuildReport(
        succeeded=False,
        seconds=1.9,
        target="cpu",
        toolchain="g++ 12.2.0, ninja 1.11.1, torch 2.13.0+cpu headers",
        diagnostics=(
            Diagnostic(
                file="kernels/rms_norm_swiglu.cpp",
                severity="error",
                message="'sqrt' is not a member of 'std'; did you mean 'qsort'?",
                line=10,
                column=37,
                context=(
                    "   10 |     const float scale = 1.0f / std::sqrt(sum / columns + eps);",
                    "      |                                     ^~~~",
                ),
            ),
            Diagnostic(
                file="kernels/rms_norm_swiglu.cpp",
                severity="error",
                message="'exp' is not a member of 'std'",
                line=13,
                column=62,
            ),
        ),
        compiled=("kernels/rms_norm_swiglu.cpp",),
        log=".cuda-tui/logs/build-1.log",
    )


def good_build(*, resources: bool = False) -> BuildReport:
    """A build that succeeded, for the CPU or with ptxas resources."""
    found = (
        KernelResources(
            kernel="void rms_norm_swiglu_kernel<4>(float const*, float const*, float*, long, float)",
            architecture="sm_90a",
            registers=40,
            static_shared_bytes=1_056,
        ),
        KernelResources(
            kernel="void rms_norm_swiglu_kernel<8>(float const*, float const*, float*, long, float)",
            architecture="sm_90a",
            registers=255,
            static_shared_bytes=2_080,
            stack_bytes=96,
            spill_store_bytes=88,
            spill_load_bytes=96,
        ),
    )
    return BuildReport(
        succeeded=True,
        seconds=2.4,
        target="sm_90a" if resources else "cpu",
        toolchain="g++ 12.2.0, ninja 1.11.1, torch 2.13.0+cpu headers",
        diagnostics=(
            Diagnostic(
                file="kernels/rms_norm_swiglu_binding.cpp",
                severity="warning",
                message="unused variable 'rows' [-Wunused-variable]",
                line=21,
                column=17,
            ),
        ),
        warnings=1,
        resources=found if resources else (),
        compiled=("kernels/rms_norm_swiglu.cpp",),
        cached=("kernels/rms_norm_swiglu_binding.cpp",),
        library_sha256="5c1f0a0d" * 8,
        log=".cuda-tui/logs/build-2.log",
    )


def check(*, error: float, passed: bool = True, output: str = "out") -> OutputCheck:
    """One compared tensor; a failed one has its worst elements and an error map."""
    bad = not passed
    return OutputCheck(
        output=output,
        dtype="float32",
        shape=(2048, 4096),
        passed=passed,
        error=error,
        limit=9.5e-7,
        eager_error=1.2e-7,
        max_abs_error=3.7 if bad else 4.1e-6,
        worst=(
            Worst(index=(17, 4088), expected=0.731842, actual=0.0),
            Worst(index=(17, 4089), expected=-2.11934, actual=0.0),
            Worst(index=(1204, 4091), expected=3.70118, actual="nan"),
        )
        if bad
        else (),
        error_map=tuple(
            tuple(0.02 + 0.3 * ((x * y) % 3 == 0) + (240.0 if x == 31 else 6.0 if x == 30 else 0.0) for x in range(32))
            for y in range(8)
        )
        if bad
        else (),
        reason="the last 8 of every 4096 columns are not written" if bad else "",
    )


def verification(*, passed: bool = True) -> VerifyReport:
    """Five draws and redrawn parameters."""
    trials = [
        Trial(name=f"draw {number}", checks=(check(error=1.1e-7 * number**0.1),), passed=True) for number in range(1, 6)
    ]
    if passed:
        trials.append(Trial(name="state redrawn", checks=(check(error=1.3e-7),), passed=True))
    else:
        trials[1] = Trial(
            name="draw 2",
            checks=(check(error=4.4e-2, passed=False),),
            passed=False,
            code=Code.NUM_MISMATCH,
            reason="error 4.4e-02 is above the limit 9.5e-07",
        )
    return VerifyReport(passed=passed, trials=tuple(trials), tensors_compared=len(trials), seconds=3.2, not_compared=())


def measured(*, eager: float, compiled: float, median_us: float, width: float = 0.02) -> Measured:
    """A measurement with the given ratios."""

    def timing(name: str, median: float) -> Timing:
        return Timing(
            name=name,
            process_medians_us=tuple(median * factor for factor in (0.996, 1.0, 1.003, 1.0)),
            calls=4_800,
            slices=240,
            dropped_slices=3,
        )

    def ratio(name: str, value: float) -> Ratio:
        return Ratio(baseline=name, value=value, low=value * (1 - width), high=value * (1 + width))

    return Measured(
        candidate=timing("candidate", median_us),
        baselines=(timing("eager", median_us * eager), timing("compile", median_us * compiled)),
        ratios=(ratio("eager", eager), ratio("compile", compiled)),
        method=METHOD,
        device=DEVICE,
        foreign_load=0.2,
    )


def receipt() -> Receipt:
    """What a verdict can be repeated from."""
    return Receipt(
        files={"model.py": "ab" * 32, "model_new.py": "cd" * 32, "kernels/rms_norm_swiglu.cpp": "ef" * 32},
        library_sha256="5c1f0a0d" * 8,
        seeds=(91, 7_411, 20_333, 4_126, 88_127),
        versions={"torch": "2.13.0+cpu", "python": "3.11.2", "cuda-tui": "0.1.0"},
        created_at="2026-09-21T13:21:07Z",
    )


def passed_report(performance: Measured) -> Report:
    """A verified and measured candidate."""
    ratio = performance.headline
    return Report(
        verdict=Verdict.PASSED,
        message=f"Verified; {ratio.value:.2f}x {ratio.outcome.value} against {ratio.baseline}.",
        performance=performance,
        build=good_build(),
        verify=verification(),
        sandbox="bubblewrap",
        receipt=receipt(),
    )


def build_failure() -> Report:
    """A candidate that does not compile."""
    return Report(
        verdict=Verdict.REJECTED,
        code=Code.BUILD,
        message="kernels/rms_norm_swiglu.cpp:10: 'sqrt' is not a member of 'std'; did you mean 'qsort'?",
        performance=NotMeasured(reason="not built"),
        build=failed_build(),
    )


def mismatch() -> Report:
    """A candidate whose values are wrong."""
    return Report(
        verdict=Verdict.REJECTED,
        code=Code.NUM_MISMATCH,
        message="draw 2, out: error 4.4e-02 is above the limit 9.5e-07 (eager's own: 1.2e-07).",
        performance=NotMeasured(reason="not verified"),
        build=good_build(),
        verify=verification(passed=False),
    )


def profile() -> Profile:
    """A profile of the reference."""
    rows = (
        ("aten::mm", 2, 2_310.0, 0.46, "compute", False),
        ("aten::mul", 3, 1_120.0, 0.22, "memory", False),
        ("aten::silu", 1, 760.0, 0.15, "memory", False),
        ("aten::pow", 1, 480.0, 0.10, "memory", False),
        ("aten::mean", 1, 350.0, 0.07, "memory", False),
    )
    return Profile(
        subject="reference",
        rows=tuple(
            KernelRow(
                name=name,
                calls=calls,
                total_us=total,
                share=share,
                bound=bound,
                authored=authored,
                bytes_moved=67_108_864,
                roofline_share=0.61,
            )
            for name, calls, total, share, bound, authored in rows
        ),
        total_us=5_020.0,
        notes=("torch.profiler adds about 2 µs to each operator.",),
        peak_bandwidth_gbs=38.0,
        peak_gflops=122.0,
    )


def candidate_profile() -> Profile:
    """A profile of the candidate."""
    rows = (("rms_norm_swiglu", 1, 1_240.0, 0.36, "memory", True), ("aten::mm", 2, 2_200.0, 0.64, "compute", False))
    return Profile(
        subject="candidate",
        rows=tuple(
            KernelRow(name=name, calls=calls, total_us=total, share=share, bound=bound, authored=authored)
            for name, calls, total, share, bound, authored in rows
        ),
        total_us=3_440.0,
    )


def write_call(number: int, path: str, content: str) -> ToolCall:
    """A proposal to write a file."""
    return ToolCall(id=f"call_{number}", name="write_file", arguments={"path": path, "content": content})


def asked(call: ToolCall, diff: str, *, evidence: str = "") -> ApprovalAsked:
    """The question that goes with a file change."""
    return ApprovalAsked(
        call=call, effect=Effect.WRITE, scope="every file edit in this workspace", diff=diff, evidence=evidence
    )


def shell_asked(command: str = "nproc && lscpu | grep -i 'model name'") -> ApprovalAsked:
    """The question that goes with a command."""
    call = ToolCall(id="call_shell", name="shell", arguments={"command": command})
    return ApprovalAsked(call=call, effect=Effect.EXECUTE, scope="the command nproc in this workspace", command=command)


def started(approval: Approval = Approval.STEP) -> SessionStarted:
    """The first event."""
    return SessionStarted(
        session="20260921-131320-4f1c",
        title="model.py:RMSNormSwiGLU",
        workspace="~/.local/share/cuda-tui/workspaces/rms-norm-swiglu-4f1c",
        device="cpu",
        model="anthropic:claude",
        approval=approval,
        version="0.1.0",
        source="~/llm/model.py",
        sandbox="bubblewrap",
    )


def _reply(
    turn: int, text: str, *calls: ToolCall, thinking: str = "", tokens: tuple[int, int] = (4_200, 310)
) -> Durable:
    usage = Usage(input_tokens=tokens[0], output_tokens=tokens[1], cache_read_tokens=tokens[0] // 2)
    return ReplyReceived(
        turn=turn, reply=AssistantReply(text=text, thinking=thinking, tool_calls=calls, usage=usage), seconds=6.1
    )


def _opening() -> Iterator[tuple[float, AnyEvent]]:
    yield 0.0, started()
    yield 0.0, UserSpoke(text="Make RMSNormSwiGLU in model.py faster on this CPU. Keep float32 accuracy.")
    for piece in ("The forward reads x three times ", "and writes two temporaries."):
        yield 0.3, ThinkingStreamed(text=piece)
    yield 0.4, StreamWithdrawn(reason="connection reset")
    yield 0.0, RetryScheduled(reason="connection reset by the provider", attempt=1, wait_s=2.0)
    read = ToolCall(id="call_1", name="read_file", arguments={"path": "model.py"})
    for piece in ("I will read the model first, ", "then **measure where the time goes**."):
        yield 0.5, TextStreamed(text=piece)
    yield 0.2, CallStreamed(index=0, name="read_file", fragment='{"path": "model.py"}')
    yield (
        0.2,
        _reply(
            1,
            "I will read the model first, then **measure where the time goes**.",
            read,
            thinking="The forward reads x three times and writes two temporaries.",
        ),
    )
    yield 0.1, ToolStarted(call=read, effect=Effect.READ)
    text = "class RMSNormSwiGLU(nn.Module):\n    def forward(self, x, gate):\n        ...\n"
    result = ToolResult(content=text, details=ReadDetails(path="model.py", text=text))
    yield 0.1, ToolFinished(call_id="call_1", name="read_file", result=result, seconds=0.02)
    yield 2.0, Profiled(profile=profile())
    yield 0.0, MachineSampled(cpu_load=1.1, memory_used_bytes=3_221_225_472)


def _write(
    number: int, turn: int, text: str, diff: str, *, decision: Decision, reason: str = ""
) -> Iterator[tuple[float, AnyEvent]]:
    call = write_call(number, "kernels/rms_norm_swiglu.cpp", KERNEL)
    yield 5.0, _reply(turn, text, call)
    yield 0.1, asked(call, diff, evidence="builds; 5 of 5 draws pass the quick check" if number == 5 else "")
    yield 4.0, ApprovalGiven(call_id=call.id, decision=decision, reason=reason)
    if decision is Decision.REJECTED:
        result = ToolResult(content=f"Rejected by the person: {reason}", is_error=True)
        yield 0.0, ToolFinished(call_id=call.id, name=call.name, result=result)
        return
    yield 0.0, ToolStarted(call=call, effect=Effect.WRITE)
    details = ChangeDetails(path="kernels/rms_norm_swiglu.cpp", diff=diff, commit=f"{number:x}c0ffee{number:x}")
    result = ToolResult(content="kernels/rms_norm_swiglu.cpp written", details=details)
    yield 0.1, ToolFinished(call_id=call.id, name=call.name, result=result, seconds=0.04)
    yield (
        0.0,
        StepCommitted(
            commit=f"{number:x}c0ffee{number:x}a1b2",
            message=text.split(".")[0],
            files=("kernels/rms_norm_swiglu.cpp",),
            diff_from_start=KERNEL_DIFF + MODEL_DIFF,
        ),
    )


def _evaluate(number: int, turn: int, text: str, report: Report, label: str) -> Iterator[tuple[float, AnyEvent]]:
    call = ToolCall(id=f"eval_{number}", name="measure", arguments={})
    yield 2.0, _reply(turn, text, call)
    yield 0.1, ToolStarted(call=call, effect=Effect.READ)
    yield 0.1, StageStarted(stage="build", detail="ninja, 1 source")
    for line in (
        "[1/2] g++ -O3 -march=native -fopenmp -c kernels/rms_norm_swiglu.cpp",
        "kernels/rms_norm_swiglu.cpp:10:37: \x1b[31merror: \x1b[0m'sqrt' is not a member of 'std'"
        if report.code is Code.BUILD
        else "[2/2] g++ -shared -o librms.so",
    ):
        yield 0.4, LineLogged(source="build", text=line)
    assert report.build is not None
    yield 0.2, StageEnded(stage="build", seconds=report.build.seconds, summary="1 compiled, 1 cached")
    yield 0.0, Built(build=report.build)
    if report.verify is not None:
        yield 0.1, StageStarted(stage="verify", detail="5 draws")
        for trial in report.verify.trials:
            yield 0.4, TrialChecked(name=trial.name, passed=trial.passed, detail=trial.reason)
        yield 0.1, StageEnded(stage="verify", seconds=3.2, summary="fp64 reference")
    if isinstance(report.performance, Measured):
        yield 0.1, StageStarted(stage="measure", detail="4 processes a side")
        for process in range(1, 5):
            yield 0.6, SliceMeasured(side="candidate", process=process, processes=4, median_us=3_450.0)
            yield 0.6, SliceMeasured(side="compile", process=process, processes=4, median_us=4_100.0)
        yield 0.1, StageEnded(stage="measure", seconds=9.7, summary="240 slices")
    yield 0.1, CandidateEvaluated(number=number, report=report, commit=f"{number:x}c0ffee{number:x}a1b2", label=label)
    result = ToolResult(content=report.message, is_error=False, details=ReportDetails(report=report))
    if report.code is Code.BUILD:
        result = ToolResult(content=report.message, is_error=True, details=BuildDetails(build=report.build))
    yield 0.0, ToolFinished(call_id=call.id, name="measure", result=result, seconds=14.2)
    for second in range(3):
        load = 1.0 + 0.3 * ((number + second) % 3)
        yield 1.0, MachineSampled(cpu_load=load, memory_used_bytes=3_221_225_472 + number * 90_000_000)


def _story() -> Iterator[tuple[float, AnyEvent]]:
    yield from _opening()
    yield from _write(
        2, 2, "Fuse norm, scale and SwiGLU into one pass over each row.", KERNEL_DIFF, decision=Decision.APPROVED
    )
    yield from _evaluate(1, 3, "Build and measure.", build_failure(), "fused, first draft")
    yield from _evaluate(2, 4, "The include was missing; vectorise the tail as well.", mismatch(), "fused, vector tail")
    slow = passed_report(measured(eager=1.38, compiled=0.93, median_us=5_290.0))
    yield from _evaluate(3, 5, "The tail was cut off. Scalar tail for now.", slow, "fused, scalar tail")
    yield from _write(
        5,
        6,
        "Use 16 threads for every row.",
        VECTOR_DIFF,
        decision=Decision.REJECTED,
        reason="one row is too little work for 16 threads; keep rows per thread",
    )
    better = passed_report(measured(eager=2.06, compiled=1.31, median_us=3_540.0))
    yield from _evaluate(4, 7, "Eight partial sums break the chain of additions.", better, "8 partial sums")
    best = passed_report(measured(eager=2.41, compiled=1.62, median_us=3_020.0, width=0.035))
    yield from _evaluate(5, 8, "Streaming stores for `out`, which nobody reads again.", best, "streaming stores")
    yield 0.0, Profiled(profile=candidate_profile())
    yield 0.5, NoteWritten(text="Streaming stores: predicted 10%, measured 17%.")


def session_events(*, ended: bool = True) -> list[tuple[float, AnyEvent]]:
    """(time, event) pairs, transient ones included; time in seconds since the epoch."""
    at, found = START, []
    for wait, event in _story():
        at += wait
        found.append((at, event))
    if ended:
        message = "Candidate 5 is verified and 1.62x faster than compile."
        found.append(
            (
                at + 1.0,
                SessionEnded(outcome=Outcome.DONE, message=message, best_candidate=5, best_commit="5c0ffee5a1b2"),
            )
        )
    return found


def session_entries(*, ended: bool = True) -> tuple[Entry, ...]:
    """The durable events as log entries."""
    durable = [(at, event) for at, event in session_events(ended=ended) if is_durable(event)]
    return tuple(Entry(seq=seq, at=at, event=event) for seq, (at, event) in enumerate(durable))  # type: ignore[arg-type]  # is_durable has just said so
