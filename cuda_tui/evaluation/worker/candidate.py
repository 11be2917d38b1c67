"""The untrusted side: loads ModelNew, runs it on what it is given, and exports raw bytes.

It sees inputs and state, never references, tolerances or later seeds. What it says of itself is not believed where
the oracle or the controller can look for themselves.
"""

import contextlib
import json
import os
from typing import Any

import torch

from . import device as gpu
from . import gradients as backward
from . import loading, profiling, referring, settings, tensors, timing, trees
from .timed_on_gpu import Bench

_exact_type, _vars, _isinstance = type, vars, isinstance
_compile = torch.compile  # before `load` takes it from the candidate


class Service:
    """Answers the controller. Methods are operations; their keywords are the request's fields."""

    def __init__(self, request: "dict[str, Any]") -> None:
        timing.settle(request.get("threads", 1), request.get("cpu"))
        self.pad = timing.pad()
        self.device = gpu.use(request.get("device", "cpu"))
        self.model: torch.nn.Module
        self.module: Any = None
        self.timer: timing.Timer
        self.bench: Bench
        self.held: dict[str, Any] = {}
        self.before: settings.Snapshot
        self.state_names: frozenset[str] = frozenset()  # as constructed; what a call keeps for itself is its own
        self.earlier: list[torch.Tensor] = []  # outputs of the last call, alive so that nothing else gets their memory

    def load(self, request: "dict[str, Any]") -> "dict[str, Any]":
        """Import model_new, construct ModelNew, set its mode. Returns the names of its state."""
        timing.poison_new_memory(True)
        os.chdir(request["folder"])
        if request["library"]:
            os.environ["CUDA_TUI_LIBRARY"] = request["library"]
        settings.apply(request["precision"])
        torch.compile = _no_compile
        self.before = settings.Snapshot()
        self.module = loading.import_file(request["path"], "model_new", request["roots"])
        cls = getattr(self.module, "ModelNew", None)
        if cls is None:
            raise loading.Fault("RAISED", "model_new.py has no class ModelNew")
        with loading.seeded(request["seed"]):
            args, kwargs = self._arguments(request["init"], request["inbox"])
            self.model = cls(*args, **kwargs).to(self.device)
        self.model.train(request["mode"] == "train")
        self.state_names = frozenset(loading.named_state(self.model))
        return {"state": list(loading.named_state(self.model))}

    def _arguments(self, init: "dict[str, Any]", inbox: str) -> Any:
        if init["opaque"]:
            return loading.split_arguments(self.module.get_init_inputs())
        given = tensors.read_tensors(os.path.join(inbox, init["file"]), init["rows"], self.device)
        return trees.unflatten(init["plan"], given, self.module)

    def set_state(self, path: str, rows: "dict[str, dict[str, Any]]") -> "dict[str, Any]":
        """Load parameters, buffers and tensor attributes by name. Returns what does not fit."""
        values = dict(zip(rows, tensors.read_tensors(path, list(rows.values()), self.device), strict=True))
        return {"problems": loading.load_state(self.model, values)}

    def _read_inputs(self, path: str, rows: "list[dict[str, Any]]", plan: trees.Plan) -> Any:
        given = tensors.read_tensors(path, rows, self.device)
        args, kwargs = trees.unflatten(plan, given, self.module)
        return given, args, kwargs

    def run(
        self, path: str, rows: "list[dict[str, Any]]", plan: trees.Plan, out: str, elsewhere: bool = False
    ) -> "dict[str, Any]":
        """One call; outputs and the inputs as they are afterwards go to files. `elsewhere`: another GPU is current."""
        given = tensors.read_tensors(path, rows, self.device)

        def call(placed: "list[torch.Tensor]") -> Any:
            with gpu.another_current(self.device) if elsewhere else contextlib.nullcontext():
                return self._call(placed, plan)

        with torch.no_grad():
            if gpu.is_gpu(self.device):
                with gpu.poisoned_memory():
                    result = gpu.call_behind_a_producer(call, given, self.device)
            else:
                result = call(given)
        return self._export(result, given, out)

    def gradients(
        self, path: str, rows: "list[dict[str, Any]]", plan: trees.Plan, out: str, wrt_inputs: bool, seed: int
    ) -> "dict[str, Any]":
        """Gradients of every parameter, and of every input if asked; `names` has those that arrive."""
        given = tensors.read_tensors(path, rows, self.device)
        found = backward.gradients(
            self.model, lambda placed: self._call(placed, plan), given, inputs=wrt_inputs, seed=seed
        )
        arrived = {name: grad for name, grad in found.items() if grad is not None}
        return {"names": list(arrived), "rows": tensors.write_tensors(list(arrived.values()), out)}

    def compiles(self, path: str, rows: "list[dict[str, Any]]", plan: trees.Plan) -> "dict[str, Any]":
        """Why torch.compile cannot take the whole model as one graph; empty where it can. Ends this process's use."""
        _, args, kwargs = self._read_inputs(path, rows, plan)
        with torch.no_grad():
            self.model(*args, **kwargs)  # resolves the extension's operators, as any first call does
            try:
                _compile(self.model, fullgraph=True, dynamic=False, backend="aot_eager")(*args, **kwargs)
            except Exception as error:
                lines = [line.strip() for line in str(error).splitlines() if line.strip()]
                return {"reason": f"{_exact_type(error).__name__}: {lines[0] if lines else ''}"[:300]}
        return {"reason": ""}

    def _call(self, given: "list[torch.Tensor]", plan: trees.Plan) -> Any:
        args, kwargs = trees.unflatten(plan, given, self.module)
        return self.model(*args, **kwargs)

    def _export(self, result: Any, given: "list[torch.Tensor]", out: str) -> "dict[str, Any]":
        leaves = trees.flatten(result, numbers=True)
        problems = [
            f"{path} is a {_exact_type(tensor).__name__}, not a plain torch.Tensor"
            for path, tensor in zip(leaves.paths, leaves.tensors, strict=True)
            if _exact_type(tensor) is not torch.Tensor or _vars(tensor)
        ]
        exported = [] if problems else leaves.tensors
        rows = tensors.write_tensors(exported, out, settled=True)
        aliases = self._aliases(leaves, given)
        self.earlier = exported
        input_rows = tensors.write_tensors(given, out + ".inputs", settled=True)
        gpu.synchronize(self.device)  # a fault of work on any stream belongs to this call
        return {
            "plan": leaves.plan,
            "values": leaves.values,
            "problems": problems,
            "rows": rows,
            "input_rows": input_rows,
            "alias": aliases,
            "settings": self.before.changes(),
        }

    def _aliases(self, leaves: trees.Leaves, given: "list[torch.Tensor]") -> "dict[str, str]":
        """Outputs that share memory with an input, with the state or with an earlier output, by path."""
        state = {name: at for name, at in loading.named_state(self.model).items() if name in self.state_names}
        earlier = {f"an earlier output ({number})": tensor for number, tensor in enumerate(self.earlier)}
        return referring.aliases_of(leaves, given, earlier | state)

    def prepare(
        self, path: str, rows: "list[dict[str, Any]]", plan: trees.Plan, positions: "list[float | None]"
    ) -> "dict[str, Any]":
        """Make this process ready to time the model on one draw."""
        timing.poison_new_memory(False)
        given = tensors.read_tensors(path, rows, self.device)
        self.timer = timing.Timer(
            self.model, lambda placed: trees.unflatten(plan, placed, self.module), given, positions
        )
        return {}

    def renew(self) -> "dict[str, Any]":
        """Give the timed inputs new addresses."""
        self.timer.renew()
        return {}

    def time_slice(self, calls: int, salt: int) -> "dict[str, Any]":
        """Time some calls."""
        return self.timer.slice(calls, salt)

    def export_timed(self, out: str) -> "dict[str, Any]":
        """The output of the last timed call, and the inputs as they are now."""
        return self._export(self.timer.last, self.timer.inputs, out)

    # ---- timing on a GPU

    def prepare_on_gpu(
        self, path: str, rows: "list[dict[str, Any]]", plan: trees.Plan, changing: "list[bool]", how: str
    ) -> "dict[str, Any]":
        """Make this process ready to time the model on one draw: by "graph", or by "batch"."""
        given = tensors.read_tensors(path, rows, self.device)
        self.bench = Bench(self.model, lambda placed: trees.unflatten(plan, placed, self.module), given, changing)
        return self.bench.prepare(how)

    def graph_slice(self, seed: int, record: bool) -> "dict[str, Any]":
        """One slice of replays."""
        return self.bench.graph.slice(seed, record=record)

    def batch(self, seed: int) -> "dict[str, Any]":
        """One batch of calls as called."""
        return self.bench.batch.run(seed)

    def export_replayed(self, number: int, out: str) -> "dict[str, Any]":
        """The output of one call of the last replay, the inputs it had, and what they were made from."""
        result, given, made_from = self.bench.graph.last(number)
        return self._export(result, given, out) | {"made_from": made_from}

    def export_batched(self, out: str) -> "dict[str, Any]":
        """The output of the last call of the last batch, the inputs it had, and what they were made from."""
        result, given, made_from = self.bench.batch.last()
        return self._export(result, given, out) | {"made_from": made_from}

    def profile(self, path: str, rows: "list[dict[str, Any]]", plan: trees.Plan) -> "dict[str, Any]":
        """Operators by time, and the operator namespaces of the candidate's own library."""
        _, args, kwargs = self._read_inputs(path, rows, plan)
        return profiling.operators(lambda: self.model(*args, **kwargs)) | {"namespaces": _own_namespaces()}


def _no_compile(*_: Any, **__: Any) -> Any:
    """In the place of torch.compile: what it returns may be defined by an imported library, never be called."""

    def refuse(*_: Any, **__: Any) -> Any:
        text = "model_new runs code compiled by torch.compile: that is a baseline, not a candidate's own work"
        raise loading.Fault("BANNED_OP", text)

    return refuse


def _own_namespaces() -> "list[str]":
    """As the library's manifest lists them, beside the library."""
    library = os.environ.get("CUDA_TUI_LIBRARY")
    if not library:
        return []
    with open(os.path.splitext(library)[0] + ".json", encoding="utf-8") as handle:
        manifest = json.load(handle)
    return [manifest["namespace"], *manifest["foreign_namespaces"]]
