"""From a trace and a choice of groups to files: kernels and model_new.py."""

import re
from dataclasses import dataclass, replace

from cuda_tui.autopilot.cpp_nest import Tuning
from cuda_tui.autopilot.cuda_shape import CudaTuning
from cuda_tui.autopilot.emit_cpp import Kernel, emit_cpp
from cuda_tui.autopilot.emit_cuda import emit_cuda, support
from cuda_tui.autopilot.fuse import Group
from cuda_tui.autopilot.graph import Graph
from cuda_tui.autopilot.math_cpp import MATH_HEADER, MATH_TEXT
from cuda_tui.autopilot.module import Unit, reusable, schedule, write_module
from cuda_tui.autopilot.names import identifier, variables
from cuda_tui.autopilot.plan import Plan
from cuda_tui.autopilot.source import Source
from cuda_tui.words import counted


@dataclass(frozen=True)
class Draft:
    """One candidate: its files by path, and the kernel of each group."""

    files: dict[str, str]
    kernels: dict[str, Kernel]  # by unit name


def write_draft(
    graph: Graph,
    groups: tuple[Group, ...],
    source: Source,
    *,
    names_of_groups: dict[str, str] | None = None,
    tuning: dict[str, Tuning | CudaTuning] | None = None,
    device: str = "cpu",
) -> Draft:
    """Files of the candidate that runs these groups. Groups with the same loops share one kernel.

    `names_of_groups` and `tuning` are by unit name, "group:OUTPUT".
    """
    names = variables(graph)
    units = schedule(graph, groups)
    kernels: dict[str, Kernel] = {}
    files: dict[str, str] = {}
    known: dict[str, str] = {}  # text without its own names, to kernel name
    for unit in units:
        if unit.group is None:
            continue
        wanted = (names_of_groups or {}).get(unit.name) or kernel_name(graph, unit.group)
        kernel = _emit(
            unit.group.plan,
            (tuning or {}).get(unit.name) or (CudaTuning() if device.startswith("cuda") else Tuning()),
            name=_unique(wanted, {kernel.name for kernel in kernels.values()}),
            variables=names,
            about=_about(graph, unit),
            reuses=reusable(graph, units, unit),
        )
        shape = _anonymous(kernel, names)
        if shape in known:
            kernel = replace(kernel, name=known[shape], files={})
        known.setdefault(shape, kernel.name)
        kernels[unit.name] = kernel
        files |= kernel.files
    if kernels:
        files |= support(files) if device.startswith("cuda") else {MATH_HEADER: MATH_TEXT}
    files["model_new.py"] = write_module(graph, units, kernels, source=source, variables=names)
    return Draft(files, kernels)


def _emit(
    plan: Plan, tuning: Tuning | CudaTuning, *, name: str, variables: dict[str, str], about: list[str],
    reuses: dict[str, str],
) -> Kernel:  # fmt: skip
    """The kernel for the device that the tuning is for."""
    if isinstance(tuning, CudaTuning):
        return emit_cuda(plan, name=name, variables=variables, about=about, reuses=reuses, tuning=tuning)
    return emit_cpp(plan, name=name, variables=variables, about=about, reuses=reuses, tuning=tuning)


def kernel_name(graph: Graph, group: Group) -> str:
    """A name for the operator: the module it comes from, or what it does."""
    modules = {graph.nodes[name].module for name in group.work}
    single = next(iter(modules)) if len(modules) == 1 else ""
    kind = single.partition("(")[2].rstrip(")")
    if kind and not single.startswith("self"):
        return identifier(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind).lower())
    ops = list(dict.fromkeys(graph.nodes[name].op.strip("_") for name in group.work))
    telling = [op for op in ops if op not in ("add", "sub", "mul", "div", "rsub", "to_copy", "getitem", "copy")] or ops
    return identifier("_".join(telling[:3])) if len(telling) <= 4 else identifier("_".join([*telling[:2], telling[-1]]))


def _unique(name: str, taken: set[str]) -> str:
    candidate, number = name if name not in ("load", "torch", "main") else f"{name}_op", 2
    while candidate in taken:
        candidate, number = f"{name}_{number}", number + 1
    return candidate


def _about(graph: Graph, unit: Unit) -> list[str]:
    """Head comment: the lines of the model that the kernel replaces."""
    assert unit.group is not None
    nodes = [graph.nodes[name] for name in unit.group.work]
    lines = dict.fromkeys(f"{node.source}: {node.code}" for node in nodes if node.code)
    shown = list(lines)[:12]
    more = [f"... and {len(lines) - len(shown)} more lines"] if len(lines) > len(shown) else []
    return [
        f"{counted(len(nodes), 'operator')} of the model in one kernel:",
        *(f"  {line[:104]}" for line in [*shown, *more]),
    ]


def _anonymous(kernel: Kernel, names: dict[str, str]) -> str:
    """The code with tensors numbered instead of named and without comments: equal for kernels that do the same."""
    text = "\n".join(re.sub(r"//.*", "", body) for body in kernel.files.values()).replace(kernel.name, "KERNEL")
    tensors = [*kernel.arguments, *kernel.results]
    for number, tensor in enumerate(dict.fromkeys(tensors)):
        text = re.sub(rf"\b{re.escape(names[tensor])}(?=\b|_(?:v|in)\d|_new)", f"T{number}", text)
    return text
