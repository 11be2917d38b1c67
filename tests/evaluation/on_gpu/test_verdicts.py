"""The evaluator on a real GPU: honest candidates pass and are measured; those that cheat the clock do not."""

from collections.abc import Callable

import pytest

from cuda_tui.evaluation.report import Code, Measured, Outcome, Verdict

from .conftest import Bench, say

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

MODEL = """
import torch


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))

    def forward(self, x):
        return torch.softmax(x * self.weight, dim=-1) * 2.0


def get_inputs():
    return [torch.randn(2048, 1024)]


def get_init_inputs():
    return [1024]
"""
SAME = MODEL.replace("class Model(", "class ModelNew(").partition("def get_inputs")[0]

KERNEL = """
#include <cuda_runtime.h>

__global__ void scaled_softmax_kernel(const float* x, const float* w, float* out, int width) {
  const float* row = x + static_cast<long>(blockIdx.x) * width;
  float* to = out + static_cast<long>(blockIdx.x) * width;
  __shared__ float part[32];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  float4 v = reinterpret_cast<const float4*>(row)[threadIdx.x];
  const float4 s = reinterpret_cast<const float4*>(w)[threadIdx.x];
  v.x *= s.x; v.y *= s.y; v.z *= s.z; v.w *= s.w;
  float top = fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w));
  for (int step = 16; step; step >>= 1) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
  if (lane == 0) part[warp] = top;
  __syncthreads();
  top = part[0];
  for (int i = 1; i < 8; ++i) top = fmaxf(top, part[i]);
  __syncthreads();
  v.x = expf(v.x - top); v.y = expf(v.y - top); v.z = expf(v.z - top); v.w = expf(v.w - top);
  float sum = v.x + v.y + v.z + v.w;
  for (int step = 16; step; step >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (lane == 0) part[warp] = sum;
  __syncthreads();
  sum = 0.f;
  for (int i = 0; i < 8; ++i) sum += part[i];
  const float scale = 2.f / sum;
  v.x *= scale; v.y *= scale; v.z *= scale; v.w *= scale;
  reinterpret_cast<float4*>(to)[threadIdx.x] = v;
}

extern "C" void scaled_softmax_launch(const float* x, const float* w, float* out, int rows, int width, void* stream) {
  scaled_softmax_kernel<<<rows, 256, 0, STREAM>>>(x, w, out, width);
}
"""
BINDING = """
#include "cuda_tui.h"
using torch::stable::Tensor;

extern "C" void scaled_softmax_launch(const float* x, const float* w, float* out, int rows, int width, void* stream);

static Tensor scaled_softmax(const Tensor& x, const Tensor& w) {
  Tensor out = torch::stable::empty_like(x);
  scaled_softmax_launch(cuda_tui::input<float>(x), cuda_tui::input<float>(w), cuda_tui::output<float>(out),
                        static_cast<int>(x.size(0)), static_cast<int>(x.size(1)), cuda_tui::current_stream(x));
  return out;
}

CUDA_TUI_OPS(m) { m.def("scaled_softmax(Tensor x, Tensor w) -> Tensor"); }
CUDA_TUI_IMPL(CUDA, m) { m.impl("scaled_softmax", TORCH_BOX(&scaled_softmax)); }
"""
FUSED = SAME.replace("import torch\n", "import cuda_extension\nimport torch\n", 1).replace(
    "torch.softmax(x * self.weight, dim=-1) * 2.0", "cuda_extension.scaled_softmax(x, self.weight)"
)
GOOD_KERNEL = KERNEL.replace("STREAM", "static_cast<cudaStream_t>(stream)")


@pytest.fixture(scope="module")
def softmax(make_bench: Callable[..., Bench]) -> Bench:
    """The softmax model above."""
    return make_bench(MODEL)


def measured(bench: Bench, model_new: str, **kernels: str) -> Measured:
    """What was measured of a candidate that must pass."""
    report = bench.evaluate(model_new, "measure", **kernels)
    assert report.verdict is Verdict.PASSED, (report.code, report.message)
    assert isinstance(report.performance, Measured)
    return report.performance


def test_identical_code_is_measured_by_graphs_and_is_never_called_faster_or_slower(softmax: Bench) -> None:
    found = measured(softmax, SAME)
    assert found.clock == "graph"
    assert found.certified
    ratio = found.ratio_to("eager")
    assert ratio is not None
    say("\nA/A", ratio, found.candidate.process_medians_us, found.method, found.gpu, found.notes, found.unavailable)
    for timing in (*found.baselines, *found.wall):
        say("   ", timing.name, timing.process_medians_us, timing.dropped_slices)
    assert ratio.outcome in (Outcome.SAME, Outcome.INCONCLUSIVE)


def test_fused_kernel_is_verified_and_faster_than_eager(softmax: Bench) -> None:
    found = measured(softmax, FUSED, softmax__cu=GOOD_KERNEL, softmax_binding__cpp=BINDING)
    say("\nfused", found.ratios, found.candidate.process_medians_us)
    ratio = found.ratio_to("eager")
    assert ratio is not None
    assert ratio.outcome is Outcome.FASTER


def test_kernel_on_the_default_stream_is_caught_every_time(softmax: Bench) -> None:
    kernel = KERNEL.replace("STREAM", "nullptr")
    codes = [softmax.evaluate(FUSED, softmax__cu=kernel, softmax_binding__cpp=BINDING).code for _ in range(3)]
    assert set(codes) <= {Code.NUM_MISMATCH, Code.NONFINITE}, codes


FORWARD = "return torch.softmax(x * self.weight, dim=-1) * 2.0"
CHEATS = {
    "memo on pointer": """
        if not hasattr(self, "memo"): self.memo = {}
        if x.data_ptr() not in self.memo or not torch.cuda.is_current_stream_capturing():
            self.memo[x.data_ptr()] = torch.softmax(x * self.weight, dim=-1) * 2.0
        return self.memo[x.data_ptr()].clone()""",
    "work on an unrelated stream": """
        if not torch.cuda.is_current_stream_capturing():
            return torch.softmax(x * self.weight, dim=-1) * 2.0
        if not hasattr(self, "kept"): self.kept = torch.empty_like(x)
        return self.kept""",
    "recomputes in the background": """
        import threading
        if not hasattr(self, "known"): self.known, self.thread = {}, None
        if torch.cuda.is_current_stream_capturing():
            if self.thread is None:
                def loop():
                    import time
                    time.sleep(0.5)
                    with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
                        while True:
                            for a, b in list(self.known.values()): b.copy_(torch.softmax(a * self.weight, dim=-1) * 2.0)
                            torch.cuda.current_stream().synchronize()
                self.thread = threading.Thread(target=loop, daemon=True)
                self.thread.start()
            if x.data_ptr() not in self.known: self.known[x.data_ptr()] = (x, torch.empty_like(x))
            return self.known[x.data_ptr()][1].clone()
        return torch.softmax(x * self.weight, dim=-1) * 2.0""",
}


@pytest.mark.parametrize("name", CHEATS)
def test_result_that_was_not_computed_in_the_timed_call_is_rejected(softmax: Bench, name: str) -> None:
    report = softmax.evaluate(SAME.replace(f"        {FORWARD}", CHEATS[name].lstrip("\n")), "measure")
    say("\n", name, report.code, report.message)
    assert report.verdict is Verdict.REJECTED


def test_model_that_synchronises_is_measured_in_batches_without_a_verdict(make_bench: Callable[..., Bench]) -> None:
    model = MODEL.replace("return torch.softmax", "scale = float(x[0, 0] > -100)\n        return scale * torch.softmax")
    bench = make_bench(model)
    found = measured(bench, model.replace("class Model(", "class ModelNew(").partition("def get_inputs")[0])
    say("\nbatches", found.ratios, found.notes)
    assert found.clock == "events"
    assert not found.certified
    assert "cannot be captured" in found.notes[0]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_matrix_product_passes_at_its_precision_and_a_lower_one_does_not(
    make_bench: Callable[..., Bench], dtype: str
) -> None:
    model = f"""
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(512, 512, dtype=torch.{dtype}))

    def forward(self, x):
        return torch.relu(x @ self.weight)


def get_inputs():
    return [torch.randn(256, 512, dtype=torch.{dtype})]
"""
    bench = make_bench(model)
    honest = model.replace("class Model(", "class ModelNew(").partition("def get_inputs")[0]
    assert bench.evaluate(honest).verdict is Verdict.PASSED
    lower = {
        "float32": "half",
        "float16": "to(torch.float8_e4m3fn).half",
        "bfloat16": "to(torch.float8_e4m3fn).bfloat16",
    }
    worse = honest.replace("x @ self.weight", f"(x.{lower[dtype]}() @ self.weight.{lower[dtype]}()).to(x.dtype)")
    report = bench.evaluate(worse)
    say("\n", dtype, report.code, report.message)
    assert report.code in (Code.PRECISION, Code.NUM_MISMATCH)


def test_tf32_of_the_models_own_file_is_the_candidates_too(make_bench: Callable[..., Bench]) -> None:
    model = """
import torch

torch.set_float32_matmul_precision("high")


class Model(torch.nn.Module):
    def forward(self, x, y):
        return x @ y


def get_inputs():
    return [torch.randn(512, 512), torch.randn(512, 512)]
"""
    bench = make_bench(model)
    honest = """
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        assert torch.get_float32_matmul_precision() == "high"
        return x @ y
"""
    report = bench.evaluate(honest)
    assert report.verdict is Verdict.PASSED, report.message
    assert report.verify is not None
    errors = [check.error for trial in report.verify.trials for check in trial.checks]
    assert max(map(float, errors)) > 1e-5  # that of TF32, on both sides
