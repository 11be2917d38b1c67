"""A kernel for the CPU: one .cpp file with its loops and its registration."""

import textwrap
from dataclasses import dataclass

from cuda_tui.autopilot.cpp_nest import Nest, Tuning
from cuda_tui.autopilot.graph import TensorType
from cuda_tui.autopilot.plan import Plan
from cuda_tui.words import counted

SCALAR_TYPES = {
    "float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16",
    "int64": "Long", "int32": "Int", "uint8": "Byte", "bool": "Bool",
}  # fmt: skip
POINTERS = {
    "float32": "float", "float64": "double", "int64": "int64_t", "int32": "int32_t", "uint8": "uint8_t",
    "bool": "uint8_t",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """An operator: its name, its files by path, and how Python calls it.

    `arguments` are tensors of the graph in the order of the call; `results` are those it computes. A result in `reuses`
    is written into the memory of the argument it names; the others are returned. A result in `permutes` comes with its
    dimensions in memory order and is permuted back by Python.
    """

    name: str
    files: dict[str, str]
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    reuses: dict[str, str]
    permutes: dict[str, tuple[int, ...]]

    @property
    def returned(self) -> tuple[str, ...]:
        """Results in memory of their own."""
        return tuple(name for name in self.results if name not in self.reuses)


def emit_cpp(
    plan: Plan, *, name: str, variables: dict[str, str], about: list[str], reuses: dict[str, str] | None = None,
    tuning: Tuning | None = None,
) -> Kernel:  # fmt: skip
    """Write the kernel. `about` are lines for the head comment; `reuses` maps results to inputs they overwrite."""
    reuses = reuses or {}
    tuning = tuning or Tuning()
    pointer = {**{key: variables[key] for key in plan.inputs}, **_result_pointers(plan, variables, reuses)}
    nest = Nest(plan, pointer, tuning)
    body = nest.text()
    fresh = [result for result in plan.results if result.name not in reuses]
    parameters = [
        f"{'' if key in reuses.values() else 'const '}{POINTERS[kind.dtype]}* __restrict__ {pointer[key]}"
        for key, kind in plan.inputs.items()
    ] + [f"{POINTERS[result.type.dtype]}* __restrict__ {pointer[result.name]}" for result in fresh]
    lines = [
        *(f"// {line}".rstrip() for line in [*about, "", *_access(plan, tuning)]),
        "#include <algorithm>",
        "#include <vector>",
        "",
        '#include "cuda_tui.h"',
        '#include "vector_math.h"',
        "",
        "using torch::headeronly::ScalarType;",
        "using torch::stable::Tensor;",
        "",
        "namespace {",
        "",
        *([_INSIDE, ""] if nest.checks else []),
        f"{'int' if nest.checks else 'void'} compute({', '.join(parameters)}) {{",
        *body,
        "}",
        "",
        *binding_checks(),
        "",
        *_operator(plan, name, variables, reuses, checks=nest.checks),
        "",
        "}  // namespace",
        "",
        *registration(plan, name, variables, reuses, key="CPU"),
        "",
    ]
    return Kernel(
        name=name, files={f"kernels/{name}.cpp": "\n".join(lines)}, arguments=tuple(plan.inputs),
        results=tuple(result.name for result in plan.results), reuses=reuses, permutes=permutations(plan, reuses),
    )  # fmt: skip


_INSIDE = """\
// An index from a tensor. One that lies outside is remembered and read as 0; the caller then raises.
inline int64_t inside(int64_t index, int64_t size, int& bad) {
  const bool wrong = (index < 0) | (index >= size);
  bad |= wrong;
  return wrong ? 0 : index;
}"""


def _result_pointers(plan: Plan, variables: dict[str, str], reuses: dict[str, str]) -> dict[str, str]:
    return {result.name: variables[reuses.get(result.name, result.name)] for result in plan.results}


def _access(plan: Plan, tuning: Tuning) -> list[str]:
    """How memory is walked, for the reader."""
    rows = " x ".join(str(plan.sizes[axis]) for axis in plan.rows)
    inner = " x ".join(str(plan.sizes[axis]) for axis in plan.inner)
    if plan.columns is not None:
        block = min(tuning.block, plan.sizes[plan.columns])
        text = (
            f"Access: the reduced axes ({inner}) are not contiguous, so a block of {block} neighbouring columns "
            f"is carried through them together: memory is read along its contiguous axis, and the block's running "
            f"values stay in L1."
        )
    elif plan.reds:
        text = (
            f"Access: {f'{rows} rows' if rows else 'one row'} of {inner} elements. A row is walked "
            f"{counted(plan.passes, 'time')}; after the first walk it is in cache, so memory is read once. Sums go "
            f"through vector lanes; long ones are collected in double."
        )
    elif rows:
        text = f"Access: {rows} rows of {inner} contiguous elements, each read and written once; nothing between."
    else:
        text = (
            f"Access: {inner or '1'} contiguous elements, each read and written once; no intermediate goes to memory."
        )
    return textwrap.wrap(text, 110)


def binding_checks() -> list[str]:
    """The check that a tensor is what the kernel was written for."""
    return textwrap.dedent("""\
        // The loops above hold for these shapes and strides only. Lists end with a 0 that does not count.
        template <size_t N>
        void expect(const Tensor& tensor, const char* name, ScalarType dtype, const int64_t (&shape)[N],
                    const int64_t (&strides)[N]) {
          bool same = tensor.scalar_type() == dtype && tensor.dim() == static_cast<int64_t>(N) - 1;
          for (size_t d = 0; same && d + 1 < N; ++d)
            same = tensor.size(d) == shape[d] && (shape[d] == 1 || tensor.stride(d) == strides[d]);
          CUDA_TUI_CHECK(same, name, " has another dtype, shape or layout than this kernel was generated for");
        }
        template <size_t N>
        Tensor empty(const Tensor& like, ScalarType dtype, const int64_t (&shape)[N]) {
          return torch::stable::new_empty(like, {shape, N - 1}, dtype);
        }""").splitlines()


def array(numbers: tuple[int, ...]) -> str:
    """A C array that is never empty: one element more than the dimensions."""
    return "{" + ", ".join(str(number) for number in (*numbers, 0)) + "}"


def expectation(variable: str, kind: TensorType) -> str:
    return (
        f'expect({variable}, "{variable}", ScalarType::{SCALAR_TYPES[kind.dtype]}, {array(kind.shape)}, '
        f"{array(kind.strides)});"
    )


def _operator(plan: Plan, name: str, variables: dict[str, str], reuses: dict[str, str], *, checks: bool) -> list[str]:
    lines = [f"{returns(plan, reuses)} run({', '.join(f'const Tensor& {variables[key]}' for key in plan.inputs)}) {{"]
    lines += [f"  {expectation(variables[key], kind)}" for key, kind in plan.inputs.items()]
    lines += [f"  {line}" for line in allocations(plan, variables, reuses)]
    call = [
        f"cuda_tui::{'output' if key in reuses.values() else 'input'}<{POINTERS[kind.dtype]}>({variables[key]})"
        for key, kind in plan.inputs.items()
    ] + [
        f"cuda_tui::output<{POINTERS[result.type.dtype]}>({variables[result.name]})"
        for result in plan.results if result.name not in reuses
    ]  # fmt: skip
    text = f"compute({', '.join(call)})"
    lines.append(f'  CUDA_TUI_CHECK(!{text}, "index out of range in {name}");' if checks else f"  {text};")
    lines += [*(f"  {line}" for line in returned(plan, variables, reuses)), "}"]
    return lines


def allocations(plan: Plan, variables: dict[str, str], reuses: dict[str, str]) -> list[str]:
    """Memory for the results that need their own."""
    first = variables[next(iter(plan.inputs))]
    lines = []
    for result in plan.results:
        if result.name not in reuses:
            dtype = SCALAR_TYPES[result.type.dtype]
            shape = stored_shape(result.type)
            lines.append(f"Tensor {variables[result.name]} = empty({first}, ScalarType::{dtype}, {array(shape)});")
    return lines


def stored_shape(kind: TensorType) -> tuple[int, ...]:
    """The shape with dimensions in memory order: what is allocated; Python permutes it back."""
    assert kind.memory_order is not None
    return tuple(kind.shape[dim] for dim in kind.memory_order)


def permutations(plan: Plan, reuses: dict[str, str]) -> dict[str, tuple[int, ...]]:
    """How results are permuted from memory order back to their own; those in order are left out."""
    found: dict[str, tuple[int, ...]] = {}
    for result in plan.results:
        order = result.type.memory_order
        if order is not None and order != tuple(range(len(order))) and result.name not in reuses:
            found[result.name] = tuple(order.index(dim) for dim in range(len(order)))
    return found


def returns(plan: Plan, reuses: dict[str, str]) -> str:
    """The C++ type of what is returned. What overwrites an argument is not: torch.compile takes no such operator."""
    count = sum(result.name not in reuses for result in plan.results)
    return ("void", "Tensor")[count] if count < 2 else f"std::tuple<{', '.join(['Tensor'] * count)}>"


def returned(plan: Plan, variables: dict[str, str], reuses: dict[str, str]) -> list[str]:
    """The last line of the operator, if it returns anything."""
    names = [variables[result.name] for result in plan.results if result.name not in reuses]
    if not names:
        return []
    return [f"return {names[0]};" if len(names) == 1 else f"return {{{', '.join(names)}}};"]


def registration(plan: Plan, name: str, variables: dict[str, str], reuses: dict[str, str], *, key: str) -> list[str]:
    """Schema and implementation. `(a!)` marks memory that is overwritten."""
    letters = {tensor: chr(ord("a") + index) for index, tensor in enumerate(dict.fromkeys(reuses.values()))}
    marks = {tensor: f"Tensor({letter}!)" for tensor, letter in letters.items()}
    parameters = ", ".join(f"{marks.get(tensor, 'Tensor')} {variables[tensor]}" for tensor in plan.inputs)
    kinds = ["Tensor" for result in plan.results if result.name not in reuses]
    answer = kinds[0] if len(kinds) == 1 else f"({', '.join(kinds)})"
    return [
        f'CUDA_TUI_OPS(m) {{ m.def("{name}({parameters}) -> {answer}"); }}',
        f'CUDA_TUI_IMPL({key}, m) {{ m.impl("{name}", TORCH_BOX(&run)); }}',
    ]
