"""The trusted side: the user's reference in eager and fp64, the inputs, the comparison, the baselines' timing."""

import os
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch

from . import compare, loading, precise, profiling, tensors, timing, trees
from .loading import Fault


@dataclass
class Draw:
    """Inputs, and what the reference makes of them."""

    args_plan: trees.Plan
    inputs: "list[torch.Tensor]"
    reference: trees.Leaves
    eager: trees.Leaves
    inputs_after: "list[torch.Tensor]"
    state_seed: "int | None" = None


@dataclass
class Stack:
    """One small output over the draws."""

    candidates: "list[torch.Tensor]" = field(default_factory=list)
    references: "list[torch.Tensor]" = field(default_factory=list)
    eagers: "list[torch.Tensor]" = field(default_factory=list)


class Service:
    """Answers the controller. Methods are operations; their keywords are the request's fields."""

    def __init__(self, request: "dict[str, Any]") -> None:
        timing.settle(request.get("threads", 1), request.get("cpu"))
        self.module: ModuleType
        self.task: dict[str, Any] = {}
        self.model: torch.nn.Module
        self.double: torch.nn.Module
        self.initial: dict[str, torch.Tensor] = {}
        self.draws: dict[str, Draw] = {}
        self.pools: dict[str, compare.Pool] = {}
        self.stacks: dict[str, Stack] = {}
        self.timer: timing.Timer
        self._first: list[torch.Tensor] | None = None

    # ---- the user's file

    def inspect(self, path: str, roots: "list[str]", cwd: str) -> "dict[str, Any]":
        """Classes and input functions of a file."""
        os.chdir(cwd)
        return loading.describe_file(loading.import_file(path, "model", roots))

    def load(self, path: str, task: "dict[str, Any]", roots: "list[str]", cwd: str) -> "dict[str, Any]":
        """Build the reference and try it once. Raises Fault where it cannot serve."""
        os.chdir(cwd)
        self.task = task
        self.module = loading.import_file(path, "model", roots)
        with loading.seeded(0):
            self.model = self._construct()
        self.initial = {name: value.detach().clone() for name, value in loading.named_state(self.model).items()}
        kinds = self._state_kinds()
        return {"state": kinds, "parameters": sum(value.numel() for value in self.initial.values())}

    def _construct(self) -> torch.nn.Module:
        task = self.task
        model = loading.construct(self.module, task["class_name"], task.get("init"), "cpu")
        return model.train(task.get("mode") == "train")

    def _state_kinds(self) -> "dict[str, str]":
        declared = {name for name, _ in self.model.named_parameters(remove_duplicate=False)}
        declared |= {name for name, _ in self.model.named_buffers(remove_duplicate=False)}
        return {name: "declared" if name in declared else "attribute" for name in self.initial}

    def examine(self) -> "dict[str, Any]":
        """Whether the reference can be compared: it runs, is deterministic, and returns tensors."""
        self.double = precise.model_in_double(self._construct())
        self._set_state(None)
        plan, inputs = self._inputs(1)
        first = trees.flatten(self._eager(plan, inputs))
        if not first.tensors:
            raise Fault("REFERENCE_FAULT", "the reference returns nothing to compare: no tensors in its output")
        second = trees.flatten(self._eager(plan, inputs))
        if any(not _same(a, b) for a, b in zip(first.tensors, second.tensors, strict=True)):
            raise Fault("REFERENCE_FAULT", "the reference is random: " + self._find_randomness(plan, inputs))
        in_double = self._double(plan, inputs)
        other_plan, other = self._inputs(2)
        varied = trees.flatten(self._eager(other_plan, other))
        return {
            "outputs": first.paths,
            "shapes": [list(tensor.shape) for tensor in first.tensors],
            "dtypes": [tensors.dtype_name(tensor.dtype) for tensor in first.tensors],
            "not_compared": sorted(f"{path} ({kind})" for path, kind in first.opaque.items()),
            "varies": [not _same(a, b) for a, b in zip(first.tensors, varied.tensors, strict=False)],
            "double": [tensor.dtype == torch.float64 for tensor in in_double.tensors if tensor.is_floating_point()],
        }

    def _find_randomness(self, plan: trees.Plan, inputs: "list[torch.Tensor]") -> str:
        from .randomness import RandomOperators

        with RandomOperators(self.module.__file__ or "") as seen:
            self._eager(plan, inputs)
        return "; ".join(seen.places) or "two calls on equal inputs differ"

    def construct_arguments(self, folder: str) -> "dict[str, Any]":
        """The constructor arguments as data, for the candidate; `opaque` where they cannot travel."""
        name = self.task.get("init")
        with loading.seeded(0):
            given = loading.call_or_value(self.module, name) if name and hasattr(self.module, name) else ()
        leaves = trees.flatten(loading.split_arguments(given), "init")
        rows = tensors.write_tensors(leaves.tensors, os.path.join(folder, "init.bin"))
        return {"plan": leaves.plan, "rows": rows, "file": "init.bin", "opaque": bool(leaves.opaque)}

    # ---- draws

    def draw(self, name: str, seed: int, folder: str, state_seed: "int | None", special: bool) -> "dict[str, Any]":
        """Make inputs and state, compute both references, and write what the candidate may see."""
        self._set_state(state_seed)
        plan, inputs = self._inputs(seed)
        if special:
            _sprinkle(inputs, seed)
        written = [precise.clone_strided(tensor) for tensor in inputs]
        self.draws[name] = self._refer(plan, inputs, state_seed)
        rows = tensors.write_tensors(written, os.path.join(folder, name + ".bin"))
        state = loading.named_state(self.model)
        state_rows = tensors.write_tensors(list(state.values()), os.path.join(folder, name + ".state"))
        return {
            "plan": plan,
            "rows": rows,
            "file": name + ".bin",
            "state_file": name + ".state",
            "state": dict(zip(state, state_rows, strict=True)),
        }

    def _refer(self, plan: trees.Plan, inputs: "list[torch.Tensor]", state_seed: "int | None") -> Draw:
        reference = self._double(plan, inputs)
        after = [precise.clone_strided(tensor) for tensor in inputs]
        eager = trees.flatten(self._call(self.model, plan, after))
        return Draw(plan, inputs, reference, eager, after, state_seed)

    def _inputs(self, seed: int) -> "tuple[trees.Plan, list[torch.Tensor]]":
        leaves = trees.flatten(loading.draw_inputs(self.module, self.task["inputs"], seed), "inputs")
        if leaves.opaque:
            names = ", ".join(f"{path} ({kind})" for path, kind in leaves.opaque.items())
            raise Fault("REFERENCE_FAULT", f"these inputs cannot be handed to a candidate process: {names}")
        if self._first is None:
            self._first = leaves.tensors
            return leaves.plan, leaves.tensors
        if [t.shape for t in self._first] == [t.shape for t in leaves.tensors]:
            return leaves.plan, loading.vary_constant(self._first, leaves.tensors, seed)
        return leaves.plan, leaves.tensors

    def _set_state(self, seed: "int | None") -> None:
        state = self.initial
        if seed is not None:
            state = loading.redraw_state(state, torch.Generator().manual_seed(seed))
        loading.load_state(self.model, state)
        loading.load_state(self.double, state)

    def _call(self, model: torch.nn.Module, plan: trees.Plan, inputs: "list[torch.Tensor]") -> Any:
        args, kwargs = trees.unflatten(plan, inputs, self.module)
        with torch.no_grad():
            return model(*args, **kwargs)

    def _eager(self, plan: trees.Plan, inputs: "list[torch.Tensor]") -> Any:
        return self._call(self.model, plan, [precise.clone_strided(tensor) for tensor in inputs])

    def _double(self, plan: trees.Plan, inputs: "list[torch.Tensor]") -> trees.Leaves:
        args, kwargs = trees.unflatten(plan, [precise.as_double(tensor) for tensor in inputs], self.module)
        return trees.flatten(precise.call_in_double(self.double, args, kwargs))

    # ---- comparison

    def compare(self, name: str, path: str, answer: "dict[str, Any]", stack: bool = True) -> "dict[str, Any]":
        """Compare a candidate's outputs for a draw: structure, types, values, inputs left alone."""
        draw = self.draws[name]
        problem = layout_problem(draw, answer)
        if problem:
            return {"checks": [], "code": "LAYOUT", "reason": problem}
        outputs = tensors.read_tensors(path, answer["rows"])
        checks = []
        for index, output_path in enumerate(draw.eager.paths):
            checks.append(self._check(output_path, index, draw, outputs[index], stack=stack))
        after = tensors.read_tensors(path + ".inputs", answer["input_rows"])
        failed = next((check for check in checks if not check["passed"]), None)
        if failed is not None:
            return {
                "checks": _words(checks),
                "code": failed["code"],
                "reason": f"{failed['output']}: {failed['reason']}",
            }
        for number, (mine, theirs) in enumerate(zip(draw.inputs_after, after, strict=True)):
            if not _same(mine, theirs):
                return {"checks": _words(checks), "code": "INPUT_MUTATED", "reason": f"input {number} was changed"}
        return {"checks": _words(checks), "code": None, "reason": ""}

    def _check(self, path: str, index: int, draw: Draw, candidate: torch.Tensor, *, stack: bool) -> "dict[str, Any]":
        reference, eager = draw.reference.tensors[index], draw.eager.tensors[index]
        pool = self.pools.setdefault(path, compare.Pool())
        check = compare.check_output(candidate, reference, eager, pool, cap=self.task["error_cap"])
        if stack and reference.is_floating_point() and reference.numel() < compare.SMALL:
            held = self.stacks.setdefault(path, Stack())
            held.candidates.append(candidate)
            held.references.append(reference)
            held.eagers.append(eager)
        return check | {"output": path}

    def check_stacks(self) -> "dict[str, Any]":
        """The small outputs over all draws compared so far; clears them."""
        rows = []
        for path, held in self.stacks.items():
            row = compare.check_stack(held.candidates, held.references, held.eagers, cap=self.task["error_cap"])
            shape = [len(held.candidates), *held.eagers[0].shape]
            rows.append(row | {"output": path, "shape": shape, "dtype": tensors.dtype_name(held.eagers[0].dtype)})
        self.stacks = {}
        return {"rows": _words(rows)}

    def warm_pool(self, name: str) -> "dict[str, Any]":
        """Add eager's own error on a draw to the pools, so that one lucky draw does not set the limit."""
        draw = self.draws[name]
        for path, reference, eager in zip(draw.eager.paths, draw.reference.tensors, draw.eager.tensors, strict=True):
            telling = (compare.classes(reference) == 0) & (compare.classes(eager) == 0)
            self.pools.setdefault(path, compare.Pool()).add(compare.measure(eager, reference, telling))
        return {}

    def forget(self, name: str) -> "dict[str, Any]":
        """Drop a spent draw."""
        self.draws.pop(name, None)
        return {}

    # ---- timing of a baseline, and the check of timed calls

    def compile(self) -> "dict[str, Any]":
        """Compile the reference and run it once. Raises where that falls back to eager."""
        from . import compiled

        self._set_state_eager()
        plan, inputs = self._inputs(3)
        args, kwargs = trees.unflatten(plan, inputs, self.module)
        self.model, facts = compiled.compile_model(self.model, args, kwargs)
        return facts

    def _set_state_eager(self) -> None:
        loading.load_state(self.model, self.initial)

    def prepare(self, seed: int, positions: "list[float]") -> "dict[str, Any]":
        """Make this process ready to time its model on a draw. Positions are shares of each input's length."""
        plan, inputs = self._inputs(seed)
        args, kwargs = trees.unflatten(plan, inputs, self.module)
        self.timer = timing.Timer(self.model, args, kwargs)
        self.timer.watch(inputs, [int(share * tensor.numel()) for share, tensor in zip(positions, inputs, strict=True)])
        return {}

    def count_inputs(self) -> "dict[str, Any]":
        """How many tensors a draw has."""
        return {"count": len(self._inputs(1)[1])}

    def time_slice(self, calls: int, salt: int) -> "dict[str, Any]":
        """Time some calls."""
        return self.timer.slice(calls, salt)

    def perturb(self, name: str, positions: "list[float]", number: int) -> "dict[str, Any]":
        """Bring a draw to the state its inputs had in timed call `number`, and refer to it anew."""
        draw = self.draws[name]
        self._set_state(draw.state_seed)
        for share, tensor in zip(positions, draw.inputs, strict=True):
            if tensor.is_floating_point() and tensor.numel():
                cell = tensor[timing.unravel(int(share * tensor.numel()), tensor.shape)]
                cell.fill_(timing.perturbed(float(cell), number))
        self.draws[name] = self._refer(draw.args_plan, draw.inputs, draw.state_seed)
        return {}

    # ---- what the tools show

    def trace(self) -> "dict[str, Any]":
        """The reference's operators."""
        from . import trace

        self._set_state_eager()
        plan, inputs = self._inputs(1)
        args, kwargs = trees.unflatten(plan, inputs, self.module)
        return {"trace": trace.trace(self.model, args, kwargs)}

    def profile(self) -> "dict[str, Any]":
        """The reference's operators by time."""
        plan, inputs = self._inputs(1)
        args, kwargs = trees.unflatten(plan, inputs, self.module)
        return profiling.operators(lambda: self.model(*args, **kwargs)) | {"ceilings": profiling.ceilings()}


def layout_problem(draw: Draw, answer: "dict[str, Any]") -> str:
    """What differs in structure, type, shape or plain values; empty where nothing does."""
    if answer["problems"]:
        return str(answer["problems"][0])
    if trees.shape_of(draw.eager.plan) != trees.shape_of(answer["plan"]):
        return f"output structure differs: {_outline(answer['plan'])}, not {_outline(draw.eager.plan)}"
    if answer["values"] != draw.eager.values:
        differing = [path for path, value in draw.eager.values.items() if answer["values"].get(path) != value]
        return f"plain values differ at {', '.join(differing) or 'another place'}"
    for path, mine, theirs in zip(draw.eager.paths, draw.eager.tensors, answer["rows"], strict=True):
        if tensors.dtype_name(mine.dtype) != theirs["dtype"]:
            return f"{path} is {theirs['dtype']}, not {tensors.dtype_name(mine.dtype)}"
        if list(mine.shape) != theirs["shape"]:
            return f"{path} has shape {tuple(theirs['shape'])}, not {tuple(mine.shape)}"
    return ""


def _outline(plan: trees.Plan) -> str:
    if "items" not in plan:
        return str(plan.get("type", plan["kind"]))
    return f"{plan['kind']} of {len(plan['items'])}"


def _same(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Equal bit for bit, NaN included."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    return bool(
        torch.equal(first.contiguous().reshape(-1).view(torch.uint8), second.contiguous().reshape(-1).view(torch.uint8))
    )


def _sprinkle(inputs: "list[torch.Tensor]", seed: int) -> None:
    """NaN, +Inf and -Inf at a few random places of each floating input."""
    generator = torch.Generator().manual_seed(seed)
    for tensor in inputs:
        if tensor.is_floating_point() and tensor.numel() >= 16:
            for value in (float("nan"), float("inf"), float("-inf")):
                position = int(torch.randint(tensor.numel(), (1,), generator=generator))
                tensor[timing.unravel(position, tensor.shape)] = value


def _words(value: Any) -> Any:
    """Non-finite floats as words, since JSON has none."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return "nan" if value != value else "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return {key: _words(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_words(item) for item in value]
    return value
