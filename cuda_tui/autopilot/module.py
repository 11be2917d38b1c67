"""model_new.py: the user's class with a straight-line forward over library calls and our kernels."""

import textwrap
from dataclasses import dataclass
from typing import Any

from cuda_tui.autopilot.calls import call_text
from cuda_tui.autopilot.emit_cpp import Kernel, stored_shape
from cuda_tui.autopilot.fuse import Group
from cuda_tui.autopilot.graph import Graph, Node, Source, TensorType
from cuda_tui.autopilot.ir import Unfusible
from cuda_tui.autopilot.scalar import Load
from cuda_tui.autopilot.source import Signature
from cuda_tui.autopilot.source import Source as ModuleSource

# Library calls that return memory of their own, never a view of an operand.
FRESH = frozenset(["linear", "mm", "addmm", "bmm", "baddbmm", "matmul", "conv1d", "conv2d", "conv3d", "convolution"])
LARGE_BYTES = 1 << 16  # tensors of at least this size are freed as soon as nobody reads them

AS_TRACED = '''\
def as_traced(tensor, name, shape, strides):
    """The tensor with the layout the kernels were written for. Raises ValueError for another shape."""
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; these kernels were generated for {shape}")
    if tensor.stride() == strides:
        return tensor
    return torch.empty_strided(shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)
'''


@dataclass(frozen=True)
class Unit:
    """One line of the new forward: a library call, or a group's kernel."""

    name: str
    reads: frozenset[str]
    makes: tuple[str, ...]
    node: Node | None = None
    group: Group | None = None


def schedule(graph: Graph, groups: tuple[Group, ...]) -> list[Unit]:
    """Units in an order in which they can run, without nodes that nobody needs."""
    units = [_group_unit(group) for group in groups]
    made = {name: unit for unit in units for name in unit.makes}
    needed: dict[str, Unit] = {}
    stack = [name for name in graph.output_names if name in graph.nodes]
    while stack:
        name = stack.pop()
        unit = made.get(name) or _node_unit(graph.nodes[name])
        if unit.name not in needed:
            needed[unit.name] = unit
            stack.extend(source for source in unit.reads if source in graph.nodes)
    return _ordered(list(needed.values()), graph)


def _group_unit(group: Group) -> Unit:
    return Unit(f"group:{group.outputs[0]}", frozenset(group.plan.inputs), group.outputs, group=group)


def _node_unit(node: Node) -> Unit:
    return Unit(node.name, frozenset(node.references), (node.name,), node=node)


def _ordered(units: list[Unit], graph: Graph) -> list[Unit]:
    order = {name: index for index, name in enumerate(graph.nodes)}
    waiting = sorted(units, key=lambda unit: max(order[name] for name in unit.makes))
    there = set(graph.sources)
    result: list[Unit] = []
    while waiting:
        unit = next((unit for unit in waiting if unit.reads <= there), None)
        if unit is None:
            raise Unfusible("the groups wait for each other")
        waiting.remove(unit)
        result.append(unit)
        there |= set(unit.makes)
    return result


def reusable(graph: Graph, units: list[Unit], unit: Unit) -> dict[str, str]:
    """Results that may overwrite an input: one that is dead afterwards, freshly made, and read element by element."""
    assert unit.group is not None
    plan = unit.group.plan
    found: dict[str, str] = {}
    later = {name for other in units[units.index(unit) + 1 :] for name in other.reads} | set(graph.output_names)
    loads = [scalar for scalar in plan.scalars if isinstance(scalar, Load)]
    for result in plan.results:
        for name, kind in plan.inputs.items():
            accesses = [load for load in loads if load.name == name]
            same = len(accesses) == 1 and not accesses[0].dynamic and not accesses[0].offset
            if (
                not same
                or name in found.values()
                or kind != result.type
                or plan.levels[result.scalar] + 1 < plan.passes
            ):
                continue
            if accesses[0].strides == result.strides and _dies(graph, units, name, later):
                found[result.name] = name
                break
    return found


def _dies(graph: Graph, units: list[Unit], name: str, later: set[str]) -> bool:
    """Whether nobody can see the tensor's memory afterwards."""
    maker = next((unit for unit in units if name in unit.makes), None)
    if maker is None or (maker.node is not None and maker.node.op not in FRESH):
        return False
    family, stack = {name}, [name]
    while stack:
        for user in graph.users.get(stack.pop(), ()):
            if graph.nodes[user].view and user not in family:
                family.add(user)
                stack.append(user)
    return not family & later


class Forward:
    """Writes the body of forward."""

    def __init__(self, graph: Graph, variables: dict[str, str], signature: Signature) -> None:
        self.graph = graph
        self.names = dict(variables)
        self.signature = signature
        self.lines: list[str] = []

    def body(self, units: list[Unit], kernels: dict[str, Kernel]) -> list[str]:
        """Lines without indentation."""
        read = {name for unit in units for name in unit.reads} | set(self.graph.output_names)
        if _differs_in_training(self.graph):
            mode = "self.training" if self.graph.mode == "eval" else "not self.training"
            self._refuse(mode, f"this forward was generated for {self.graph.mode} mode")
        for fixed in self.graph.fixed_inputs:
            self._check_fixed(fixed)
        self._check_defaults()
        for source in self.graph.sources.values():
            self._reach(source, used=source.name in read)
        last_read = {name: index for index, unit in enumerate(units) for name in unit.reads}
        for index, unit in enumerate(units):
            self._call(unit, kernels)
            self._free(index, unit, last_read)
        self.lines.append(f"return {self._structure(self.graph.outputs)}")
        return self.lines

    # ---- what comes in

    def _refuse(self, condition: str, message: str) -> None:
        self.lines += [f"if {condition}:", f'    raise ValueError("{message}")']

    def _check_fixed(self, fixed: dict[str, Any]) -> None:
        if "opaque" in fixed:
            return
        place, value = _path(fixed["path"]), fixed["value"]
        if value is None:
            self._refuse(f"{place} is not None", f"these kernels were generated for {place} = None".replace('"', "'"))
        else:
            text = f'float("{value["float"]}")' if isinstance(value, dict) else repr(value)
            message = f"these kernels were generated for {place} = {text}".replace('"', "'")
            self._refuse(f"{place} != {text}", message)

    def _check_defaults(self) -> None:
        given = {source.path[0] for source in self.graph.sources.values() if source.kind == "input"}
        given |= {fixed["path"][0] for fixed in self.graph.fixed_inputs}
        for name, default in self.signature.defaults.items():
            if name not in given:
                test = f"{name} is not None" if default == "None" else f"{name} != {default}"
                self._refuse(test, f"these kernels were generated for {name} = {default}".replace('"', "'"))

    def _reach(self, source: Source, *, used: bool) -> None:
        kind = source.type
        if source.kind == "input":
            place = _path(source.path)
            self.lines.append(
                f"{self.names[source.name]} = as_traced({place}, {place!r}, {kind.shape}, {kind.strides})"
            )
        elif used and source.kind == "constant":
            self.lines.append(f"{self.names[source.name]} = {self._constant(source)}")
        elif used:
            self.names[source.name] = _attribute(source.target)

    def _constant(self, source: Source) -> str:
        if source.value is None:
            raise Unfusible("forward makes a large constant tensor that no attribute holds")
        first = next((other for other in self.graph.sources.values() if other.kind == "input"), None)
        device = f", device={self.names[first.name]}.device" if first else ""
        value = repr(source.value).replace("{'float': ", "float(").replace("}", ")")
        return f"torch.tensor({value}, dtype=torch.{source.type.dtype}{device})"

    # ---- what happens

    def _call(self, unit: Unit, kernels: dict[str, Kernel]) -> None:
        if unit.group is None:
            assert unit.node is not None
            self.lines.append(f"{self.names[unit.name]} = {call_text(unit.node, self.graph, self.names)}")
            return
        kernel = kernels[unit.name]
        arguments = ", ".join(self.names[name] for name in kernel.arguments)
        results = ", ".join(self.names[name] for name in kernel.returned)
        call = f"cuda_extension.{kernel.name}({arguments})"
        self.lines.append(f"{results} = {call}" if results else call)
        for name, memory in kernel.reuses.items():
            self.lines.append(f"{self.names[name]} = {self.names[memory]}  # overwritten: nobody reads the old values")
        for name, order in kernel.permutes.items():
            self.lines.append(f"{self.names[name]} = {self.names[name]}.permute({', '.join(map(str, order))})")

    def _free(self, index: int, unit: Unit, last_read: dict[str, int]) -> None:
        """Large intermediates go back to the allocator as soon as possible, so that later calls find warm memory."""
        outputs = set(self.graph.output_names)
        done = [
            self.names[name] for name in sorted(unit.reads)
            if name in self.graph.nodes and last_read[name] == index and name not in outputs
            and self.graph.nodes[name].output.bytes >= LARGE_BYTES
        ]  # fmt: skip
        if done:
            self.lines.append(f"del {', '.join(done)}")

    # ---- what goes out

    def _structure(self, structure: dict[str, Any]) -> str:
        match structure["kind"]:
            case "tensor":
                return self.names[str(structure["ref"])]
            case "constant":
                return repr(structure["value"])
            case "list":
                return f"[{', '.join(self._structure(item) for item in structure['items'])}]"
            case "tuple":
                inside = [self._structure(item) for item in structure["items"]]
                return f"({', '.join(inside)}{',' if len(inside) == 1 else ''})"
            case "dict":
                return f"{{{', '.join(f'{key!r}: {self._structure(item)}' for key, item in structure['items'])}}}"
            case _:
                fields = ", ".join(f"{key}={self._structure(item)}" for key, item in structure["items"])
                return f"{structure['class']}({fields})"


def _path(path: Any) -> str:
    first, *rest = path
    return str(first) + "".join(f"[{part!r}]" for part in rest)


def _attribute(target: str) -> str:
    text = "self"
    for part in target.split("."):
        text += f"[{part}]" if part.isdigit() else f".{part}"
    return text


def _differs_in_training(graph: Graph) -> bool:
    kinds = ("Dropout", "BatchNorm", "InstanceNorm")
    return any(kind in node.module for node in graph.nodes.values() for kind in kinds)


def write_module(
    graph: Graph, units: list[Unit], kernels: dict[str, Kernel], *, source: ModuleSource, variables: dict[str, str]
) -> str:
    """The text of model_new.py."""
    names = {**variables, **_distinct(graph, variables, source.signature.names)}
    body = Forward(graph, names, source.signature).body(units, kernels)
    imports = ["import torch"]
    if any("F." in line for line in body):
        imports.append("from torch.nn import functional as F")
    imports += ["", "import cuda_extension"]
    text = source.rewritten(
        body, imports=imports, docstring="The model with fused kernels; for inference (the kernels have no backward)."
    )
    functions = [textwrap.dedent(AS_TRACED).rstrip(), *shape_functions(graph, kernels, names)]
    head, separator, klass = text.partition("\n\n\nclass ModelNew")
    between = "\n\n\n".join(functions)
    return f"{head}\n\n\n{between}{separator}{klass}"


def shape_functions(graph: Graph, kernels: dict[str, Kernel], variables: dict[str, str]) -> list[str]:
    """For each operator, the outputs that torch.compile may expect of it."""
    found: dict[str, str] = {}
    for kernel in kernels.values():
        first = variables[kernel.arguments[0]]
        made = [_made(first, graph.type_of(name)) for name in kernel.returned]
        answer = made[0] if len(made) == 1 else f"({', '.join(made)})" if made else "None"
        arguments = ", ".join(variables[name] for name in kernel.arguments)
        found[kernel.name] = (
            f'@cuda_extension.shape_function("{kernel.name}")\ndef _({arguments}):\n    return {answer}'
        )
    return list(found.values())


def _made(first: str, kind: TensorType) -> str:
    """A result as the kernel allocates it."""
    return f"{first}.new_empty({stored_shape(kind)}, dtype=torch.{kind.dtype})"


def _distinct(graph: Graph, variables: dict[str, str], arguments: tuple[str, ...]) -> dict[str, str]:
    """Nested inputs must not take the name of the argument that holds them."""
    renamed: dict[str, str] = {}
    for name, variable in variables.items():
        source = graph.sources.get(name)
        own = source is not None and source.kind == "input" and source.path == (variable,)
        if variable in arguments and not own:
            renamed[name] = f"{variable}_value"
    return renamed
