"""The evaluation tools over an evaluator that answers at once."""

import asyncio
import threading
from typing import Any, Literal

import pytest

from cuda_tui.errors import Cancelled
from cuda_tui.evaluation.profile.sanitizer import Check, Checked, Finding
from cuda_tui.evaluation.profile.sass import Disassembly, select
from cuda_tui.evaluation.progress import Line, Progress, SliceDone, StageBegan, StageDone, TrialDone
from cuda_tui.evaluation.report import (
    BuildReport,
    Code,
    Diagnostic,
    KernelRow,
    NotMeasured,
    OutputCheck,
    Profile,
    Report,
    Trial,
    Verdict,
    VerifyReport,
    Worst,
)
from cuda_tui.events import AnyEvent, LineLogged, SliceMeasured, StageEnded, StageStarted, TrialChecked
from cuda_tui.messages import BuildDetails, ProfileDetails, ReportDetails, TraceDetails
from cuda_tui.tools.evaluation import (
    BuildTool,
    EvaluatorThread,
    MeasureTool,
    ProfileTool,
    SanitizeTool,
    SassTool,
    TraceTool,
    VerifyTool,
)
from tests.agent.test_loop import report as passed_report
from tests.evaluation.profile.test_sass import TEXT as SASS

BAD = BuildReport(
    succeeded=False,
    seconds=1.5,
    target="cpu",
    toolchain="g++",
    log=".cuda-tui/build.log",
    diagnostics=(
        Diagnostic(file="kernels/a.cpp", severity="error", message="expected ';'", line=3, context=("int a",)),
        *(Diagnostic(file="kernels/a.cpp", severity="error", message=f"e{n}", line=n) for n in range(10)),
    ),
)

RACE = Finding(kind="race: write against read", kernel="sum", file="kernels/sum.cu", line=27, thread="thread (1,0,0)")


class FakeEvaluator:
    """Answers from attributes; `hold` makes `evaluate` wait for a cancel."""

    def __init__(self) -> None:
        self.on_progress: Any = lambda progress: None
        self.report = passed_report(1.5)
        self.progress: list[Progress] = []
        self.stopped_after: list[str] = []
        self.threads: set[int] = set()
        self.hold = False
        self.holding = threading.Event()
        self.cancelled = threading.Event()
        self.closed = False

    def check_reference(self) -> None:
        pass

    def warm_up(self) -> None:
        pass

    def trace(self) -> dict[str, Any]:
        node = {
            "name": "mul", "op": "aten.mul", "outputs": [{"dtype": "float32", "shape": [2, 3]}], "view": False,
            "bytes_read": 48, "bytes_written": 24, "flop": 6, "source": "model.py:7",
        }  # fmt: skip
        return {"nodes": [node], "device": "cpu", "mode": "eval", "totals": {"bytes_read": 48}}

    def build(self) -> BuildReport:
        return BAD

    def evaluate(self, *, stop_after: Literal["build", "verify", "measure"] = "measure") -> Report:
        self.threads.add(threading.get_ident())
        self.stopped_after.append(stop_after)
        for progress in self.progress:
            self.on_progress(progress)
        if self.hold:
            self.holding.set()
            self.cancelled.wait(10)
            return Report(
                verdict=Verdict.UNVERIFIED,
                code=Code.CANCELLED,
                message="cancelled",
                performance=NotMeasured(reason="c"),
            )
        return self.report

    def profile(self, subject: Literal["reference", "candidate"]) -> Profile:
        return Profile(subject=subject, total_us=10.0, rows=(KernelRow(name="mul", calls=1, total_us=9.0, share=0.9),))

    def sanitize(self, check: Check) -> Checked:
        return Checked(check=check, ran=True, findings=(RACE,), errors=4)

    def sass(self, kernel: str, line: int | None) -> Disassembly:
        return select(SASS, kernel=kernel, line=line)

    def cancel(self) -> None:
        self.cancelled.set()

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def fake() -> FakeEvaluator:
    return FakeEvaluator()


async def run(tool: Any, emit: Any = lambda event: None, **arguments: Any) -> Any:
    return await tool.run(arguments, emit=emit, cancel=asyncio.Event())


async def test_verify_and_measure_stop_where_their_names_say(fake: FakeEvaluator) -> None:
    thread = EvaluatorThread(lambda: fake)
    await run(VerifyTool(thread))
    result = await run(MeasureTool(thread), label="first")
    assert fake.stopped_after == ["verify", "measure"]
    assert result.details == ReportDetails(report=fake.report)
    assert "PASSED: ok" in result.content
    assert "1.500x [1.480, 1.520] faster" in result.content
    thread.close()
    assert fake.closed


async def test_evaluator_is_called_in_one_other_thread(fake: FakeEvaluator) -> None:
    thread = EvaluatorThread(lambda: fake)
    await run(VerifyTool(thread))
    await run(VerifyTool(thread))
    assert len(fake.threads) == 1
    assert threading.get_ident() not in fake.threads
    thread.close()


async def test_progress_becomes_transient_events(fake: FakeEvaluator) -> None:
    fake.progress = [
        StageBegan(stage="build"),
        Line(source="build", text="g++"),
        StageDone(stage="build", seconds=1.0),
        TrialDone(name="draw 1", passed=True),
        SliceDone(side="eager", process=1, processes=4, median_us=3.0),
    ]
    seen: list[AnyEvent] = []
    thread = EvaluatorThread(lambda: fake)
    await run(VerifyTool(thread), emit=seen.append)
    assert [type(event) for event in seen] == [StageStarted, LineLogged, StageEnded, TrialChecked, SliceMeasured]
    thread.close()


async def test_cancel_reaches_the_evaluator_and_ends_the_call(fake: FakeEvaluator) -> None:
    fake.hold = True
    thread = EvaluatorThread(lambda: fake)
    cancel = asyncio.Event()
    running = asyncio.create_task(MeasureTool(thread).run({}, emit=lambda _: None, cancel=cancel))
    await asyncio.to_thread(fake.holding.wait)
    cancel.set()
    with pytest.raises(Cancelled):
        await running
    thread.close()


async def test_failed_build_shows_the_first_errors_and_the_log(fake: FakeEvaluator) -> None:
    thread = EvaluatorThread(lambda: fake)
    result = await run(BuildTool(thread))
    lines = result.content.splitlines()
    assert lines[0].startswith("BUILD FAILED")
    assert lines[1] == "kernels/a.cpp:3: error: expected ';'"
    assert "[6 more errors]" in lines
    assert lines[-1] == "full log: .cuda-tui/build.log"
    assert result.is_error
    assert result.details == BuildDetails(build=BAD)
    thread.close()


async def test_rejected_candidate_shows_where_it_differs(fake: FakeEvaluator) -> None:
    check = OutputCheck(
        output="out", dtype="float32", shape=(2, 3), passed=False, error=0.5, limit=1e-6, eager_error=1e-7,
        worst=(Worst(index=(1, 2), expected=1.0, actual="nan"),),
    )  # fmt: skip
    trial = Trial(name="draw 1", checks=(check,), passed=False, code=Code.NUM_MISMATCH, reason="out differs")
    fake.report = Report(
        verdict=Verdict.REJECTED, code=Code.NUM_MISMATCH, message="draw 1: out differs",
        performance=NotMeasured(reason="rejected"),
        verify=VerifyReport(passed=False, trials=(trial,), tensors_compared=1, seconds=0.1),
    )  # fmt: skip
    thread = EvaluatorThread(lambda: fake)
    content = (await run(VerifyTool(thread))).content
    assert content.startswith("REJECTED(NUM_MISMATCH): draw 1: out differs")
    assert "at [1, 2]: expected 1, got nan" in content
    assert "not measured: rejected" in content
    thread.close()


async def test_trace_and_profile_are_tables(fake: FakeEvaluator) -> None:
    thread = EvaluatorThread(lambda: fake)
    trace = await run(TraceTool(thread))
    assert "mul = aten.mul -> float32[2, 3]  48 + 24 B, 6 FLOP  model.py:7" in trace.content
    assert isinstance(trace.details, TraceDetails)
    profile = await run(ProfileTool(thread), subject="reference")
    assert "90.0%" in profile.content
    assert isinstance(profile.details, ProfileDetails)
    thread.close()


async def test_sanitizer_names_kernel_line_and_thread(fake: FakeEvaluator) -> None:
    thread = EvaluatorThread(lambda: fake)
    result = await run(SanitizeTool(thread), check="racecheck")
    assert result.content.splitlines() == [
        "racecheck: 4 errors, one of them described",
        "sum at kernels/sum.cu:27: race: write against read (thread (1,0,0))",
    ]
    thread.close()


async def test_machine_code_is_counts_then_lines_then_one_lines_code(fake: FakeEvaluator) -> None:
    thread = EvaluatorThread(lambda: fake)
    lines = (await run(SassTool(thread), kernel="silu", line=14)).content.splitlines()
    assert lines[0].startswith("silu [sm_90a]: 8 instructions; 2 global load, 16 bytes, ")
    assert lines[lines.index("code of kernels/silu.cu:14:") + 1] == "    MUFU.EX2 R5, R4"
    assert lines[-1] == "not shown: sum"
    missing = await run(SassTool(thread), kernel="softmax")
    assert missing.content == "no kernel's name contains 'softmax'\nkernels here: silu, sum"
    thread.close()
