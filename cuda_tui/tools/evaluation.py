"""trace_model, build, verify, measure, profile: the evaluator's steps, moved to a thread."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, Protocol, TypeVar

from cuda_tui.agent.protocols import Emit, Proposal
from cuda_tui.errors import Cancelled
from cuda_tui.evaluation.profile.sanitizer import CHECKS, Check, Checked
from cuda_tui.evaluation.profile.sass import Disassembly
from cuda_tui.evaluation.progress import Line, Progress, SliceDone, StageBegan, StageDone, TrialDone
from cuda_tui.evaluation.report import BuildReport, Code, Profile, Report
from cuda_tui.events import AnyEvent, LineLogged, SliceMeasured, StageEnded, StageStarted, TrialChecked
from cuda_tui.messages import BuildDetails, Effect, ProfileDetails, ReportDetails, ToolResult, ToolSpec, TraceDetails
from cuda_tui.tools.base import clipped, integer, schema, spec, text
from cuda_tui.tools.wording import build_text, checked_text, profile_text, report_text, sass_text, trace_text

T = TypeVar("T")
CANCEL_AGAIN_S = 0.1


class Evaluates(Protocol):
    """What the tools need of `evaluation.pipeline.Evaluator`; blocking."""

    on_progress: Callable[[Progress], None]

    def check_reference(self) -> None: ...

    def warm_up(self) -> None: ...

    def trace(self) -> dict[str, Any]: ...

    def build(self) -> BuildReport: ...

    def evaluate(self, *, stop_after: Literal["build", "verify", "measure"] = "measure") -> Report: ...

    def profile(self, subject: Literal["reference", "candidate"]) -> Profile: ...

    def sanitize(self, check: Check) -> Checked: ...

    def sass(self, kernel: str, line: int | None) -> Disassembly: ...

    def cancel(self) -> None: ...

    def close(self) -> None: ...


class EvaluatorThread:
    """One evaluator and the one thread that calls it. `make` is called there, on first use: it starts workers."""

    def __init__(self, make: Callable[[], Evaluates]) -> None:
        self._make = make
        self._evaluator: Evaluates | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="evaluator")

    async def call(self, work: Callable[[Evaluates], T], *, emit: Emit, cancel: asyncio.Event) -> T:
        """Do `work` in the thread; its progress becomes transient events. A cancel is passed on at once."""
        stop = threading.Event()
        working = asyncio.wrap_future(self._thread.submit(self._work, work, emit, stop))
        stopping = asyncio.ensure_future(cancel.wait())
        watched: set[asyncio.Future[Any]] = {working, stopping}
        try:
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            while not working.done():
                self._cancel(stop)  # again and again: a call that is just beginning forgets an earlier cancel
                await asyncio.wait({working}, timeout=CANCEL_AGAIN_S)
            return working.result()
        finally:
            if not working.done():
                self._cancel(stop)
            stopping.cancel()

    def _cancel(self, stop: threading.Event) -> None:
        stop.set()
        if self._evaluator is not None:
            self._evaluator.cancel()

    def close(self) -> None:
        """End what runs, the workers and the thread. Blocking."""
        if self._evaluator is not None:
            self._evaluator.cancel()
            self._thread.submit(self._evaluator.close).result()
        self._thread.shutdown()

    def _work(self, work: Callable[[Evaluates], T], emit: Emit, stop: threading.Event) -> T:
        if self._evaluator is None:
            self._evaluator = self._make()
        if stop.is_set():
            raise Cancelled("stopped before the evaluation began")
        self._evaluator.on_progress = lambda progress: emit(event_of(progress))
        return work(self._evaluator)


def event_of(progress: Progress) -> AnyEvent:
    """The transient event for a progress record."""
    match progress:
        case Line(source=source, text=line):
            return LineLogged(source=source, text=line)
        case StageBegan(stage=stage, detail=detail):
            return StageStarted(stage=stage, detail=detail)
        case StageDone(stage=stage, seconds=seconds, summary=summary):
            return StageEnded(stage=stage, seconds=seconds, summary=summary)
        case TrialDone(name=name, passed=passed, detail=detail):
            return TrialChecked(name=name, passed=passed, detail=detail)
        case SliceDone(side=side, process=process, processes=processes, median_us=median_us):
            return SliceMeasured(side=side, process=process, processes=processes, median_us=median_us)


class _EvaluationTool:
    """A step of the evaluator. It runs only the workspace's own code, in the sandbox, and needs no approval."""

    def __init__(self, evaluator: EvaluatorThread) -> None:
        self._evaluator = evaluator

    def propose(self, arguments: dict[str, Any]) -> Proposal:
        """Nothing to decide on."""
        return Proposal()


class TraceTool(_EvaluationTool):
    """The reference's operators."""

    spec: ToolSpec = spec(
        "trace_model",
        Effect.READ,
        """The reference's operators in order, with shapes, bytes moved, FLOP and source lines. Look here first: it says
        what could be fused and what bounds it.""",
        schema(),
    )

    async def run(self, arguments: dict[str, Any], *, emit: Emit, cancel: asyncio.Event) -> ToolResult:
        trace = await self._evaluator.call(lambda evaluator: evaluator.trace(), emit=emit, cancel=cancel)
        return ToolResult(content=clipped(trace_text(trace)), details=TraceDetails(trace=trace))


class BuildTool(_EvaluationTool):
    """Compiles the kernels."""

    spec: ToolSpec = spec(
        "build",
        Effect.READ,
        """Compile kernels/ and report the first distinct errors, or each kernel's registers, shared memory and
        spills. `verify` and `measure` build by themselves.""",
        schema(),
    )

    async def run(self, arguments: dict[str, Any], *, emit: Emit, cancel: asyncio.Event) -> ToolResult:
        build = await self._evaluator.call(lambda evaluator: evaluator.build(), emit=emit, cancel=cancel)
        content = clipped(build_text(build))
        return ToolResult(content=content, is_error=not build.succeeded, details=BuildDetails(build=build))


class _ReportTool(_EvaluationTool):
    stop_after: Literal["verify", "measure"]

    async def run(self, arguments: dict[str, Any], *, emit: Emit, cancel: asyncio.Event) -> ToolResult:
        report = await self._evaluator.call(
            lambda evaluator: evaluator.evaluate(stop_after=self.stop_after), emit=emit, cancel=cancel
        )
        if report.code is Code.CANCELLED:
            raise Cancelled("the evaluation was stopped")
        return ToolResult(content=clipped(report_text(report)), details=ReportDetails(report=report))


_LABEL = {"label": text("a few words: what this candidate tries")}


class VerifyTool(_ReportTool):
    """Correctness only."""

    stop_after: Literal["verify", "measure"] = "verify"
    spec: ToolSpec = spec(
        "verify",
        Effect.READ,
        """Build the candidate and compare it with the reference on fresh inputs against an fp64 computation. Shows the
        first failed trial with its worst elements. Takes seconds; use it after each change.""",
        schema(optional=_LABEL),
    )


class MeasureTool(_ReportTool):
    """Correctness, then speed."""

    stop_after: Literal["verify", "measure"] = "measure"
    spec: ToolSpec = spec(
        "measure",
        Effect.READ,
        """Build, verify, then time the candidate side by side with eager and torch.compile in fresh processes. Gives
        ratios with 95% intervals; only an interval above 1.01 counts as faster.""",
        schema(optional=_LABEL),
    )


class ProfileTool(_EvaluationTool):
    """Where the time goes."""

    spec: ToolSpec = spec(
        "profile",
        Effect.READ,
        """Where the time of one side goes, and what to look at first. On a GPU: kernels by device time with launch
        shape, occupancy and share of this device's measured roof, ncu's counters of the heaviest ones where the
        machine permits them, idle times, launches. On the CPU: operators. Each row says what it is known from.""",
        schema({"subject": text("which side", enum=["reference", "candidate"])}),
    )

    async def run(self, arguments: dict[str, Any], *, emit: Emit, cancel: asyncio.Event) -> ToolResult:
        subject = arguments["subject"]
        profile = await self._evaluator.call(lambda evaluator: evaluator.profile(subject), emit=emit, cancel=cancel)
        return ToolResult(content=clipped(profile_text(profile)), details=ProfileDetails(profile=profile))


class SanitizeTool(_EvaluationTool):
    """compute-sanitizer on the candidate."""

    spec: ToolSpec = spec(
        "sanitize",
        Effect.READ,
        """Run one call of the candidate under compute-sanitizer and report the first distinct errors with kernel,
        line and thread. memcheck: accesses out of bounds or misaligned. racecheck: races in shared memory. initcheck:
        reads of memory that nobody wrote. synccheck: barriers inside a parted warp, wrong warp masks; it does not see
        whole warps that skip a barrier. 10 to 100 times slower than a call: use it after a fault, after results that
        change from run to run, and before finishing.""",
        schema({"check": text("which check", enum=list(CHECKS))}),
    )

    async def run(self, arguments: dict[str, Any], *, emit: Emit, cancel: asyncio.Event) -> ToolResult:
        check: Check = arguments["check"]
        found = await self._evaluator.call(lambda evaluator: evaluator.sanitize(check), emit=emit, cancel=cancel)
        return ToolResult(content=clipped(checked_text(found)))


class SassTool(_EvaluationTool):
    """The machine code of a kernel."""

    spec: ToolSpec = spec(
        "sass",
        Effect.READ,
        """Build, then show what the compiler made of a kernel: instructions by class and width (are global loads 16
        bytes wide, is the tensor core used, does an array lie in local memory), the source lines with most
        instructions, and the beginning of one line's code. Costs no GPU time.""",
        schema(
            {"kernel": text("part of the kernel's name; empty for all")},
            {
                "line": integer(
                    "line of the source whose code to show; without it one with matrix or memory instructions"
                )
            },
        ),
    )

    async def run(self, arguments: dict[str, Any], *, emit: Emit, cancel: asyncio.Event) -> ToolResult:
        kernel, line = arguments["kernel"], arguments.get("line")
        found = await self._evaluator.call(lambda evaluator: evaluator.sass(kernel, line), emit=emit, cancel=cancel)
        return ToolResult(content=clipped(sass_text(found)))
