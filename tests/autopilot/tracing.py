"""Traces and groups of small functions, for tests of the autopilot."""

import warnings
from collections.abc import Callable
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch's own import warns where NumPy is not installed
    import torch as torch  # re-exported: tests take it from here

from cuda_tui.autopilot.fuse import Fusion, fuse
from cuda_tui.autopilot.graph import Graph, load
from cuda_tui.autopilot.rewrite import normalise
from cuda_tui.evaluation.worker.trace import trace

Function = Callable[..., Any]


class Wrapped(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.function(*tensors)


def trace_of(function: Function, *tensors: torch.Tensor) -> dict[str, Any]:
    """The trace of a function of tensors."""
    return trace(Wrapped(function).eval(), tensors, {})


def graph_of(function: Function, *tensors: torch.Tensor) -> Graph:
    """Its graph, as groups are made of it."""
    return normalise(load(trace_of(function, *tensors)))


def fused(function: Function, *tensors: torch.Tensor, device: str = "cpu") -> tuple[Graph, Fusion]:
    """Its graph and groups."""
    graph = graph_of(function, *tensors)
    return graph, fuse(graph, device=device)
