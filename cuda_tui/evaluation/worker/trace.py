"""The reference's operators as plain JSON: what runs, on which shapes, how many bytes and FLOP, from which source line.

The graph is functional (no in-place operators) and stays at the level at which eager PyTorch works: `layer_norm`,
`softmax` and `linear` are one node each, so that the bytes of a node are those that eager moves for it.

Runs in the user's interpreter: standard library and torch only.
"""

from __future__ import annotations

import inspect
import os
import traceback
import warnings
from typing import Any

import torch

from .operators import describe_node, describe_tensor, plain

VERSION = 1
INLINE_LIMIT = 64  # constants of at most this many elements are stored by value


class Untraceable(Exception):
    """The model has no fixed graph of operators for these inputs. `reason` is one sentence; `source` is `file:line`."""

    def __init__(self, reason: str, *, source: str = "") -> None:
        super().__init__(f"{reason} ({source})" if source else reason)
        self.reason = reason
        self.source = source


def trace(model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Trace one call of `model` and return its graph as JSON-able data.

    Keys: `inputs` (tensors of the call, each with the path by which forward reaches it), `fixed_inputs` (arguments
    that are no tensors and are baked into the graph), `parameters` (parameters, buffers and plain tensor attributes by
    qualified name), `nodes` in execution order, `outputs` (the structure that forward returns), `mutations`, `totals`.
    A reference to a value is `{"ref": name}`. Raises Untraceable.
    """
    tensors, fixed, bound = _flatten_call(model, args, kwargs)
    flat = _FlatCall(model, bound).train(model.training)
    program = _export(flat, tuple(tensors[path] for path in tensors))
    return _describe(program, flat, tensors, fixed)


class _Holder:
    """Where the structure of the result is kept: export resets attributes that a module sets on itself."""

    structure: dict[str, Any]


class _FlatCall(torch.nn.Module):
    """Calls the model with a flat list of tensors, so that any nesting of inputs and outputs can be traced."""

    def __init__(self, model: torch.nn.Module, bound: inspect.BoundArguments) -> None:
        super().__init__()
        self.model = model
        self.bound = bound
        self.holder = _Holder()

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        queue = list(tensors)
        args = tuple(_replace(value, queue) for value in self.bound.args)
        kwargs = {name: _replace(value, queue) for name, value in self.bound.kwargs.items()}
        found: list[torch.Tensor] = []
        self.holder.structure = _structure(self.model(*args, **kwargs), found)
        if not found:
            raise Untraceable("forward returns no tensor")
        return tuple(found)


def _flatten_call(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[dict[tuple[Any, ...], torch.Tensor], list[dict[str, Any]], inspect.BoundArguments]:
    try:
        bound = inspect.signature(model.forward).bind(*args, **kwargs)
    except TypeError as error:
        raise Untraceable(f"forward cannot be called with these inputs: {error}") from error
    kinds = {name: parameter.kind for name, parameter in bound.signature.parameters.items()}
    tensors: dict[tuple[Any, ...], torch.Tensor] = {}
    fixed: list[dict[str, Any]] = []
    by_position = [name for name in bound.arguments if kinds[name] not in (_VAR_KEYWORD, _KEYWORD_ONLY)]
    by_keyword = [name for name in bound.arguments if kinds[name] in (_VAR_KEYWORD, _KEYWORD_ONLY)]
    for name in by_position + by_keyword:
        _walk(bound.arguments[name], (name,), tensors, fixed)
    return tensors, fixed, bound


_VAR_KEYWORD = inspect.Parameter.VAR_KEYWORD
_KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY


def _walk(
    value: Any, path: tuple[Any, ...], tensors: dict[tuple[Any, ...], torch.Tensor], fixed: list[dict[str, Any]]
) -> None:
    if isinstance(value, torch.Tensor):
        tensors[path] = value
    elif isinstance(value, dict):
        for key, item in value.items():
            _walk(item, (*path, key), tensors, fixed)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _walk(item, (*path, index), tensors, fixed)
    elif value is None or isinstance(value, (bool, int, float, str)):
        fixed.append({"path": list(path), "value": plain(value)})
    else:
        fixed.append({"path": list(path), "opaque": type(value).__name__})


def _replace(value: Any, queue: list[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return queue.pop(0)
    if isinstance(value, dict):
        items = {key: _replace(item, queue) for key, item in value.items()}
        return items if type(value) is dict else type(value)(items)
    if isinstance(value, tuple):
        parts = [_replace(item, queue) for item in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, list):
        return [_replace(item, queue) for item in value]
    return value


def _structure(value: Any, found: list[torch.Tensor]) -> dict[str, Any]:
    """The shape of a result; tensors become numbers into the flat list of outputs."""
    if isinstance(value, torch.Tensor):
        found.append(value)
        return {"kind": "tensor", "index": len(found) - 1}
    if isinstance(value, dict) and type(value) is dict:
        return {"kind": "dict", "items": [[plain(key), _structure(item, found)] for key, item in value.items()]}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return _object(value, [[name, _structure(getattr(value, name), found)] for name in value._fields])
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return {"kind": kind, "items": [_structure(item, found) for item in value]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"kind": "constant", "value": plain(value)}
    fields = getattr(value, "__dict__", None)
    if isinstance(value, dict):  # a mapping type of the user's, such as an ordered model output
        fields = dict(value.items())
    if fields is None:
        raise Untraceable(f"forward returns a {type(value).__name__}, which is neither tensor nor container")
    return _object(value, [[name, _structure(item, found)] for name, item in fields.items()])


def _object(value: Any, fields: list[list[Any]]) -> dict[str, Any]:
    return {"kind": "object", "class": type(value).__qualname__, "module": type(value).__module__, "items": fields}


def _export(flat: _FlatCall, tensors: tuple[torch.Tensor, ...]) -> torch.export.ExportedProgram:
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            program = torch.export.export(flat, tensors, strict=False).run_decompositions({})
            assert isinstance(program, torch.export.ExportedProgram)
            return program
    except Untraceable:
        raise
    except Exception as error:
        raise Untraceable(_reason(error), source=_user_line(error)) from error


def _reason(error: Exception) -> str:
    text = f"{type(error).__name__}: {error}"
    if "data-dependent" in text or "DataDependent" in text or "unbacked" in text.lower():
        return "control flow or a shape depends on the values of a tensor, so there is no fixed graph"
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return f"the model cannot be traced: {first[:300]}"


def _user_line(error: BaseException) -> str:
    """The innermost line of the traceback that is not torch's or ours."""
    inside = os.path.dirname(torch.__file__)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(inside)]
    frames = [frame for frame in frames if frame.filename != __file__ and not frame.filename.startswith("<")]
    return f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""


def _describe(
    program: torch.export.ExportedProgram,
    flat: _FlatCall,
    tensors: dict[tuple[Any, ...], torch.Tensor],
    fixed: list[dict[str, Any]],
) -> dict[str, Any]:
    signature = program.graph_signature
    paths = dict(zip(signature.user_inputs, tensors, strict=True))
    inputs, parameters, nodes = [], [], []
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in paths:
            inputs.append({"name": node.name, "path": list(paths[node.name]), **describe_tensor(node.meta["val"])})
        elif node.op == "placeholder":
            parameters.append(_parameter(node, program, flat.model))
        elif node.op == "call_function":
            nodes.append(describe_node(node))
    used = {name for node in nodes for name in _references([node["args"], node["kwargs"]])}
    return {
        "version": VERSION,
        "torch": torch.__version__,
        "device": str(next(iter(tensors.values())).device) if tensors else "cpu",
        "mode": "train" if flat.model.training else "eval",
        "inputs": inputs,
        "fixed_inputs": fixed,
        "parameters": [item for item in parameters if item["name"] in used],
        "nodes": nodes,
        "outputs": _named(flat.holder.structure, list(signature.user_outputs)),
        "mutations": _mutations(signature, paths),
        "totals": {key: sum(node[key] for node in nodes) for key in ("bytes_read", "bytes_written", "flop")},
    }


def _mutations(signature: Any, paths: dict[str, tuple[Any, ...]]) -> list[str]:
    """Held tensors and inputs that forward changes."""
    inputs = {".".join(map(str, paths[name])) for name in signature.user_inputs_to_mutate.values()}
    return sorted(inputs | {name.removeprefix("model.") for name in signature.buffers_to_mutate.values()})


def _parameter(node: Any, program: torch.export.ExportedProgram, model: torch.nn.Module) -> dict[str, Any]:
    signature = program.graph_signature
    tables = {
        "parameter": signature.inputs_to_parameters,
        "buffer": signature.inputs_to_buffers,
        "attribute": signature.inputs_to_lifted_tensor_constants,
    }
    kind, target = next((kind, table[node.name]) for kind, table in tables.items() if node.name in table)
    entry = {
        "name": node.name,
        "kind": kind,
        "target": target.removeprefix("model."),
        **describe_tensor(node.meta["val"]),
    }
    if kind == "attribute" and not isinstance(_reach(model, entry["target"]), torch.Tensor):
        entry["kind"] = "constant"
        value = program.constants.get(target)
        if isinstance(value, torch.Tensor) and value.numel() <= INLINE_LIMIT:
            entry["value"] = plain(value.tolist())
    return entry


def _reach(model: Any, path: str) -> Any:
    for part in path.split("."):
        model = getattr(model, part, None)
    return model


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        if set(value) == {"ref"}:
            return [value["ref"]]
        return [name for item in value.values() for name in _references(item)]
    if isinstance(value, list):
        return [name for item in value for name in _references(item)]
    return []


def _named(structure: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """The output structure with each number replaced by the name of its value."""
    if structure["kind"] == "tensor":
        return {"kind": "tensor", "ref": names[structure["index"]]}
    if structure["kind"] in ("list", "tuple"):
        return {**structure, "items": [_named(item, names) for item in structure["items"]]}
    if structure["kind"] in ("dict", "object"):
        return {**structure, "items": [[key, _named(item, names)] for key, item in structure["items"]]}
    return structure
