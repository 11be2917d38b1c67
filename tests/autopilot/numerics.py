"""Run as a program: builds the kernel of every case in one workspace and prints how it compares, as JSON.

Usage: python -m tests.autopilot.numerics FOLDER
"""

import importlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from cuda_tui.autopilot.emit_cpp import Kernel, emit_cpp
from cuda_tui.autopilot.graph import Graph
from cuda_tui.autopilot.math_cpp import MATH_HEADER, MATH_TEXT
from cuda_tui.autopilot.names import variables
from tests.autopilot.cases import Case, cases
from tests.autopilot.tracing import fused, torch

TEMPLATE = Path(__file__).parents[2] / "workspace_template"


def main(folder: Path) -> dict[str, Any]:
    """Compare all cases; values are errors as the verifier computes them."""
    shutil.copytree(TEMPLATE, folder, dirs_exist_ok=True)
    (folder / MATH_HEADER).write_text(MATH_TEXT)
    made: dict[str, tuple[Graph, Kernel]] = {}
    listed = cases()
    for name, (function, tensors) in listed.items():
        graph, fusion = fused(function, *tensors)
        assert len(fusion.groups) == 1, f"{name} became {len(fusion.groups)} groups: {fusion.left}"
        kernel = emit_cpp(fusion.groups[0].plan, name=f"op_{name}", variables=variables(graph), about=[name])
        for path, text in kernel.files.items():
            (folder / path).write_text(text)
        made[name] = (graph, kernel)
    sys.path.insert(0, str(folder))
    extension = importlib.import_module("cuda_extension")
    return {name: _compare(listed[name], *made[name], extension) for name in listed}


def _compare(case: Case, graph: Graph, kernel: Kernel, extension: Any) -> dict[str, Any]:
    function, tensors = case
    inputs = [source for source in graph.sources.values() if source.kind == "input"]
    by_name = {source.name: tensor for source, tensor in zip(inputs, tensors, strict=True)}
    results = getattr(extension, kernel.name)(*(by_name[name] for name in kernel.arguments))
    found = dict(zip(kernel.results, [results] if isinstance(results, torch.Tensor) else results, strict=True))
    found |= {name: found[name].permute(order) for name, order in kernel.permutes.items()}
    eager = _flat(function(*tensors))
    exact = _flat(function(*(x.double() if x.is_floating_point() else x for x in tensors)))
    return {
        "errors": [
            _error(found[name], own, true) for name, own, true in zip(graph.output_names, eager, exact, strict=True)
        ],
        "alike": all(
            found[name].shape == own.shape and found[name].dtype == own.dtype and found[name].stride() == own.stride()
            for name, own in zip(graph.output_names, eager, strict=True)
        ),
    }


def _flat(result: Any) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else list(result)


def _error(ours: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> tuple[float, float, int]:
    """Our error, eager's, and positions where ours is non-finite differently although eager and fp64 agree."""
    ours, eager = ours.double(), eager.double()
    settled = torch.isnan(eager).eq(torch.isnan(exact)) & torch.isinf(eager).eq(torch.isinf(exact))
    odd = settled & (torch.isnan(ours).ne(torch.isnan(exact)) | torch.isinf(ours).ne(torch.isinf(exact)))
    finite = torch.isfinite(ours) & torch.isfinite(eager) & torch.isfinite(exact)
    true = exact[finite]
    scale = max((true - true.mean()).norm().item(), 1e-2 * true.norm().item(), 1e-30)
    return (ours[finite] - true).norm().item() / scale, (eager[finite] - true).norm().item() / scale, int(odd.sum())


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(main(Path(sys.argv[1]))))  # noqa: T201  (a program's output)
