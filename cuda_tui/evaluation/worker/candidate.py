"""The untrusted side: loads ModelNew, runs it on what it is given, and exports raw bytes.

It sees inputs and state, never references, tolerances or later seeds. What it says of itself is not believed where
the oracle or the controller can look for themselves.
"""

import os
from typing import Any

import torch

from . import loading, profiling, tensors, timing, trees

_exact_type, _vars, _isinstance = type, vars, isinstance


class Service:
    """Answers the controller. Methods are operations; their keywords are the request's fields."""

    def __init__(self, request: "dict[str, Any]") -> None:
        timing.settle(request.get("threads", 1), request.get("cpu"))
        self.device = "cpu"
        self.model: torch.nn.Module
        self.module: Any = None
        self.timer: timing.Timer
        self.held: dict[str, Any] = {}

    def load(self, request: "dict[str, Any]") -> "dict[str, Any]":
        """Import model_new, construct ModelNew, set its mode. Returns the names of its state."""
        os.chdir(request["folder"])
        if request["library"]:
            os.environ["CUDA_TUI_LIBRARY"] = request["library"]
        self.module = loading.import_file(request["path"], "model_new", request["roots"])
        cls = getattr(self.module, "ModelNew", None)
        if cls is None:
            raise loading.Fault("RAISED", "model_new.py has no class ModelNew")
        with loading.seeded(request["seed"]):
            args, kwargs = self._arguments(request["init"], request["inbox"])
            self.model = cls(*args, **kwargs)
        self.model.train(request["mode"] == "train")
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

    def run(self, path: str, rows: "list[dict[str, Any]]", plan: trees.Plan, out: str) -> "dict[str, Any]":
        """One call; outputs and the inputs as they are afterwards go to files."""
        given, args, kwargs = self._read_inputs(path, rows, plan)
        with torch.no_grad():
            result = self.model(*args, **kwargs)
        return self._export(result, given, out)

    def _export(self, result: Any, given: "list[torch.Tensor]", out: str) -> "dict[str, Any]":
        leaves = trees.flatten(result)
        problems = [
            f"{path} is a {_exact_type(tensor).__name__}, not a plain torch.Tensor"
            for path, tensor in zip(leaves.paths, leaves.tensors, strict=True)
            if _exact_type(tensor) is not torch.Tensor or _vars(tensor)
        ]
        exported = [] if problems else leaves.tensors
        return {
            "plan": leaves.plan,
            "values": leaves.values,
            "problems": problems,
            "rows": tensors.write_tensors(exported, out),
            "input_rows": tensors.write_tensors(given, out + ".inputs"),
            "alias": self._aliases(leaves, given),
        }

    def _aliases(self, leaves: trees.Leaves, given: "list[torch.Tensor]") -> "dict[str, str]":
        """Outputs that share memory with an input or with the state, by path."""
        owners = {tensor.untyped_storage().data_ptr(): f"input {i}" for i, tensor in enumerate(given)}
        owners |= {t.untyped_storage().data_ptr(): name for name, t in loading.named_state(self.model).items()}
        found = {}
        for path, tensor in zip(leaves.paths, leaves.tensors, strict=True):
            if type(tensor) is torch.Tensor and tensor.numel() and tensor.untyped_storage().data_ptr() in owners:
                found[path] = owners[tensor.untyped_storage().data_ptr()]
        return found

    def prepare(
        self, path: str, rows: "list[dict[str, Any]]", plan: trees.Plan, positions: "list[float]"
    ) -> "dict[str, Any]":
        """Make this process ready to time the model on one draw."""
        given, args, kwargs = self._read_inputs(path, rows, plan)
        self.held["inputs"] = given
        self.timer = timing.Timer(self.model, args, kwargs)
        self.timer.watch(given, [int(share * tensor.numel()) for share, tensor in zip(positions, given, strict=True)])
        return {}

    def time_slice(self, calls: int, salt: int) -> "dict[str, Any]":
        """Time some calls."""
        return self.timer.slice(calls, salt)

    def export_timed(self, out: str) -> "dict[str, Any]":
        """The output of the last timed call, and the inputs as they are now."""
        return self._export(self.timer.last, self.held["inputs"], out)

    def profile(self, path: str, rows: "list[dict[str, Any]]", plan: trees.Plan) -> "dict[str, Any]":
        """Operators by time, and which operator namespaces the candidate's library registered."""
        _, args, kwargs = self._read_inputs(path, rows, plan)
        found = profiling.operators(lambda: self.model(*args, **kwargs))
        return found | {"namespace": getattr(self._extension(), "namespace", None)}

    @staticmethod
    def _extension() -> Any:
        import sys

        return sys.modules.get("cuda_extension")
