"""The skills' CUDA, built by the workspace's own cuda_extension.py and run on a GPU against float64."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.skills.checks import CHECKS
from tests.skills.extract import write_workspace

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


def test_kernels_of_the_skills_touch_no_memory_but_their_own(workspace: Path) -> None:
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        pytest.skip("no compute-sanitizer")
    command = [sanitizer, "--tool", "memcheck", "--error-exitcode", "99", "--launch-timeout", "120"]
    done = run(
        [*command, sys.executable, "checks.py", "softmax_of_odd_values"], workspace, PYTORCH_NO_CUDA_MEMORY_CACHING="1"
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "ERROR SUMMARY: 0 errors" in done.stdout
