"""The trusted side: the user's reference in eager and fp64, the inputs, the comparison, the baselines' timing."""

import os
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch

from . import compare, forms, loading, precise, profiling, settings, tensors, timing, trees
from . import device as gpu
from .answers import alias_problem, layout_problem, same, sprinkle, words
from .graphs import rewritten
from .loading import Fault
from .referring import Draw, Pair
from .settings import Snapshot
from .timed_on_gpu import Bench


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
        self.pad = timing.pad()
        self.device = gpu.use(request.get("device", "cpu"))
        self.module: ModuleType
        self.task: dict[str, Any] = {}
        self.pair: Pair
        self.call: Any = None  # what is timed: the model, or its compiled form
        self.draws: dict[str, Draw] = {}
        self.pools: dict[str, compare.Pool] = {}
        self.stacks: dict[str, Stack] = {}
        self.timer: timing.Timer
        self.bench: Bench | None = None
        self._first: list[torch.Tensor] | None = None
        self._vary = True
        self._draw_there = gpu.is_gpu(self.device)

    # ---- the user's file

    def inspect(self, path: str, roots: "list[str]", cwd: str) -> "dict[str, Any]":
        """Classes and input functions of a file."""
        os.chdir(cwd)
        return loading.describe_file(loading.import_file(path, "model", roots))

    def load(self, path: str, task: "dict[str, Any]", roots: "list[str]", cwd: str) -> "dict[str, Any]":
        """Build the reference and try it once. Raises Fault where it cannot serve."""
        os.chdir(cwd)
        before = Snapshot()
        self.task = task
        self.module = loading.import_file(path, "model", roots)
        self.pair = Pair(self._construct, self.module)
        self.call = self.pair.model
        changed = before.changes()
        return {"state": self._state_kinds(), "settings": changed, "precision": settings.precision()}

    def _construct(self) -> torch.nn.Module:
        task = self.task
        model = loading.construct(self.module, task["class_name"], task.get("init"), self.device)
        return model.train(task.get("mode") == "train")

    def _state_kinds(self) -> "dict[str, str]":
        model = self.pair.model
        declared = {name for name, _ in [*model.named_parameters(), *model.named_buffers()]}
        kinds = {name: "declared" if name in declared else "attribute" for name in self.pair.initial}
        return kinds | dict.fromkeys(loading.tied_names(model), "tied")

    def examine(self) -> "dict[str, Any]":
        """Whether the reference can be compared: it runs, is deterministic, and returns tensors."""
        plan, inputs = self._inputs(1)
        first = self.pair.eager(plan, inputs)
        if not first.tensors:
            raise Fault("REFERENCE_FAULT", "the reference returns nothing to compare: no tensors in its output")
        second = self.pair.eager(plan, inputs)
        if first.paths != second.paths or not all(map(same, first.tensors, second.tensors)):
            raise Fault("REFERENCE_FAULT", "the reference is random: " + self._find_randomness(plan, inputs))
        self.pair.make_double(plan, inputs)
        varied = self._another_draw()
        return {
            "outputs": first.paths,
            "shapes": [list(tensor.shape) for tensor in first.tensors],
            "dtypes": [tensors.dtype_name(tensor.dtype) for tensor in first.tensors],
            "not_compared": sorted(f"{path} ({kind})" for path, kind in first.opaque.items()),
            "varies": [not same(a, b) for a, b in zip(first.tensors, varied.tensors, strict=False)],
            "changing": self._changing(plan, inputs),
            "forms": forms.applicable(inputs),
            "gradients": self._trained(plan, inputs),
            "gpus": torch.cuda.device_count() if gpu.is_gpu(self.device) else 0,
            "state_bytes": sum(tensor.nbytes for tensor in self.pair.initial.values()),
            "draw_bytes": sum(tensor.nbytes for tensor in [*inputs, *first.tensors]),
            "reference_dtype": self.pair.dtype,
            "why_not_double": self.pair.why_not_double,
        }

    def _trained(self, plan: trees.Plan, inputs: "list[torch.Tensor]") -> "list[str]":
        """Parameters, and in mode "train" inputs, that get a gradient; none where the reference has no backward."""
        try:
            found = self.pair.gradients(plan, inputs, wrt_inputs=self.task.get("mode") == "train", seed=1)
        except Exception:  # whatever it is, nobody trains through it
            return []
        return [name for name, grad in found.items() if grad is not None]

    def compare_gradients(self, name: str, path: str, answer: "dict[str, Any]", seed: int) -> "dict[str, Any]":
        """A candidate's gradients for a draw against the reference's, in mode "train": every parameter and input."""
        draw = self.draws[name]
        self.pair.set_state(draw.state_seed)
        asked: dict[str, Any] = {"wrt_inputs": True, "seed": seed}
        doubles = self.pair.gradients(draw.args_plan, draw.inputs, double=True, **asked)
        theirs = dict(zip(answer["names"], tensors.read_tensors(path, answer["rows"], self.device), strict=True))
        checks: list[dict[str, Any]] = []
        for target, eager in self.pair.gradients(draw.args_plan, draw.inputs, **asked).items():
            exact, mine = doubles[target], theirs.get(target)
            if eager is None or exact is None:
                continue
            if mine is None or mine.shape != eager.shape or mine.dtype != eager.dtype:
                what = "no gradient for" if mine is None else "a gradient of another shape or type for"
                return {"checks": words(checks), "code": "NUM_MISMATCH", "reason": f"{what} {target}"}
            pool = self.pools.setdefault(f"gradient of {target}", compare.Pool())
            check = compare.check_output(
                mine, exact, eager, pool, cap=self.task["error_cap"], exact=self.pair.double is not None
            )
            checks.append(check | {"output": f"gradient of {target}"})
        failed = next((check for check in checks if not check["passed"]), None)
        reason = f"{failed['output']}: {failed['reason']}" if failed else ""
        return {"checks": words(checks), "code": failed["code"] if failed else None, "reason": reason}

    def _another_draw(self) -> trees.Leaves:
        """A second draw. Inputs that stay the same are permuted from then on, unless the model refuses that."""
        plan, inputs = self._inputs(2)
        try:
            return self.pair.eager(plan, inputs)
        except Exception:
            self._vary = False
            return self.pair.eager(*self._inputs(2))

    def _changing(self, plan: trees.Plan, inputs: "list[torch.Tensor]") -> "list[bool]":
        """Which inputs can differ from one timed call to the next: floating ones; else, if it works, integer ones."""
        floating = [tensor.is_floating_point() and tensor.numel() > 0 for tensor in inputs]
        if any(floating):
            return floating
        whole = [tensor.numel() > 1 and not tensor.is_complex() for tensor in inputs]
        changed = [precise.clone_strided(tensor) for tensor in inputs]
        for change in timing.changes(changed, [0.5 if change else None for change in whole]):
            change.apply(1)
        try:
            self.pair.eager(plan, changed)
        except Exception:  # offsets or lengths, most likely: two of them cannot change places
            return [False] * len(inputs)
        return whole

    def _find_randomness(self, plan: trees.Plan, inputs: "list[torch.Tensor]") -> str:
        from .randomness import RandomOperators

        with RandomOperators(self.module.__file__ or "") as seen:
            self.pair.eager(plan, inputs)
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
        self.pair.set_state(state_seed)
        plan, inputs = self._inputs(seed)
        if special:
            sprinkle(inputs, seed)
        written = [precise.clone_strided(tensor) for tensor in inputs]
        state = loading.named_state(self.pair.model)
        state_rows = dict(
            zip(state, tensors.write_tensors(list(state.values()), os.path.join(folder, name + ".state")), strict=True)
        )
        try:
            self.draws[name] = self.pair.refer(plan, inputs, state_seed, seed)
        except Exception as error:
            if not special:
                raise
            # NaN lies outside of what the model takes, a decomposition for one: no trial, and no fault.
            return {"refused": f"{type(error).__name__}: {str(error)[:200]}"}
        rows = tensors.write_tensors(written, os.path.join(folder, name + ".bin"))
        ties = {other: state_rows[first] for other, first in loading.tied_names(self.pair.model).items()}
        return {
            "plan": plan,
            "rows": rows,
            "file": name + ".bin",
            "state_file": name + ".state",
            "state": state_rows | ties,
        }

    def draw_form(self, name: str, like: str, form: str, only: "int | None", folder: str) -> "dict[str, Any]":
        """A draw with the values of another, all of its inputs or one in a form; `refused` where the model raises."""
        base = self.draws[like]
        self.pair.set_state(base.state_seed)
        try:
            self.draws[name], chosen = forms.redraw(self.pair, base, form, only)
        except Exception as error:
            return {"refused": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"}
        rows = tensors.write_tensors(self.draws[name].inputs, os.path.join(folder, name + ".bin"))
        return {"plan": base.args_plan, "rows": rows, "file": name + ".bin", "inputs": chosen}

    def _inputs(self, seed: int) -> "tuple[trees.Plan, list[torch.Tensor]]":
        leaves = trees.flatten(self._drawn(seed), "inputs")
        if leaves.opaque:
            names = ", ".join(f"{path} ({kind})" for path, kind in leaves.opaque.items())
            raise Fault("REFERENCE_FAULT", f"these inputs cannot be handed to a candidate process: {names}")
        leaves.tensors = gpu.placed([tensor.detach() for tensor in leaves.tensors], self.device)
        if self._first is None:
            self._first = [precise.clone_strided(tensor) for tensor in leaves.tensors]
            return leaves.plan, leaves.tensors
        if self._vary and [t.shape for t in self._first] == [t.shape for t in leaves.tensors]:
            return leaves.plan, loading.vary_constant(self._first, leaves.tensors, seed)
        return leaves.plan, leaves.tensors

    def _drawn(self, seed: int) -> Any:
        """The user's inputs. Random numbers of a large draw take seconds on the CPU and milliseconds on a GPU."""
        if self._draw_there:
            try:
                return loading.draw_inputs(self.module, self.task["inputs"], seed, self.device)
            except Exception:  # a generator or tensors of theirs live on the CPU: so does the whole draw, from now on
                self._draw_there = False
        return loading.draw_inputs(self.module, self.task["inputs"], seed)

    # ---- comparison

    def compare(self, name: str, path: str, answer: "dict[str, Any]", named: bool = False) -> "dict[str, Any]":
        """Compare a candidate's outputs for a draw: structure, types, values, inputs left alone.

        Small outputs are judged over all draws; `named` says that this draw answers for what it makes wrong there.
        """
        draw = self.draws[name]
        try:
            if problem := layout_problem(draw, answer):
                return {"checks": [], "code": "LAYOUT", "reason": problem}
            read = tensors.read_tensors(path, answer["rows"])
            outputs = [theirs.to(mine.device) for theirs, mine in zip(read, draw.eager.tensors, strict=True)]
            after = tensors.read_tensors(path + ".inputs", answer["input_rows"], self.device)
        except (OSError, RuntimeError, ValueError, LookupError, TypeError, AttributeError) as error:
            # Written by another hand than our own exporter's.
            return {"checks": [], "code": "FORGED_RESULT", "reason": f"the answer cannot be read: {error!r}"}
        checks = []
        for index, output_path in enumerate(draw.eager.paths):
            checks.append(self._check(output_path, index, draw, outputs[index], named=named))
        failed = next((check for check in checks if not check["passed"]), None)
        if failed is not None:
            return {
                "checks": words(checks),
                "code": failed["code"],
                "reason": f"{failed['output']}: {failed['reason']}",
            }
        for number, (mine, theirs) in enumerate(zip(draw.inputs_after, after, strict=True)):
            if not same(mine, theirs):
                return {"checks": words(checks), "code": "INPUT_MUTATED", "reason": f"input {number} was changed"}
        if problem := alias_problem(draw, answer):
            return {"checks": words(checks), "code": "ALIAS", "reason": problem}
        weak = [check["output"] for check in checks if check["rounding_level"]]
        return {"checks": words(checks), "code": None, "reason": "", "weak": weak}

    def _check(self, path: str, index: int, draw: Draw, candidate: torch.Tensor, *, named: bool) -> "dict[str, Any]":
        reference, eager, tie = draw.reference.tensors[index], draw.eager.tensors[index], draw.ties.get(index)
        if eager.is_complex():
            candidate, reference, eager = (torch.view_as_real(tensor) for tensor in (candidate, reference, eager))
        if tie is not None:
            candidate = torch.where(tie, reference.to(candidate.dtype), candidate)
        pool = self.pools.setdefault(path, compare.Pool())
        check = compare.check_output(
            candidate, reference, eager, pool, cap=self.task["error_cap"], exact=self.pair.double is not None
        )
        if reference.is_floating_point() and reference.numel() < compare.SMALL:
            check |= self._stacked(path, candidate, reference, eager, named=named)
        return check | {"output": path}

    def _stacked(
        self, path: str, candidate: torch.Tensor, reference: torch.Tensor, eager: torch.Tensor, *, named: bool
    ) -> "dict[str, Any]":
        """Hold a small output for `check_stacks`; if `named`, what fails with this one and not before fails here."""
        held = self.stacks.setdefault(path, Stack())
        cap = self.task["error_cap"]
        good = (
            named
            and bool(held.candidates)
            and bool(compare.check_stack(held.candidates, held.references, held.eagers, cap=cap)["passed"])
        )
        held.candidates.append(candidate)
        held.references.append(reference)
        held.eagers.append(eager)
        if not good:
            return {}
        row = compare.check_stack(held.candidates, held.references, held.eagers, cap=cap)
        failed = {"passed": False, "code": "NUM_MISMATCH", "reason": row["reason"]}
        return {} if row["passed"] else failed | {"error": row["error"], "limit": row["limit"]}

    def check_stacks(self) -> "dict[str, Any]":
        """The small outputs over all draws compared so far; clears them."""
        rows = []
        for path, held in self.stacks.items():
            row = compare.check_stack(held.candidates, held.references, held.eagers, cap=self.task["error_cap"])
            shape = [len(held.candidates), *held.eagers[0].shape]
            rows.append(row | {"output": path, "shape": shape, "dtype": tensors.dtype_name(held.eagers[0].dtype)})
        self.stacks = {}
        return {"rows": words(rows)}

    def warm_pool(self, name: str) -> "dict[str, Any]":
        """Add eager's own error on a draw to the pools, so that one lucky draw does not set the limit."""
        draw = self.draws[name]
        for path, reference, eager in zip(draw.eager.paths, draw.reference.tensors, draw.eager.tensors, strict=True):
            if eager.is_complex():
                reference, eager = torch.view_as_real(reference), torch.view_as_real(eager)
            telling = (compare.classes(reference) == 0) & (compare.classes(eager) == 0)
            self.pools.setdefault(path, compare.Pool()).add(compare.measure(eager, reference, telling))
        return {}

    def forget(self, name: str) -> "dict[str, Any]":
        """Drop a spent draw."""
        self.draws.pop(name, None)
        return {}

    # ---- timing of a baseline, and the check of timed calls

    def compile(self, mode: str = "default") -> "dict[str, Any]":
        """Compile the reference in a mode of torch.compile and run it once. Raises where that falls back to eager."""
        from . import compiled

        self.pair.set_state(None)
        plan, inputs = self._inputs(3)
        args, kwargs = trees.unflatten(plan, inputs, self.module)
        self.call, facts = compiled.compile_model(self.pair.model, args, kwargs, mode=mode)
        return facts

    def prepare(self, seed: int, positions: "list[float | None]") -> "dict[str, Any]":
        """Make this process ready to time its model on a draw. Positions are shares of each input's length."""
        plan, inputs = self._inputs(seed)
        self.timer = timing.Timer(
            self.call, lambda placed: trees.unflatten(plan, placed, self.module), inputs, positions
        )
        return {}

    def renew(self) -> "dict[str, Any]":
        """Give the timed inputs new addresses."""
        self.timer.renew()
        return {}

    def time_slice(self, calls: int, salt: int) -> "dict[str, Any]":
        """Time some calls."""
        return self.timer.slice(calls, salt)

    def perturb(self, name: str, positions: "list[float | None]", number: int) -> "dict[str, Any]":
        """Bring a draw to the state its inputs had in timed call `number`, and refer to it anew."""
        draw = self.draws[name]
        self.pair.set_state(draw.state_seed)
        inputs = [precise.clone_strided(tensor) for tensor in draw.inputs]
        for change in timing.changes(inputs, positions):
            change.apply(number)
        found = self.pair.refer(draw.args_plan, inputs, draw.state_seed, number)
        found.inputs = draw.inputs
        self.draws[name] = found
        return {}

    # ---- the same on a GPU

    def prepare_on_gpu(self, seed: int, changing: "list[bool]", how: str) -> "dict[str, Any]":
        """Make this process ready to time its model on a draw: by "graph", or by "batch"."""
        self.pair.set_state(None)
        plan, inputs = self._inputs(seed)
        self.bench = Bench(self.call, lambda placed: trees.unflatten(plan, placed, self.module), inputs, changing)
        return self.bench.prepare(how)

    def graph_slice(self, seed: int, record: bool) -> "dict[str, Any]":
        """One slice of replays."""
        assert self.bench is not None
        return self.bench.graph.slice(seed, record=record)

    def batch(self, seed: int) -> "dict[str, Any]":
        """One batch of calls as called."""
        assert self.bench is not None
        return self.bench.batch.run(seed)

    def release(self) -> "dict[str, Any]":
        """Free what was made ready, if anything was."""
        if self.bench is not None:
            self.bench.close()
            self.bench = None
            torch.cuda.empty_cache()
        return {}

    def rewrite(self, name: str, changing: "list[bool]", made_from: "dict[str, int]") -> "dict[str, Any]":
        """Bring a draw to the inputs that one timed call saw, and refer to it anew."""
        draw = self.draws[name]
        self.pair.set_state(draw.state_seed)
        inputs = rewritten(draw.inputs, changing, **made_from)
        found = self.pair.refer(draw.args_plan, inputs, draw.state_seed, made_from["seed"])
        found.inputs = draw.inputs
        self.draws[name] = found
        return {}

    # ---- what the tools show

    def trace(self) -> "dict[str, Any]":
        """The reference's operators."""
        from . import trace

        self.pair.set_state(None)
        plan, inputs = self._inputs(1)
        args, kwargs = trees.unflatten(plan, inputs, self.module)
        return {"trace": trace.trace(self.pair.model, args, kwargs)}

    def profile(self, rates: bool = False) -> "dict[str, Any]":
        """The reference's operators by time, and on the CPU the ceilings; with `rates` only what this GPU reaches."""
        if rates:
            return {"rates": profiling.device_ceilings()}
        self.pair.set_state(None)
        plan, inputs = self._inputs(1)
        args, kwargs = trees.unflatten(plan, inputs, self.module)
        found = profiling.operators(lambda: self.pair.model(*args, **kwargs))
        return found if gpu.is_gpu(self.device) else found | {"ceilings": profiling.ceilings()}
