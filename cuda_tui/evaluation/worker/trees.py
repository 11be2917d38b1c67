"""Nested inputs and outputs: walked to named tensor leaves, described as JSON, and rebuilt.

Known containers: tuples, lists, named tuples, mappings, dataclasses, and objects with `to_tuple`. Anything else that
is no tensor and no plain value is opaque: named, and not compared.
"""

import dataclasses
import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch

Plan = dict[str, Any]
PLAIN = (bool, int, float, str, bytes, type(None), complex)


@dataclasses.dataclass
class Leaves:
    """Tensor leaves in order, with their paths; plain values by path; paths of what is opaque."""

    tensors: "list[torch.Tensor]" = dataclasses.field(default_factory=list)
    paths: "list[str]" = dataclasses.field(default_factory=list)
    values: "dict[str, str]" = dataclasses.field(default_factory=dict)
    opaque: "dict[str, str]" = dataclasses.field(default_factory=dict)
    plan: Plan = dataclasses.field(default_factory=dict)
    numbers: bool = False


def flatten(tree: Any, root: str = "out", *, numbers: bool = False) -> Leaves:
    """Walk a structure. The plan rebuilds it through `unflatten`; two plans are equal when the structures are.

    With `numbers` a plain float (a loss after `.item()`) is a leaf like a tensor, to be compared with a tolerance.
    """
    leaves = Leaves(numbers=numbers)
    leaves.plan = _walk(tree, root, leaves)
    return leaves


def _walk(tree: Any, path: str, leaves: Leaves) -> Plan:
    if isinstance(tree, torch.Tensor):
        leaves.tensors.append(tree)
        leaves.paths.append(path)
        return {"kind": "tensor", "index": len(leaves.tensors) - 1}
    if leaves.numbers and type(tree) is float:
        leaves.tensors.append(torch.tensor(tree, dtype=torch.float32))
        leaves.paths.append(path)
        return {"kind": "number", "type": "float"}
    if isinstance(tree, PLAIN):
        leaves.values[path] = repr(tree)
        plain = tree if isinstance(tree, (bool, int, str, type(None))) else None
        return {"kind": "value", "value": plain, "repr": repr(tree), "type": type(tree).__name__}
    parts = _parts(tree)
    if parts is None:
        leaves.opaque[path] = type(tree).__name__
        return {"kind": "opaque", "type": type(tree).__name__}
    kind, names, items, accessor = parts
    plans = [_walk(item, path + accessor(name), leaves) for name, item in zip(names, items, strict=True)]
    return {"kind": kind, "keys": [_key(name) for name in names], "items": plans, "type": _type_name(type(tree))}


def _parts(tree: Any) -> "tuple[str, list[Any], list[Any], Callable[[Any], str]] | None":
    """Kind, keys, items and how a key is written in a path; None where the object is opaque."""
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return "namedtuple", list(tree._fields), list(tree), lambda key: "." + key
    if isinstance(tree, (tuple, list)):
        kind = "tuple" if isinstance(tree, tuple) else "list"
        return kind, list(range(len(tree))), list(tree), lambda key: f"[{key}]"
    if dataclasses.is_dataclass(tree) and not isinstance(tree, (type, Mapping)):
        names = [field.name for field in dataclasses.fields(tree)]
        return "dataclass", names, [getattr(tree, name) for name in names], lambda key: "." + key
    if isinstance(tree, Mapping):
        return "mapping", list(tree.keys()), list(tree.values()), lambda key: f"[{key!r}]"
    if callable(getattr(tree, "to_tuple", None)) and not isinstance(tree, type):
        items = list(tree.to_tuple())
        return "to_tuple", list(range(len(items))), items, lambda key: f"[{key}]"
    return None


def _key(name: Any) -> Any:
    return name if isinstance(name, (str, int, bool)) else repr(name)


def _type_name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def shape_of(plan: Plan) -> Any:
    """What two structures must share: kinds, keys, and type names without their module."""
    if "items" not in plan:
        return (plan["kind"], plan.get("type"))
    name = plan["type"].partition(":")[2]
    return (plan["kind"], name, tuple(map(str, plan["keys"])), tuple(shape_of(item) for item in plan["items"]))


def unflatten(plan: Plan, tensors: "list[torch.Tensor]", home: Any = None) -> Any:
    """Rebuild a structure. Classes are looked up in the module `home` first, then where they were defined."""
    kind = plan["kind"]
    if kind == "tensor":
        return tensors[plan["index"]]
    if kind == "value":
        return _value(plan)
    if kind == "opaque":
        raise TypeError("an input of type {} cannot be handed to a candidate process".format(plan["type"]))
    items = [unflatten(item, tensors, home) for item in plan["items"]]
    if kind == "list":
        return items
    if kind == "tuple":
        return tuple(items)
    if plan["type"] in ("builtins:dict", "collections:OrderedDict"):
        return dict(zip(plan["keys"], items, strict=True))
    container = _resolve(plan["type"], home)
    if kind == "namedtuple":
        return container(*items)
    if kind == "to_tuple":
        return container(*items)
    keyed = dict(zip(plan["keys"], items, strict=True))
    return container(**keyed) if kind == "dataclass" else container(keyed)


def _value(plan: Plan) -> Any:
    if plan["type"] in ("float", "complex"):
        return {"float": float, "complex": complex}[plan["type"]](plan["repr"])
    if plan["type"] == "bytes":
        import ast

        return ast.literal_eval(plan["repr"])
    return plan["value"]


def _resolve(type_name: str, home: Any) -> Any:
    module, _, name = type_name.partition(":")
    found = getattr(home, name.rpartition(".")[2], None)
    if found is not None:
        return found
    target: Any = sys.modules.get(module) or importlib.import_module(module)
    for part in name.split("."):
        target = getattr(target, part)
    return target
