"""The profile tools on a real GPU: kernels, counters, roof, checks, machine code. Figures are printed with -s."""

from collections.abc import Callable

import pytest

from cuda_tui.evaluation.profile import programs
from cuda_tui.evaluation.profile.names import plain
from cuda_tui.evaluation.profile.ncu import Ncu
from cuda_tui.evaluation.profile.occupancy import occupancy
from cuda_tui.evaluation.profile.sanitizer import Check, Checked
from cuda_tui.evaluation.report import KernelRow, Profile
from cuda_tui.nvml import Nvml
from cuda_tui.tools.wording import checked_text, profile_text, sass_text

from .conftest import Bench, say

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

MODEL = """
import torch


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(width, width) / width**0.5)

    def forward(self, x):
        return torch.nn.functional.silu(torch.mm(x, self.weight)) * 2.0


def get_inputs():
    return [torch.randn(8192, 1024)]


def get_init_inputs():
    return [1024]
"""
MODEL_NEW = """
import cuda_extension
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(width, width))

    def forward(self, x):
        return cuda_extension.twice_silu(torch.mm(x, self.weight))
"""
KERNEL = """
#include <cuda_runtime.h>
__global__ void twice_silu_kernel(const float4* x, float4* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float4 v = x[i];
  v.x = 2.f * v.x / (1.f + expf(-v.x)); v.y = 2.f * v.y / (1.f + expf(-v.y));
  v.z = 2.f * v.z / (1.f + expf(-v.z)); v.w = 2.f * v.w / (1.f + expf(-v.w));
  out[i] = v;
}
extern "C" void twice_silu_launch(const float* x, float* out, int n, void* stream) {
  twice_silu_kernel<<<(n / 4 + 255) / 256, 256, 0, static_cast<cudaStream_t>(stream)>>>(
      reinterpret_cast<const float4*>(x), reinterpret_cast<float4*>(out), n / 4);
}
"""
BINDING = """
#include "cuda_tui.h"
using torch::stable::Tensor;
extern "C" void twice_silu_launch(const float* x, float* out, int n, void* stream);
static Tensor twice_silu(const Tensor& x) {
  Tensor out = torch::stable::empty_like(x);
  twice_silu_launch(cuda_tui::input<float>(x), cuda_tui::output<float>(out), static_cast<int>(x.numel()),
                    cuda_tui::current_stream(x));
  return out;
}
CUDA_TUI_OPS(m) { m.def("twice_silu(Tensor x) -> Tensor"); }
CUDA_TUI_IMPL(CUDA, m) { m.impl("twice_silu", TORCH_BOX(&twice_silu)); }
"""
STORE = "  out[i] = v;\n"
PLANTED = {
    "memcheck": ("  out[i + (1ll << 36)] = v;\n", "Invalid __global__ write"),
    "racecheck": (
        "  __shared__ float near[256]; near[threadIdx.x] = v.x; v.x = near[(threadIdx.x + 33) % 256];\n" + STORE,
        "race",
    ),
    "initcheck": ("  v.x += out[i].x;\n" + STORE, "Uninitialized __global__ memory read"),
    "synccheck": ("  if (threadIdx.x < 128) __syncthreads();\n" + STORE, "Barrier error"),
}


@pytest.fixture(scope="module")
def silu(make_bench: Callable[..., Bench]) -> Bench:
    """The model above with its honest candidate."""
    bench = make_bench(MODEL)
    honest(bench)
    return bench


def honest(bench: Bench, kernel: str = KERNEL) -> None:
    """Write the candidate, and build it."""
    report = bench.evaluate(MODEL_NEW, "build", silu__cu=kernel, silu_binding__cpp=BINDING)
    assert report.build is not None
    assert report.build.succeeded, report.message


@pytest.fixture(scope="module")
def candidate(silu: Bench) -> Profile:
    """The profile of the honest candidate."""
    return silu.evaluator.profile("candidate")


@pytest.fixture(scope="module")
def reference(silu: Bench, candidate: Profile) -> Profile:
    """The profile of the model, with the ceilings that the candidate's profile measured."""
    return silu.evaluator.profile("reference")


def authored(profile: Profile) -> KernelRow:
    """The candidate's own kernel."""
    (row,) = [row for row in profile.rows if row.authored]
    return row


def test_candidates_kernel_is_named_and_counted_as_its_own(candidate: Profile) -> None:
    say("\n" + profile_text(candidate))
    row = authored(candidate)
    assert plain(row.name) == "twice_silu_kernel"
    assert (row.block, row.grid) == (256, 8192)
    assert len(candidate.rows) >= 2
    assert 0.05 < row.share < 0.95


def test_time_line_is_consistent(candidate: Profile) -> None:
    line = candidate.timeline
    assert line is not None
    assert line.launches >= 2
    assert 0 < line.busy_us <= 1.05 * candidate.total_us
    assert line.busy_us < 1.2 * line.wall_us


def test_ceilings_are_plausible_and_steady(candidate: Profile) -> None:
    found = {item.name: item for item in candidate.ceilings}
    say({name: (round(item.value), f"{item.spread:.1%}", item.samples) for name, item in found.items()})
    assert set(found) == {"copy", "fp32", "tf32", "bf16", "fp16"}
    assert found["copy"].value > 100
    assert found["bf16"].value > found["tf32"].value > found["fp32"].value
    assert found["copy"].spread < 0.05


def test_counters_give_the_roof_and_agree_with_our_occupancy(silu: Bench, candidate: Profile) -> None:
    access = silu.evaluator._tools.ncu.access()
    if not access.ok:
        assert access.message
        assert any(access.message in note for note in candidate.notes)
        pytest.skip(access.message)
    row = authored(candidate)
    assert row.counters is not None
    assert row.occupancy is not None
    say(row.counters, row.occupancy, row.roofline_share, row.total_us)
    assert row.counters.sectors_per_load == 16.0
    assert row.counters.stalls
    assert row.counters.memory_share is not None
    assert row.bytes_moved is not None
    assert 0.95 < row.bytes_moved / (2 * 8192 * 1024 * 4) < 1.1, "32 MiB read and as much written"
    assert row.roofline_share is not None
    assert 0.3 < row.roofline_share < 1.2
    assert abs(row.counters.time_us / row.total_us - 1) < 0.5
    capability = Nvml.open().read(0).capability
    for item in candidate.rows:
        if item.counters is not None and item.occupancy is not None and item.block and item.registers and capability:
            ours = occupancy(
                capability, threads=item.block, registers=item.registers, shared_bytes=item.shared_bytes or 0
            )
            say(item.name[:40], item.block, item.registers, item.shared_bytes, ours, item.occupancy)
            if item.authored:
                assert ours is not None
                assert ours.theoretical == pytest.approx(item.occupancy.theoretical, abs=0.01)


def test_reference_has_kernels_with_operators_and_a_floor(reference: Profile) -> None:
    say("\n" + profile_text(reference))
    assert {"aten::mm", "aten::silu", "aten::mul"} <= {row.operator for row in reference.rows}
    assert not any(row.authored for row in reference.rows)
    assert reference.floor_us is not None
    assert reference.floor_us < reference.total_us
    roofed = {row.operator: row.roofline_share for row in reference.rows}
    assert roofed["aten::silu"] is not None


def test_without_ncu_the_profile_stands_and_says_so_once(silu: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = silu.evaluator._tools
    monkeypatch.setattr(programs, "find", lambda name, **_: None)
    monkeypatch.setattr(tools, "ncu", Ncu(tools.solo))
    monkeypatch.setattr(tools, "_told", False)
    honest(silu)
    first, second = (silu.evaluator.profile("candidate") for _ in range(2))
    assert [("ncu is not installed" in note) for note in first.notes] == [True]
    assert second.notes == ()
    row = authored(second)
    assert row.counters is None
    assert row.occupancy is not None
    assert row.evidence == "torch.profiler"


def check(bench: Bench, name: Check) -> Checked:
    found = bench.evaluator.sanitize(name)
    say(checked_text(found))
    if "not installed" in found.problem or "not supported" in found.problem:
        pytest.skip(found.problem)
    assert found.ran, found.problem
    return found


@pytest.mark.parametrize("name", PLANTED)
def test_check_names_kernel_and_line_of_a_planted_error(silu: Bench, name: Check) -> None:
    planted, words = PLANTED[name]
    honest(silu, KERNEL.replace(STORE, planted))
    found = check(silu, name)
    own = [item for item in found.findings if item.kernel == "twice_silu_kernel"]
    assert own, found.findings
    assert words in own[0].kind
    assert own[0].file == "kernels/silu.cu"
    assert own[0].line is not None


def test_clean_candidate_passes_memcheck(silu: Bench) -> None:
    honest(silu)
    assert check(silu, "memcheck").findings == ()


def test_machine_code_has_wide_loads_and_the_lines_they_come_from(silu: Bench) -> None:
    honest(silu)
    found = silu.evaluator.sass("twice_silu", None)
    say("\n" + sass_text(found))
    if "not installed" in found.problem:
        pytest.skip(found.problem)
    (kernel,) = found.kernels
    assert kernel.classes["global load, 16 bytes"] == 1
    assert kernel.classes["global store, 16 bytes"] == 1
    assert kernel.lines[0].place.startswith("kernels/silu.cu:")
    line = 1 + KERNEL.splitlines().index("  float4 v = x[i];")
    (loaded,) = silu.evaluator.sass("twice_silu", line).kernels
    assert any("LDG.E.128" in text for text in loaded.excerpt)
