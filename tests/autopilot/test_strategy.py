"""The autopilot's decisions, against tools that answer as the test says."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from cuda_tui.agent.protocols import Request
from cuda_tui.autopilot.provider import Autopilot, next_reply
from cuda_tui.evaluation.report import (
    BuildReport,
    Code,
    Diagnostic,
    Measured,
    NotMeasured,
    Ratio,
    Report,
    Timing,
    Verdict,
)
from cuda_tui.evaluation.worker.trace import trace
from cuda_tui.events import TextStreamed
from cuda_tui.messages import (
    AssistantReply,
    Message,
    ReadDetails,
    ReportDetails,
    StopReason,
    ToolCall,
    ToolReply,
    ToolResult,
    TraceDetails,
    UserText,
)
from cuda_tui.session.log import INTERRUPTED
from tests.autopilot.tracing import torch

pytestmark = pytest.mark.slow  # each test traces a model

SOURCE = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.eye(256))

    def forward(self, x):
        first = torch.tanh(x * 2 + 1) * 3
        return torch.softmax((first @ self.weight) * 0.5, -1)
"""
Judge = Callable[[str, dict[str, str]], Report]


def report(eager: float) -> Report:
    """A verified measurement."""
    timing = Timing(name="candidate", process_medians_us=(100.0,), calls=9, slices=3)
    base = Timing(name="eager", process_medians_us=(100.0 * eager,), calls=9, slices=3)
    ratio = Ratio(baseline="eager", value=eager, low=eager - 0.01, high=eager + 0.01)
    measured = Measured(candidate=timing, baselines=(base,), ratios=(ratio,), method="test", device="test")
    return Report(verdict=Verdict.PASSED, message="verified", performance=measured)


def rejected(code: Code = Code.NUM_MISMATCH, build: BuildReport | None = None) -> Report:
    return Report(
        verdict=Verdict.REJECTED, message="wrong", performance=NotMeasured(reason="rejected"), code=code, build=build
    )


class Desk:
    """Plays the loop: runs the calls against files in memory and a judge of candidates."""

    def __init__(self, judge: Judge, *, source: str = SOURCE, model: torch.nn.Module | None = None) -> None:
        self.judge = judge
        self.source = source
        self.files: dict[str, str] = {}
        self.calls: list[ToolCall] = []
        self.messages: list[Message] = [UserText(text="make it fast")]
        scope: dict[str, Any] = {}
        exec(source, scope)  # the test's own text
        self.model = model or scope["Model"]().eval()

    def run(self, *, turns: int = 40) -> list[AssistantReply]:
        """All replies until the autopilot ends."""
        replies = []
        for _ in range(turns):
            reply = next_reply(self.messages)
            replies.append(reply)
            self.messages.append(reply)
            if reply.stop is StopReason.END:
                return replies
            for call in reply.tool_calls:
                self.calls.append(call)
                self.messages.append(ToolReply(call_id=call.id, name=call.name, result=self.answer(call)))
        raise AssertionError("the autopilot does not end")

    def answer(self, call: ToolCall) -> ToolResult:
        match call.name:
            case "read" if call.arguments["path"] == "task.toml":
                return ToolResult(content="", details=ReadDetails(path="task.toml", text='device = "cpu"\n'))
            case "read":
                return ToolResult(content="", details=ReadDetails(path="model.py", text=self.source))
            case "trace_model":
                found = trace(self.model, (torch.randn(512, 256),), {})
                return ToolResult(content="", details=TraceDetails(trace=found))
            case "write":
                self.files[call.arguments["path"]] = call.arguments["content"]
            case "restore":
                self.files.clear()
            case "measure" | "verify":
                found_report = self.judge(call.name, self.files)
                return ToolResult(content=found_report.message, details=ReportDetails(report=found_report))
            case _:
                pass
        return ToolResult(content="done")

    def named(self, name: str) -> list[ToolCall]:
        return [call for call in self.calls if call.name == name]


def test_a_faster_candidate_is_kept_and_reported_with_its_interval() -> None:
    desk = Desk(lambda tool, files: report(2.0))
    desk.run()
    assert "cuda_extension." in desk.files["model_new.py"]
    summary = desk.named("finish")[-1].arguments["summary"]
    assert "2.00x [1.99, 2.01] against eager, faster" in summary
    assert "matmul" in summary


def test_hypothesis_is_noted_before_and_result_after() -> None:
    desk = Desk(lambda tool, files: report(2.0))
    desk.run()
    names = [call.name for call in desk.calls]
    assert names.index("note") < names.index("measure")
    assert "Predicted saving" in desk.named("note")[0].arguments["text"]
    assert desk.named("note")[-1].arguments["text"].startswith("## Result")


def test_a_group_that_is_wrong_is_found_and_dropped() -> None:
    desk = Desk(lambda tool, files: rejected() if any("tanh" in path for path in files) else report(1.5))
    desk.run()
    assert not any("tanh" in path for path in desk.files)
    assert any("softmax" in path for path in desk.files)
    assert "Dropped" in desk.named("finish")[-1].arguments["summary"]


def test_a_kernel_that_does_not_compile_is_dropped_by_the_compiler_s_word() -> None:
    def judge(tool: str, files: dict[str, str]) -> Report:
        bad = next((path for path in files if "tanh" in path), None)
        if bad is None:
            return report(1.5)
        error = Diagnostic(file=bad, severity="error", message="no", line=1)
        build = BuildReport(succeeded=False, seconds=1.0, target="cpu", toolchain="g++", diagnostics=(error,))
        return rejected(Code.BUILD, build)

    desk = Desk(judge)
    desk.run()
    assert desk.named("verify") == []
    assert not any("tanh" in path for path in desk.files)


def test_nothing_faster_restores_the_start_and_says_so() -> None:
    desk = Desk(lambda tool, files: report(1.0))
    desk.run()
    assert desk.files == {}
    assert "nothing that helps" in desk.named("finish")[-1].arguments["summary"]


def test_the_best_of_several_candidates_is_put_back() -> None:
    gains = iter([2.0, 1.5, 1.4, 1.3, 1.9])
    desk = Desk(lambda tool, files: report(next(gains)))
    desk.run()
    first = next(index for index, call in enumerate(desk.calls) if call.name == "measure")
    best = {call.arguments["path"]: call.arguments["content"] for call in desk.calls[:first] if call.name == "write"}
    assert desk.files == best


def test_the_winner_is_worth_what_it_measures_afresh() -> None:
    gains = iter([2.0, 1.5, 1.9, 1.3, 1.2])
    desk = Desk(lambda tool, files: report(next(gains)))
    desk.run()
    assert "afresh" in desk.named("measure")[-1].arguments["label"]
    last = [2.0, 1.5, 1.9, 1.3, 1.2][len(desk.named("measure")) - 1]
    assert f"{last:.2f}x" in desk.named("finish")[-1].arguments["summary"]


def test_a_win_that_does_not_hold_when_measured_afresh_is_not_claimed() -> None:
    gains = iter([2.0, 0.8, 0.8, 0.8, 0.8])
    desk = Desk(lambda tool, files: report(next(gains) if len(desk.named("measure")) < 2 else 1.0))
    desk.run()
    assert "nothing that helps" in desk.named("finish")[-1].arguments["summary"]


def test_an_untraceable_model_ends_with_the_reason() -> None:
    desk = Desk(lambda tool, files: report(1.0))
    plain = desk.answer
    desk.answer = lambda call: (  # type: ignore[method-assign]
        ToolResult(content="control flow depends on values", is_error=True)
        if call.name == "trace_model"
        else plain(call)
    )
    desk.run()
    assert "control flow depends on values" in desk.named("finish")[-1].arguments["summary"]
    assert desk.named("write") == []


def test_a_model_of_one_library_call_is_left_alone() -> None:
    source = "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x @ x.t()\n"
    desk = Desk(lambda tool, files: report(1.0), source=source)
    desk.run()
    assert desk.named("write") == []
    assert "nothing to gain" in desk.named("finish")[-1].arguments["summary"]


def test_a_rejected_write_ends_the_attempt_without_measuring() -> None:
    desk = Desk(lambda tool, files: report(2.0))
    plain = desk.answer
    desk.answer = lambda call: (  # type: ignore[method-assign]
        ToolResult(content="rejected: not now", is_error=True) if call.name == "write" else plain(call)
    )
    desk.run()
    assert desk.named("measure") == []
    assert "rejected: not now" in desk.named("finish")[-1].arguments["summary"]


@pytest.mark.parametrize("name", ["read", "trace_model", "write", "measure", "note", "finish"])
def test_a_call_that_was_cut_short_is_made_again(name: str) -> None:
    undisturbed = Desk(lambda tool, files: report(2.0))
    undisturbed.run()
    desk = Desk(lambda tool, files: report(2.0))
    plain = desk.answer
    cut: list[ToolCall] = []

    def answer(call: ToolCall) -> ToolResult:
        if call.name != name or cut:
            return plain(call)
        cut.append(call)
        return ToolResult(content=INTERRUPTED, is_error=True)

    desk.answer = answer  # type: ignore[method-assign]
    desk.run()
    assert desk.files == undisturbed.files
    assert len(desk.named(name)) > len(undisturbed.named(name))
    assert desk.named("finish")[-1].arguments == undisturbed.named("finish")[-1].arguments


def test_the_same_conversation_gives_the_same_reply() -> None:
    desk = Desk(lambda tool, files: report(2.0))
    desk.run()
    for end in range(1, len(desk.messages)):
        if isinstance(desk.messages[end], AssistantReply):
            assert next_reply(desk.messages[:end]) == desk.messages[end]


def test_calls_of_another_provider_in_the_history_are_passed_over() -> None:
    other = AssistantReply(tool_calls=(ToolCall(id="x1", name="read", arguments={"path": "a"}),))
    answer = ToolReply(call_id="x1", name="read", result=ToolResult(content="a"))
    reply = next_reply((UserText(text="go"), other, answer))
    assert [call.name for call in reply.tool_calls] == ["read", "trace_model"]


def test_stream_ends_with_the_whole_reply() -> None:
    async def collect() -> list[Any]:
        request = Request(system="", messages=(UserText(text="go"),), tools=())
        return [chunk async for chunk in Autopilot().stream(request)]

    *deltas, last = asyncio.run(collect())
    assert isinstance(last, AssistantReply)
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextStreamed)) == last.text
