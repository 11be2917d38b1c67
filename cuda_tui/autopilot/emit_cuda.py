"""A kernel for CUDA: a .cu with device code and a C launcher, and a binding through the stable ABI."""

import math

from cuda_tui.autopilot.cpp_nest import Tuning
from cuda_tui.autopilot.cuda_nest import COLUMNS, DEVICE_TYPES, LANES, CudaNest
from cuda_tui.autopilot.emit_cpp import (
    Kernel,
    allocations,
    binding_checks,
    expectation,
    permutations,
    registration,
    returned,
    returns,
)
from cuda_tui.autopilot.math_cuda import CUDA_HEADER, CUDA_TEXT
from cuda_tui.autopilot.plan import Plan
from cuda_tui.words import counted

CUDA_SUPPORT = {CUDA_HEADER: CUDA_TEXT}
HOST_TYPES = {**DEVICE_TYPES, "float16": "void", "bfloat16": "void"}  # the binding knows no CUDA types


def emit_cuda(
    plan: Plan, *, name: str, variables: dict[str, str], about: list[str], reuses: dict[str, str] | None = None,
    tuning: Tuning | None = None,
) -> Kernel:  # fmt: skip
    """Write the kernel; arguments as in emit_cpp."""
    reuses = reuses or {}
    pointer = {key: variables[key] for key in plan.inputs}
    pointer |= {result.name: variables[reuses.get(result.name, result.name)] for result in plan.results}
    nest = CudaNest(plan, pointer, tuning or Tuning())
    body = nest.text()
    tensors = [(variables[key], kind.dtype, key not in reuses.values()) for key, kind in plan.inputs.items()]
    tensors += [(variables[item.name], item.type.dtype, False) for item in plan.results if item.name not in reuses]
    files = {
        f"kernels/{name}.cu": "\n".join(_device(plan, nest, name, about, tensors, body)),
        f"kernels/{name}_binding.cpp": "\n".join(_binding(plan, name, variables, reuses, tensors)),
    }
    return Kernel(
        name=name, files=files, arguments=tuple(plan.inputs), results=tuple(item.name for item in plan.results),
        reuses=reuses, permutes=permutations(plan, reuses),
    )  # fmt: skip


def _device(
    plan: Plan, nest: CudaNest, name: str, about: list[str], tensors: list[tuple[str, str, bool]], body: list[str]
) -> list[str]:
    parameters = ", ".join(
        f"{'const ' if constant else ''}{DEVICE_TYPES[dtype]}* __restrict__ {tensor}"
        for tensor, dtype, constant in tensors
    )
    plain = ", ".join(
        f"{'const ' if constant else ''}{HOST_TYPES[dtype]}* {tensor}" for tensor, dtype, constant in tensors
    )
    casts = [
        f"static_cast<{'const ' if constant else ''}{DEVICE_TYPES[dtype]}*>({tensor})"
        if HOST_TYPES[dtype] == "void" else tensor
        for tensor, dtype, constant in tensors
    ]  # fmt: skip
    return [
        *(f"// {line}".rstrip() for line in [*about, "", *_access(plan, nest)]),
        '#include "device_tools.cuh"',
        "",
        "namespace {",
        "",
        "template <int VEC>",
        f"__global__ void __launch_bounds__({_block(nest)}) {name}_kernel({parameters}) {{",
        *body,
        "}",
        "",
        "}  // namespace",
        "",
        "// Returns what went wrong with the launch, or a null pointer.",
        f'extern "C" const char* {name}_launch({plain}, void* stream) {{',
        *_launches(nest, name, tensors, casts),
        "  const cudaError_t error = cudaGetLastError();",
        "  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);",
        "}",
        "",
    ]


def _block(nest: CudaNest) -> int:
    shape = nest.shape(width=1)
    return shape.x * shape.y


def _launches(nest: CudaNest, name: str, tensors: list[tuple[str, str, bool]], casts: list[str]) -> list[str]:
    lines = []
    if nest.width > 1:
        tests = " && ".join(
            f"dev::aligned<{nest.width}>({cast})"
            for cast, (tensor, _, _) in zip(casts, tensors, strict=True)
            if tensor in nest.moved_in_vectors
        )
        lines += [f"  if ({tests}) {{", *_launch(nest, name, nest.width, casts, "    "), "  } else {"]
        lines += [*_launch(nest, name, 1, casts, "    "), "  }"]
        return lines
    return _launch(nest, name, 1, casts, "  ")


def _launch(nest: CudaNest, name: str, width: int, casts: list[str], indent: str) -> list[str]:
    shape = nest.shape(width=width)
    block = f"dim3({shape.x}, {shape.y})" if shape.y > 1 else str(shape.x)
    arguments = ", ".join(casts)
    where = f"{shape.blocks}, {block}, 0, static_cast<cudaStream_t>(stream)"
    return [f"{indent}{name}_kernel<{width}><<<{where}>>>({arguments});"]


def _access(plan: Plan, nest: CudaNest) -> list[str]:
    if plan.columns is not None:
        return [
            f"Access: a block owns {COLUMNS} neighbouring columns; its warps read them side by side (coalesced), and",
            f"{LANES} threads share the walk down each column, joined through shared memory.",
        ]
    if plan.reds:
        who = "a warp" if nest.threads_of_row == 32 else f"a block of {nest.threads_of_row} threads"
        wide = f", {nest.width} elements a thread and load where pointers are aligned" if nest.width > 1 else ""
        rows = counted(math.prod(plan.sizes[axis] for axis in plan.rows), "row")
        return [
            f"Access: {rows} of {nest.length} elements, {who} for",
            f"each{wide}. Later walks of a row find it in L1 or L2. Sums are in float, joined by shuffles.",
        ]
    wide = f"{nest.width} neighbouring elements" if nest.width > 1 else "one element"
    return [f"Access: {plan.elements} elements, {wide} a thread; each is read and written once, coalesced."]


def _binding(
    plan: Plan, name: str, variables: dict[str, str], reuses: dict[str, str], tensors: list[tuple[str, str, bool]]
) -> list[str]:
    plain = ", ".join(
        f"{'const ' if constant else ''}{HOST_TYPES[dtype]}* {tensor}" for tensor, dtype, constant in tensors
    )
    pointers = ", ".join(
        f"cuda_tui::{'input' if constant else 'output'}<{HOST_TYPES[dtype]}>({tensor})"
        for tensor, dtype, constant in tensors
    )
    first = variables[next(iter(plan.inputs))]
    arguments = ", ".join(f"const Tensor& {variables[key]}" for key in plan.inputs)
    return [
        f"// Registers {name}; the kernel is in {name}.cu.",
        "#include <tuple>",
        "",
        "#include <torch/csrc/stable/accelerator.h>",
        "",
        '#include "cuda_tui.h"',
        "",
        "using torch::headeronly::ScalarType;",
        "using torch::stable::Tensor;",
        "",
        f'extern "C" const char* {name}_launch({plain}, void* stream);',
        "",
        "namespace {",
        "",
        *binding_checks(),
        "",
        f"{returns(plan)} run({arguments}) {{",
        *(f"  {expectation(variables[key], kind)}" for key, kind in plan.inputs.items()),
        f"  const torch::stable::accelerator::DeviceGuard guard({first}.get_device_index());",
        *(f"  {line}" for line in allocations(plan, variables, reuses)),
        f"  const char* error = {name}_launch({pointers}, cuda_tui::current_stream({first}));",
        f'  CUDA_TUI_CHECK(error == nullptr, "{name}: ", error == nullptr ? "" : error);',
        f"  {returned(plan, variables, reuses)}",
        "}",
        "",
        "}  // namespace",
        "",
        *registration(plan, name, variables, reuses, key="CUDA"),
        "",
    ]
