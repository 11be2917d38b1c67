"""Bytes and FLOP of traced operators, for every kind of node that a trace has."""

import importlib.util
from pathlib import Path

import pytest

from cuda_tui.evaluation.profile import work
from cuda_tui.evaluation.worker.trace import trace

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*/model.py"))


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_work_of_every_example_adds_up_to_its_traces_totals(path: Path) -> None:
    spec = importlib.util.spec_from_file_location(f"work_{path.parent.name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    traced = trace(module.Model(*module.get_init_inputs()).eval(), tuple(module.get_inputs()), {})
    found = work.by_operator(traced, {})
    totals = traced["totals"]
    assert sum(item.flop for item in found.values()) == totals["flop"] == sum(work.flop_by_dtype(traced).values())
    assert sum(item.bytes_moved for item in found.values()) == totals["bytes_read"] + totals["bytes_written"]
    assert work.outer_bytes(traced) > 0


def test_node_without_a_namespace_is_listed_by_its_own_name() -> None:
    node = {"op": "getitem", "outputs": [], "bytes_read": 0, "bytes_written": 0, "flop": 0}
    assert list(work.by_operator({"nodes": [node]}, {})) == ["getitem"]
