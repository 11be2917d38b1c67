"""Faults to plant in a candidate, and what must be said of each. One library holds them all; Python chooses one."""

from dataclasses import dataclass, field

from cuda_tui.evaluation.report import Code

TIME_LIMIT_S = 4.0
MODEL = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2.0


def get_inputs():
    return [torch.randn(1 << 16)]
"""
KERNELS = """
#include <cassert>
#include <cuda_runtime.h>

__device__ int released;

__global__ void honest_kernel(const float* x, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] * 2.0f;
}

__global__ void stray_kernel(const float* x, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i + (1ll << 38)] = x[i] * 2.0f;
}

__global__ void wide_kernel(const float* x, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (4 * i + 5 > n) return;
  const float4 v = *reinterpret_cast<const float4*>(x + 1 + 4 * i);
  out[4 * i + 1] = v.x * 2.0f + v.y + v.z + v.w;
}

__global__ void checked_kernel(const float* x, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  assert(i < n - 1);
  out[i] = x[i] * 2.0f;
}

__global__ void waiting_kernel(const float* x, float* out, int n) {
  while (atomicAdd(&released, 0) == 0) {
  }
  if (x != nullptr) out[0] = x[0] * 2.0f;
}

__global__ void barrier_kernel(const float* x, float* out, int n) {
  __shared__ volatile int done;
  if (threadIdx.x == 0) done = 0;
  __syncthreads();
  if (threadIdx.x < 32) {
    __syncthreads();  // the other warps wait below for what comes after this barrier
    done = 1;
  } else {
    while (!done) {
    }
  }
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] * 2.0f;
}

extern "C" void scale_launch(const float* x, float* out, int n, int mode, void* stream) {
  const auto at = static_cast<cudaStream_t>(stream);
  const int grid = (n + 255) / 256;
  switch (mode) {
    case 0: honest_kernel<<<grid, 256, 0, at>>>(x, out, n); break;
    case 1: stray_kernel<<<grid, 256, 0, at>>>(x, out, n); break;
    case 2: wide_kernel<<<grid, 256, 0, at>>>(x, out, n); break;
    case 3: checked_kernel<<<grid, 256, 0, at>>>(x, out, n); break;
    case 4: waiting_kernel<<<1, 1, 0, at>>>(x, out, n); break;
    case 5: barrier_kernel<<<grid, 256, 0, at>>>(x, out, n); break;
    case 6: honest_kernel<<<grid, 2048, 0, at>>>(x, out, n); break;
    case 7: honest_kernel<<<0, 256, 0, at>>>(x, out, n); break;
    case 8: honest_kernel<<<grid, 256, 200 << 10, at>>>(x, out, n); break;
  }
}
"""
BINDING = """
#include <torch/csrc/stable/accelerator.h>

#include "cuda_tui.h"
using torch::stable::Tensor;

extern "C" void scale_launch(const float* x, float* out, int n, int mode, void* stream);

static Tensor scale(const Tensor& x, int64_t mode) {
  CUDA_TUI_CHECK(x.is_contiguous(), "scale: x must be contiguous");
  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  Tensor out = torch::stable::empty_like(x);
  scale_launch(cuda_tui::input<float>(x), cuda_tui::output<float>(out), static_cast<int>(x.numel()),
               static_cast<int>(mode), cuda_tui::current_stream(x));
  return out;
}

CUDA_TUI_OPS(m) { m.def("scale(Tensor x, int mode) -> Tensor"); }
CUDA_TUI_IMPL(CUDA, m) { m.impl("scale", TORCH_BOX(&scale)); }
"""
SOURCES = {"scale__cu": KERNELS, "scale_binding__cpp": BINDING}


def model_new(forward: str) -> str:
    """A candidate whose forward is this text."""
    return (
        "import cuda_extension\nimport torch\n\n\nclass ModelNew(torch.nn.Module):\n"
        f"    def forward(self, x):\n{forward}\n"
    )


def calling(mode: int) -> str:
    """A candidate that calls the operator in one mode."""
    return model_new(f"        return cuda_extension.scale(x, {mode})")


HONEST = calling(0)


@dataclass(frozen=True)
class Planted:
    """One fault: the candidate that has it, the code and the words that must be in the message."""

    name: str
    source: str
    code: Code
    words: tuple[str, ...]
    task: dict[str, object] = field(default_factory=dict)
    place: str = ""  # the kernel or file that one more run must name


PLANTED = (
    Planted("illegal access", calling(1), Code.MEM_FAULT, ("illegal memory access",), place="stray_kernel"),
    Planted("misaligned wide load", calling(2), Code.MEM_FAULT, ("misaligned address",), place="wide_kernel"),
    Planted("assert in a kernel", calling(3), Code.MEM_FAULT, ("assert(i < n - 1)",), place="checked_kernel"),
    Planted(
        "index beyond a table",
        model_new("        return x[torch.full_like(x, 1 << 30, dtype=torch.int64)] * 2.0"),
        Code.MEM_FAULT,
        ("device-side assert",),
    ),
    Planted(
        "kernel that spins", calling(4), Code.HANG, (f"did not end in {TIME_LIMIT_S:.0f} s",), place="model_new.py"
    ),
    Planted(
        "divergent barrier", calling(5), Code.HANG, (f"did not end in {TIME_LIMIT_S:.0f} s",), place="model_new.py"
    ),
    Planted(
        "memory beyond the GPU's",
        model_new("        return x * 2.0 + torch.empty(1 << 42, device=x.device)[0]"),
        Code.RAISED,
        ("out of GPU memory",),
    ),
    Planted("2048 threads a block", calling(6), Code.LAUNCH_ERROR, ("launch refused: invalid", "1024 threads")),
    Planted("grid of no blocks", calling(7), Code.LAUNCH_ERROR, ("launch refused: invalid", "zero blocks")),
    Planted("200 KiB shared, not opted in", calling(8), Code.LAUNCH_ERROR, ("launch refused: invalid argument",)),
    Planted(
        "built for another GPU",
        HONEST,
        Code.LAUNCH_ERROR,
        ("launch refused: built for sm_80",),
        task={"architectures": ("sm_80",)},
    ),
)
