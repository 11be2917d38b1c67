"""The profile tools on a real GPU: kernels, counters, roof, checks, machine code. Figures are printed with -s.

One workspace, built once: its library holds the honest kernel and one with an error for each check, and which one a
call uses is the candidate's Python alone. The checks run side by side on a few thousand elements.
"""

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from cuda_tui.evaluation.profile import programs
from cuda_tui.evaluation.profile.names import plain, shown
from cuda_tui.evaluation.profile.ncu import Ncu
from cuda_tui.evaluation.profile.occupancy import occupancy
from cuda_tui.evaluation.profile.sanitizer import Check, Checked
from cuda_tui.evaluation.profile.sass import EXCERPT_LINES
from cuda_tui.evaluation.report import KernelRow, Profile
from cuda_tui.nvml import Nvml
from cuda_tui.tools.wording import checked_text, profile_text, sass_text

from .conftest import Bench, say

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

ROWS, COLUMNS = 262_144, 256
OUT_BYTES = ROWS * COLUMNS * 4  # 256 MiB: at least twice any L2 (an H200 has 60 MB, a B200 126 MB)
WRITTEN_AT_LEAST = OUT_BYTES // 4  # what no L2 can hold back
CHECK_LIMIT_S = 60.0

MODEL = f"""
import torch


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(64, width) / 8.0)

    def forward(self, x):
        return torch.nn.functional.silu(torch.mm(x, self.weight)) * 2.0


def get_inputs():
    return [torch.randn({ROWS}, 64)]


def get_init_inputs():
    return [{COLUMNS}]
"""
MODEL_NEW = """
import cuda_extension
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(64, width))

    def forward(self, x):
        return cuda_extension.twice_silu(torch.mm(x, self.weight))
"""
SMALL = MODEL_NEW.replace("torch.mm(x, ", "torch.mm(x[:4096], ")
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
__global__ void stray_kernel(const float4* x, float4* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i + (1ll << 36)] = x[i];  // memcheck
}
__global__ void racing_kernel(const float4* x, float4* out, int n) {
  __shared__ float near[256];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float4 v = x[i];
  near[threadIdx.x] = v.x;  // racecheck
  v.x = near[(threadIdx.x + 33) % 256];  // racecheck
  out[i] = v;
}
__global__ void reading_kernel(const float4* x, float4* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float4 v = x[i];
  v.x += out[i].x;  // initcheck
  out[i] = v;
}
__global__ void parted_kernel(const float4* x, float4* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (threadIdx.x < 32) __syncwarp(n > 0 ? 0xffffu : ~0u);  // synccheck: half of the warp is not in its mask
  if (threadIdx.x >= 224 && threadIdx.x % 2) __syncthreads();  // synccheck: half of the warp does not come
  if (i < n) out[i] = x[i];
}
extern "C" void silu_launch(const float* from, float* to, int count, int which, void* stream) {
  const auto* x = reinterpret_cast<const float4*>(from);
  auto* out = reinterpret_cast<float4*>(to);
  const int n = count / 4, grid = (n + 255) / 256;
  auto at = static_cast<cudaStream_t>(stream);
  switch (which) {
    case 0: twice_silu_kernel<<<grid, 256, 0, at>>>(x, out, n); break;
    case 1: stray_kernel<<<grid, 256, 0, at>>>(x, out, n); break;
    case 2: racing_kernel<<<grid, 256, 0, at>>>(x, out, n); break;
    case 3: reading_kernel<<<grid, 256, 0, at>>>(x, out, n); break;
    case 4: parted_kernel<<<grid, 256, 0, at>>>(x, out, n); break;
  }
}
"""
BINDING = """
#include "cuda_tui.h"
using torch::stable::Tensor;
extern "C" void silu_launch(const float* x, float* out, int count, int which, void* stream);
static Tensor run(const Tensor& x, int which) {
  Tensor out = torch::stable::empty_like(x);
  silu_launch(cuda_tui::input<float>(x), cuda_tui::output<float>(out), static_cast<int>(x.numel()), which,
              cuda_tui::current_stream(x));
  return out;
}
static Tensor twice_silu(const Tensor& x) { return run(x, 0); }
static Tensor planted(const Tensor& x, int64_t which) { return run(x, static_cast<int>(which)); }
CUDA_TUI_OPS(m) {
  m.def("twice_silu(Tensor x) -> Tensor");
  m.def("planted(Tensor x, int which) -> Tensor");
}
CUDA_TUI_IMPL(CUDA, m) {
  m.impl("twice_silu", TORCH_BOX(&twice_silu));
  m.impl("planted", TORCH_BOX(&planted));
}
"""
# Each check: the kernel with its error, the number it is called by, and words of what is said of it.
PLANTED: dict[Check, tuple[str, int, str]] = {
    "memcheck": ("stray_kernel", 1, "Invalid __global__ write"),
    "racecheck": ("racing_kernel", 2, "race"),
    "initcheck": ("reading_kernel", 3, "Uninitialized __global__ memory read"),
    "synccheck": ("parted_kernel", 4, "Barrier error"),
}


def line_of(text: str) -> int:
    """The line of the kernels' source that this text is, but for its indent."""
    return 1 + [line.strip() for line in KERNEL.splitlines()].index(text)


def lines_for(check: Check) -> set[int]:
    """The lines where an error is planted for a check."""
    return {number for number, line in enumerate(KERNEL.splitlines(), start=1) if f"// {check}" in line}


@pytest.fixture(scope="module")
def silu(make_bench: Callable[..., Bench]) -> Bench:
    """The model above with its honest candidate, built."""
    bench = make_bench(MODEL)
    start = time.monotonic()
    report = bench.evaluate(MODEL_NEW, "build", silu__cu=KERNEL, silu_binding__cpp=BINDING)
    say(f"\nbuilt in {time.monotonic() - start:.1f} s")
    assert report.build is not None
    assert report.build.succeeded, report.message
    return bench


def choose(bench: Bench, model_new: str) -> None:
    """Another candidate on the same library."""
    (bench.root / "model_new.py").write_text(model_new, encoding="utf-8")


@pytest.fixture(scope="module")
def candidate(silu: Bench) -> Profile:
    """The profile of the honest candidate."""
    start = time.monotonic()
    found = silu.evaluator.profile("candidate")
    say(f"\nprofiled in {time.monotonic() - start:.1f} s")
    return found


@pytest.fixture(scope="module")
def reference(silu: Bench, candidate: Profile) -> Profile:
    """The profile of the model, with the ceilings that the candidate's profile measured."""
    start = time.monotonic()
    found = silu.evaluator.profile("reference")
    say(f"\nprofiled in {time.monotonic() - start:.1f} s")
    return found


@pytest.fixture(scope="module")
def checked(silu: Bench) -> dict[str, Checked]:
    """Each check on the call with its error, and memcheck on the honest call ("clean"): all at the same time."""
    tools = silu.evaluator._tools
    build = tools._building.build()
    start = time.monotonic()
    with contextlib.ExitStack() as kept, ThreadPoolExecutor(len(PLANTED)) as pool:
        draw = kept.enter_context(tools._draw())
        sides = {}
        for name in PLANTED:
            call = f"cuda_extension.planted(x[:64], {PLANTED[name][1]})"
            choose(silu, MODEL_NEW.replace("cuda_extension.twice_silu(torch.mm(x, self.weight))", call))
            sides[name] = tools.solo.candidate_side(kept.enter_context(tools._candidate(build)), draw)
        running = {
            name: pool.submit(tools.sanitizer.check, side, name, limit_s=CHECK_LIMIT_S) for name, side in sides.items()
        }
        choose(silu, SMALL)
        clean = silu.evaluator.sanitize("memcheck")
        found = {"clean": clean} | {str(name): future.result() for name, future in running.items()}
    choose(silu, MODEL_NEW)
    say(f"\nchecked in {time.monotonic() - start:.1f} s")
    return found


def authored(profile: Profile) -> KernelRow:
    """The candidate's own kernel."""
    (row,) = [row for row in profile.rows if row.authored]
    return row


def test_candidates_kernel_is_named_and_counted_as_its_own(candidate: Profile) -> None:
    say("\n" + profile_text(candidate))
    row = authored(candidate)
    assert plain(row.name) == "twice_silu_kernel"
    assert (row.block, row.grid) == (256, ROWS * COLUMNS // 4 // 256)
    assert len(candidate.rows) >= 2
    assert 0.05 < row.share < 0.95, "it moves 512 MiB, and the product before it 320 MiB"
    assert row.share == pytest.approx(row.total_us / candidate.total_us)
    assert sum(item.share for item in candidate.rows) == pytest.approx(1.0)


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
    assert found["bf16"].value > found["fp32"].value
    assert 0.5 < found["fp16"].value / found["bf16"].value < 2
    if Nvml.open().read(0).capability in ((8, 0), (9, 0), (10, 0)):  # elsewhere tf32 may be no faster than fp32
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
    assert (row.counters.sectors_per_load, row.counters.sectors_per_store) == (16.0, 16.0)
    assert row.counters.stalls
    assert row.counters.memory_share is not None
    assert row.bytes_moved is not None
    assert row.counters.stored_bytes == OUT_BYTES
    assert row.counters.dram_read_bytes == pytest.approx(OUT_BYTES, rel=0.05)
    assert row.counters.dram_write_bytes is not None
    assert WRITTEN_AT_LEAST < row.counters.dram_write_bytes < 1.05 * OUT_BYTES
    assert row.bytes_moved == pytest.approx(2 * OUT_BYTES, rel=0.05), "what stays in L2 at the end counts as moved"
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
    assert 0.3 < roofed["aten::silu"] < 1.2
    names = [shown(row.name) for row in reference.rows]
    assert len(set(names)) == len(names), "kernels that do different things have different names"


def test_without_ncu_the_profile_stands_and_says_so_once(silu: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = silu.evaluator._tools
    monkeypatch.setattr(programs, "find", lambda name, **_: None)
    monkeypatch.setattr(tools, "ncu", Ncu(tools.solo))
    monkeypatch.setattr(tools, "_told", False)
    choose(silu, MODEL_NEW)
    first, second = (silu.evaluator.profile("candidate") for _ in range(2))
    assert [("ncu is not installed" in note) for note in first.notes] == [True]
    assert second.notes == ()
    row = authored(second)
    assert row.counters is None
    assert row.occupancy is not None
    assert row.evidence == "torch.profiler"


def told(checked: dict[str, Checked], name: str) -> Checked:
    """What a check said, printed; skipped where the machine cannot run it."""
    found = checked[name]
    say("\n" + checked_text(found))
    if "not installed" in found.problem or "not supported" in found.problem:
        pytest.skip(found.problem)
    assert found.ran, found.problem
    return found


@pytest.mark.parametrize("name", PLANTED)
def test_check_names_kernel_and_line_of_a_planted_error(checked: dict[str, Checked], name: Check) -> None:
    kernel, _, words = PLANTED[name]
    found = told(checked, name)
    assert {item.kernel for item in found.findings} == {kernel}, "and nothing else is blamed"
    for item in found.findings:
        assert words in item.kind
        assert item.file == "kernels/silu.cu"
        assert item.line in lines_for(name)
        assert "0x" not in f"{item.kind} {item.detail}"


def test_clean_candidate_passes_memcheck(checked: dict[str, Checked]) -> None:
    assert told(checked, "clean").findings == ()


def test_machine_code_has_wide_loads_and_the_lines_they_come_from(silu: Bench) -> None:
    found = silu.evaluator.sass("twice_silu", None)
    say("\n" + sass_text(found))
    if "not installed" in found.problem:
        pytest.skip(found.problem)
    (kernel,) = found.kernels
    assert kernel.classes["global load, 16 bytes"] == 1
    assert kernel.classes["global store, 16 bytes"] == 1
    assert "fp16" not in kernel.classes, "its arithmetic is fp32"
    assert kernel.lines[0].place.startswith("kernels/silu.cu:")
    load, store = line_of("float4 v = x[i];"), line_of("out[i] = v;")
    assert kernel.excerpt_of in (f"kernels/silu.cu:{load}", f"kernels/silu.cu:{store}")
    assert len(kernel.excerpt) <= EXCERPT_LINES + 1
    (loaded,) = silu.evaluator.sass("twice_silu", load).kernels
    assert any("LDG.E.128" in text for text in loaded.excerpt)
