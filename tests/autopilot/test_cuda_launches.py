"""How the autopilot chooses launches on a GPU, against a judge that gives every kernel a time."""

from collections.abc import Callable

import msgspec
import pytest

from cuda_tui.autopilot.cuda_launches import kernel_times
from cuda_tui.evaluation.report import Ceiling, Code, KernelRow, Profile, Report
from cuda_tui.evaluation.worker.trace import trace
from cuda_tui.messages import ReadDetails, ToolCall, ToolResult, TraceDetails
from tests.autopilot.test_strategy import Desk, rejected, report
from tests.autopilot.tracing import torch

pytestmark = pytest.mark.slow  # each test traces a model

LONG_ROWS = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax((x * 2).reshape(-1, 262144), -1)
"""


def profiled(files: dict[str, str], time_us: Callable[[str, str], float]) -> Report:
    """A verified measurement whose profile gives each kernel the time that `time_us` says for its name and text."""
    names = {path.split("/")[-1].removesuffix(".cu"): text for path, text in files.items() if path.endswith(".cu")}
    rows = tuple(
        KernelRow(name=f"void (anonymous namespace)::{name}_kernel<true>(float const*)", calls=1,
                  total_us=time_us(name, text), share=0.1, authored=True)
        for name, text in names.items()
    )  # fmt: skip
    return msgspec.structs.replace(report(2.0), profile=Profile(subject="candidate", rows=rows, total_us=50.0))


class GpuDesk(Desk):
    """A workspace for an H200."""

    batch = 512

    def answer(self, call: ToolCall) -> ToolResult:
        if call.name == "read" and call.arguments["path"] == "task.toml":
            return ToolResult(content="", details=ReadDetails(path="task.toml", text='device = "cuda"\n'))
        if call.name == "trace_model":
            gpu = {"name": "NVIDIA H200", "capability": [9, 0]}
            found = trace(self.model, (torch.empty(self.batch, 256),), {}) | {"gpu": gpu}
            return ToolResult(content="", details=TraceDetails(trace=found))
        return super().answer(call)


def test_each_kernel_gets_the_launch_that_was_fastest_for_it() -> None:
    def time_us(name: str, text: str) -> float:
        fast = "n < 2;" in text if name == "tanh" else "__launch_bounds__(64)" not in text
        return 10.0 if fast else 20.0

    desk = GpuDesk(lambda tool, files: profiled(files, time_us))
    desk.run()
    assert "n < 2;" in desk.files["kernels/tanh.cu"]
    labels = [call.arguments["label"] for call in desk.named("measure")]
    assert labels[1:] == ["launches, round 1", "launches, round 2", "the best launch of each kernel"]


def test_launches_that_change_nothing_leave_the_rules_choice() -> None:
    first: dict[str, str] = {}

    def judge(tool: str, files: dict[str, str]) -> Report:
        first.update(files if not first else {})
        return profiled(files, lambda name, text: 10.0)

    desk = GpuDesk(judge)
    desk.run()
    assert desk.files == first
    assert desk.named("measure")[-1].arguments["label"] == "the winner, measured afresh"


@pytest.mark.parametrize("gain", [1.0, 0.5, 0.01])
def test_a_session_takes_at_most_three_measurements_after_the_first(gain: float) -> None:
    times = iter(10.0 * gain**number for number in range(1000))
    desk = GpuDesk(lambda tool, files: profiled(files, lambda name, text: next(times)))
    desk.run()
    assert len(desk.named("measure")) <= 4
    assert desk.named("profile") == []


def test_launches_that_save_too_little_of_the_call_are_not_measured_together() -> None:
    times = iter(0.5 * 0.7**number for number in range(1000))
    desk = GpuDesk(lambda tool, files: profiled(files, lambda name, text: next(times)))
    desk.run()
    assert "the best launch of each kernel" not in [call.arguments["label"] for call in desk.named("measure")]


def test_clusters_that_are_rejected_are_replaced_by_single_blocks() -> None:
    def judge(tool: str, files: dict[str, str]) -> Report:
        clustered = any("launch_cluster" in text for path, text in files.items() if path.endswith(".cu"))
        return rejected(Code.LAUNCH_ERROR) if clustered else profiled(files, lambda name, text: 10.0)

    desk = GpuDesk(judge, source=LONG_ROWS)
    desk.batch = 1 << 18
    desk.run()
    labels = [call.arguments["label"] for call in desk.named("measure")]
    assert labels[:2] == ["all groups fused", "without clusters"]
    assert any("softmax" in path for path in desk.files)
    assert "Dropped" not in desk.named("finish")[-1].arguments["summary"]


def test_a_round_that_is_rejected_says_nothing_about_its_launches() -> None:
    rounds = iter(range(100))

    def judge(tool: str, files: dict[str, str]) -> Report:
        return profiled(files, lambda name, text: 10.0) if next(rounds) != 1 else rejected(Code.NUM_MISMATCH)

    desk = GpuDesk(judge)
    desk.run()
    assert "2.00x" in desk.named("finish")[-1].arguments["summary"]


def test_the_summary_gives_each_kernel_its_share_of_the_bandwidth() -> None:
    desk = GpuDesk(lambda tool, files: profiled(files, lambda name, text: 1.0))
    desk.run()
    summary = desk.named("finish")[-1].arguments["summary"]
    assert "- tanh: 1.05 MB in 1 us, 25% of the bandwidth of a copy (predicted" in summary


def test_the_bandwidth_that_the_report_s_profile_measured_counts_before_the_expected_one() -> None:
    copy = Ceiling(name="copy", value=2000.0, spread=0.01, samples=5)

    def judge(tool: str, files: dict[str, str]) -> Report:
        found = profiled(files, lambda name, text: 1.0)
        assert found.profile is not None
        return msgspec.structs.replace(found, profile=msgspec.structs.replace(found.profile, ceilings=(copy,)))

    desk = GpuDesk(judge)
    desk.run()
    assert "52% of the bandwidth of a copy" in desk.named("finish")[-1].arguments["summary"]


def test_the_passes_of_a_kernel_count_together_and_similar_names_do_not() -> None:
    rows = [("loss_pass1<true>(float*)", 5.0), ("loss_join<true>(float*)", 1.0), ("my_loss_kernel<true>()", 9.0),
            ("loss_2_kernel<true>()", 7.0)]  # fmt: skip
    profile = Profile(
        subject="candidate", total_us=22.0,
        rows=tuple(KernelRow(name=name, calls=1, total_us=us, share=0.1) for name, us in rows),
    )  # fmt: skip
    found = msgspec.structs.replace(report(2.0), profile=profile)
    assert kernel_times(found, ["loss", "loss_2", "other"]) == {"loss": 6.0, "loss_2": 7.0}
