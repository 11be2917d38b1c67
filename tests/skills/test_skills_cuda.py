"""The skills' CUDA, built by the workspace's own cuda_extension.py and run on a GPU against float64."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.skills.checks import CHECKS
from tests.skills.extract import ROOT, blocks, write_workspace

GPU = torch.cuda.is_available()
pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.skipif(not GPU, reason="no CUDA device")]
CHECKS_SOURCE = Path(__file__).parent / "checks.py"


def run(command: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=280, check=False
    )


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("skills") / "workspace"
    write_workspace(folder, variants=True)
    shutil.copy(CHECKS_SOURCE, folder / "checks.py")
    awkward = blocks(ROOT / "skills/debugging-kernels/SKILL.md", "python")["awkward.py"]
    (folder / "awkward.py").write_text(awkward)
    done = run([sys.executable, "cuda_extension.py", "build"], folder)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return folder


@pytest.mark.parametrize("name", CHECKS)
def test_kernels_of_the_skills_agree_with_float64(workspace: Path, name: str) -> None:
    done = run([sys.executable, "checks.py", name], workspace, CUDA_LAUNCH_BLOCKING="1")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["comparisons"] > 0
    assert result["problems"] == []


def test_script_of_awkward_inputs_finds_nothing_wrong_with_softmax(workspace: Path) -> None:
    done = run([sys.executable, "awkward.py"], workspace)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "WRONG" not in done.stdout
    assert done.stdout.count("ok") >= 7


def test_script_of_awkward_inputs_names_the_first_wrong_element(workspace: Path) -> None:
    planted = """
import torch, awkward
def wrong(x):
    y = torch.softmax(x, -1)
    y[3, 5] += 1.0
    return y
assert not awkward.compare(wrong, lambda x: torch.softmax(x, -1), torch.randn(7, 64, device="cuda"))
"""
    done = run([sys.executable, "-c", planted], workspace)
    assert done.returncode in {0, 1}, done.stderr[-2000:]
    assert "first wrong: [3, 5]" in done.stdout, done.stdout + done.stderr[-2000:]


def test_host_and_device_time_of_a_call_are_told_apart(workspace: Path) -> None:
    (text,) = blocks(ROOT / "skills/launch-overhead-and-graphs/SKILL.md", "python").values()
    names: dict[str, Any] = {}
    exec(compile(text, "launch-overhead-and-graphs", "exec"), names)
    large, small = torch.ones(1 << 28, device="cuda"), torch.ones(64, device="cuda")
    host, device = names["host_and_device_us"](lambda: large.mul_(1.0), calls=20)
    assert device > 3 * host
    host, device = names["host_and_device_us"](lambda: small.mul_(1.0))
    assert host > device


def test_sanitizer_finds_nothing_wrong_with_softmax(workspace: Path) -> None:
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        pytest.skip("no compute-sanitizer")
    command = [sanitizer, "--tool", "memcheck", "--error-exitcode", "99", sys.executable, "awkward.py"]
    done = run(command, workspace, PYTORCH_NO_CUDA_MEMORY_CACHING="1")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "ERROR SUMMARY: 0 errors" in done.stdout
