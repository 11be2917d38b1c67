"""A kernel for CUDA: a .cu with device code and a C launcher, and a binding through the stable ABI."""

import textwrap

from cuda_tui.autopilot.cluster_cuda import CLUSTER_HEADER, CLUSTER_TEXT
from cuda_tui.autopilot.cuda_nest import Body, CudaNest
from cuda_tui.autopilot.cuda_shape import DEVICE_TYPES, CudaTuning, Form
from cuda_tui.autopilot.emit_cpp import (
    Kernel,
    allocations,
    array,
    binding_checks,
    expectation,
    permutations,
    registration,
    returned,
    returns,
)
from cuda_tui.autopilot.math_cuda import CUDA_HEADER, CUDA_TEXT
from cuda_tui.autopilot.plan import Plan
from cuda_tui.autopilot.reduce_cuda import REDUCE_HEADER, REDUCE_TEXT
from cuda_tui.words import counted

CUDA_SUPPORT = {CUDA_HEADER: CUDA_TEXT, REDUCE_HEADER: REDUCE_TEXT, CLUSTER_HEADER: CLUSTER_TEXT}
HOST_TYPES = {**DEVICE_TYPES, "float16": "void", "bfloat16": "void"}  # the binding knows no CUDA types
Tensors = list[tuple[str, str, bool]]  # name, dtype, and whether it is only read


def emit_cuda(
    plan: Plan, *, name: str, variables: dict[str, str], about: list[str], reuses: dict[str, str] | None = None,
    tuning: CudaTuning | None = None,
) -> Kernel:  # fmt: skip
    """Write the kernel; arguments as in emit_cpp."""
    reuses = reuses or {}
    pointer = {key: variables[key] for key in plan.inputs}
    pointer |= {result.name: variables[reuses.get(result.name, result.name)] for result in plan.results}
    nest = CudaNest(plan, pointer, tuning or CudaTuning())
    bodies = nest.bodies()
    tensors = [(variables[key], kind.dtype, key not in reuses.values()) for key, kind in plan.inputs.items()]
    tensors += [(variables[item.name], item.type.dtype, False) for item in plan.results if item.name not in reuses]
    files = {
        f"kernels/{name}.cu": "\n".join(_device(nest, name, about, tensors, bodies)),
        f"kernels/{name}_binding.cpp": "\n".join(_binding(nest, name, variables, reuses, tensors)),
    }
    return Kernel(
        name=name, files=files, arguments=tuple(plan.inputs), results=tuple(item.name for item in plan.results),
        reuses=reuses, permutes=permutations(plan, reuses),
    )  # fmt: skip


def support(files: dict[str, str]) -> dict[str, str]:
    """The headers that these files include, and those that the headers include."""
    text, found = "".join(files.values()), {}
    for path in reversed(CUDA_SUPPORT):
        if f'"{path.rpartition("/")[2]}"' in text:
            found[path] = CUDA_SUPPORT[path]
            text += CUDA_SUPPORT[path]
    return found


def _device(nest: CudaNest, name: str, about: list[str], tensors: Tensors, bodies: list[Body]) -> list[str]:
    parameters = [
        f"{'const ' if constant else ''}{DEVICE_TYPES[dtype]}* __restrict__ {tensor}"
        for tensor, dtype, constant in tensors
    ]
    parameters += ["char* __restrict__ partials"] if nest.partials.bytes else []
    lines = [*(f"// {line}".rstrip() for line in [*about, "", *_access(nest)])]
    lines += ['#include "device_tools.cuh"']
    lines += ['#include "device_reductions.cuh"'] if nest.plan.reds else []
    lines += ['#include "device_clusters.cuh"'] if nest.shape.form is Form.CLUSTER else []
    lines += ["", "namespace {", ""]
    for body in bodies:
        lines += [
            "template <bool WIDE>",
            f"__global__ void __launch_bounds__({body.x * body.y})",
            *textwrap.wrap(f"{name}_{body.suffix}({', '.join(parameters)}) {{", 116, subsequent_indent="    "),
            *body.lines,
            "}",
            "",
        ]
    return [
        *lines,
        "}  // namespace",
        "",
        "// Returns what went wrong with a launch, or a null pointer.",
        f'extern "C" const char* {name}_launch({_plain(nest, tensors)}, void* stream) {{',
        *_launches(nest, name, tensors, bodies),
        "  const cudaError_t error = cudaGetLastError();",
        "  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);",
        "}",
        "",
    ]


def _plain(nest: CudaNest, tensors: Tensors) -> str:
    """The launcher's parameters."""
    listed = [f"{'const ' if constant else ''}{HOST_TYPES[dtype]}* {tensor}" for tensor, dtype, constant in tensors]
    return ", ".join([*listed, *(["void* partials"] if nest.partials.bytes else [])])


def _launches(nest: CudaNest, name: str, tensors: Tensors, bodies: list[Body]) -> list[str]:
    casts = {
        tensor: f"static_cast<{'const ' if constant else ''}{DEVICE_TYPES[dtype]}*>({tensor})"
        if HOST_TYPES[dtype] == "void" else tensor
        for tensor, dtype, constant in tensors
    }  # fmt: skip
    arguments = [*casts.values(), *(["static_cast<char*>(partials)"] if nest.partials.bytes else [])]
    wide = nest.shape.width > 1 and nest.moved
    lines = ["  const auto queue = static_cast<cudaStream_t>(stream);"]
    if wide:
        tests = [f"dev::aligned<{nest.shape.width}>({casts[tensor]})" for tensor in nest.moved]
        lines.append(f"  const bool wide = {' && '.join(tests)};")
    for body in bodies:
        for condition, path in (("wide", "true"), ("!wide", "false")) if wide else (("", "true"),):
            call = _launch(nest, f"{name}_{body.suffix}<{path}>", body, ", ".join(arguments))
            lines.append(f"  if ({condition}) {call}" if condition else f"  {call}")
    return lines


def _launch(nest: CudaNest, kernel: str, body: Body, arguments: str) -> str:
    """One launch."""
    threads = f"dim3({body.x}, {body.y})" if body.y > 1 else str(body.x)
    if nest.shape.form is Form.CLUSTER:
        return f"dev::launch_cluster({kernel}, {body.blocks}, {threads}, {nest.shape.chunks}, queue, {arguments});"
    blocks = str(body.blocks)
    if nest.shape.resident and nest.shape.form is Form.FLAT:
        blocks = f"dev::resident_blocks({kernel}, {body.x * body.y}, {body.blocks})"
    return f"{kernel}<<<{blocks}, {threads}, 0, queue>>>({arguments});"


def _access(nest: CudaNest) -> list[str]:
    """How memory is walked, for the reader."""
    shape, plan = nest.shape, nest.plan
    wide = f"{shape.width} neighbouring elements" if shape.width > 1 else "one element"
    rows = f"{counted(nest.rows_count, 'row')} of {nest.length} elements"
    flight = f"{counted(shape.items, 'load')} of {wide} in flight a thread"
    texts = {
        Form.FLAT: f"{plan.elements} elements, each read and written once, coalesced; {flight}.",
        Form.TILED: f"{rows}, each read and written once, coalesced; a block stays in one row; {flight}.",
        Form.HELD: f"{rows}, {counted(shape.x, 'thread')} for each. A row is read once and stays in registers "
        f"({flight}); later walks cost no memory traffic.",
        Form.CLUSTER: f"{rows}, a cluster of {shape.chunks} blocks for each. A row is read once and stays in the "
        f"registers of all of them ({flight}); they pass their sums through each other's shared memory.",
        Form.WALKED: f"{rows}, a block of {shape.x} threads for each; {flight}. A row does not fit on chip: "
        f"{counted(plan.passes, 'walk')} over it.",
        Form.SPLIT: f"{rows}, {counted(shape.chunks, 'block')} for each, so that few rows fill the GPU; {flight}. "
        f"Each pass is a kernel of its own; partial results are joined in a fixed order.",
        Form.COLUMN_HELD: f"a thread reads {wide} of each of {nest.length} rows side by side with its neighbours "
        f"(coalesced) and keeps them in registers for all passes.",
        Form.COLUMNS: f"a block owns {shape.x * shape.width} neighbouring columns, read side by side (coalesced); "
        f"{shape.y} threads share the walk down each, joined through shared memory.",
        Form.COLUMN_SPLIT: f"{counted(shape.chunks, 'block')} share {shape.x * shape.width} neighbouring columns, read "
        f"side by side (coalesced); partial results are joined in a fixed order.",
    }
    sums = " Sums are in float, or in the tensors' own wider type." if plan.reds else ""
    return textwrap.wrap(f"Access: {texts[shape.form]}{sums}", 110)


def _binding(
    nest: CudaNest, name: str, variables: dict[str, str], reuses: dict[str, str], tensors: Tensors
) -> list[str]:
    plan, scratch = nest.plan, nest.partials.bytes
    pointers = ", ".join(
        f"cuda_tui::{'input' if constant else 'output'}<{HOST_TYPES[dtype]}>({tensor})"
        for tensor, dtype, constant in tensors
    )
    pointers += ", cuda_tui::output<void>(partials)" if scratch else ""
    first = variables[next(iter(plan.inputs))]
    memory = [f"Tensor partials = empty({first}, ScalarType::Byte, {array((scratch,))});"] if scratch else []
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
        f'extern "C" const char* {name}_launch({_plain(nest, tensors)}, void* stream);',
        "",
        "namespace {",
        "",
        *binding_checks(),
        "",
        f"{returns(plan, reuses)} run({arguments}) {{",
        *(f"  {expectation(variables[key], kind)}" for key, kind in plan.inputs.items()),
        f"  const torch::stable::accelerator::DeviceGuard guard({first}.get_device_index());",
        *(f"  {line}" for line in [*allocations(plan, variables, reuses), *memory]),
        f"  const char* error = {name}_launch({pointers}, cuda_tui::current_stream({first}));",
        f'  CUDA_TUI_CHECK(error == nullptr, "{name}: ", error == nullptr ? "" : error);',
        *(f"  {line}" for line in returned(plan, variables, reuses)),
        "}",
        "",
        "}  // namespace",
        "",
        *registration(plan, name, variables, reuses, key="CUDA"),
        "",
    ]
