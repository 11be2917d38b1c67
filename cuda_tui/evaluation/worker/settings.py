"""What a candidate must leave as it found it: functions of torch and of the clock, and torch's global switches."""

import builtins
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional
import torch.testing

COMPILED = "graphs compiled"
# What a model's file may set when it is imported: the candidate, which never imports it, must run under the same.
_SETTERS: "dict[str, Callable[[Any], None]]" = {
    "default dtype": lambda value: torch.set_default_dtype(getattr(torch, str(value).removeprefix("torch."))),
    "float32 matmul precision": lambda value: torch.set_float32_matmul_precision(value),
    "cudnn.benchmark": lambda value: setattr(torch.backends.cudnn, "benchmark", value == "True"),
    "cudnn.allow_tf32": lambda value: setattr(torch.backends.cudnn, "allow_tf32", value == "True"),
}
_TORCH_FOLDER = os.path.dirname(str(torch.__file__)) + os.sep
_PLACES: "dict[str, Any]" = {
    "torch": torch,
    "torch.Tensor": torch.Tensor,
    "torch.nn.Module": torch.nn.Module,
    "torch.nn.functional": torch.nn.functional,
    "torch.testing": torch.testing,
    "torch.cuda.Event": torch.cuda.Event,
    "time": time,
    "json": json,
    "os": os,
    "builtins": builtins,
}


def switches() -> "dict[str, str]":
    """The global settings that change what an operator computes or how fast."""
    found = {
        "default dtype": torch.get_default_dtype(),
        "threads": torch.get_num_threads(),
        "float32 matmul precision": torch.get_float32_matmul_precision(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "flush denormal": _flushes_denormals(),
        "cudnn.benchmark": torch.backends.cudnn.benchmark,
        "cudnn.allow_tf32": torch.backends.cudnn.allow_tf32,
        "mkldnn.enabled": torch.backends.mkldnn.enabled,
        "autocast": torch.is_autocast_enabled("cpu"),
        "autocast on a GPU": torch.is_autocast_enabled("cuda"),
        "fp16 sums in fp16": torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
        "bf16 sums in bf16": torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        "function modes": torch._C._len_torch_function_stack(),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
    }
    found[COMPILED] = _graphs()
    return {name: str(value) for name, value in found.items()}


def precision() -> "dict[str, str]":
    """The switches that `apply` can set, as they are."""
    now = switches()
    return {name: now[name] for name in _SETTERS}


def apply(values: "dict[str, str]") -> None:
    """Set switches to what `precision` said elsewhere."""
    now = switches()
    for name, value in values.items():
        if now[name] != value:
            _SETTERS[name](value)


def _graphs() -> int:
    """Graphs that torch.compile has made in this process, by whatever door."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return int(dynamo.counters["stats"].get("unique_graphs", 0)) if dynamo is not None else 0


def _flushes_denormals() -> bool:
    """Whether this thread treats the smallest numbers as zero."""
    return float(torch.tensor(1e-310, dtype=torch.float64) * torch.tensor(1.0, dtype=torch.float64)) == 0.0


class Snapshot:
    """Functions by identity, switches by value, as they are when it is made."""

    def __init__(self) -> None:
        self._functions = dict(_functions())
        self._switches = switches()

    def changes(self) -> "dict[str, list[str]]":
        """What differs now: `functions` that are others, `switches` as "name: before to after"."""
        now = dict(_functions())
        after = switches()
        return {
            "functions": [
                name
                for name, found in self._functions.items()
                if now.get(name) is not found and not _is_torchs_own(now.get(name))
            ],
            "switches": [
                f"{name}: {before} to {after[name]}" for name, before in self._switches.items() if after[name] != before
            ],
        }


def _is_torchs_own(function: Any) -> bool:
    """Defined in torch's own files: some of its parts replace functions of others when they are first used."""
    code = getattr(function, "__code__", None)
    return code is not None and str(code.co_filename).startswith(_TORCH_FOLDER)


def _functions() -> "Iterator[tuple[str, Any]]":
    for place, owner in _PLACES.items():
        with contextlib.suppress(TypeError):
            for name, value in vars(owner).items():
                if callable(value) or isinstance(value, property):
                    yield f"{place}.{name}", value
