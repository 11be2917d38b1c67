"""`scripts/gpu_check.sh` in a folder of its own, with parts that a test describes; and its plugin."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.slow


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    for name in ("gpu_check.sh", "skip_missing.py"):
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts")
    for name in ("nvidia-smi", "nvcc"):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {name} speaking\n")
        (tmp_path / name).chmod(0o755)
    return tmp_path


def check(tree: Path, *parts: str, **env: str) -> "subprocess.CompletedProcess[str]":
    path = f"{tree}{os.pathsep}{os.environ['PATH']}"
    environ = {**os.environ, "OUT": str(tree / "out"), "PATH": path, **env}
    command = [str(tree / "scripts" / "gpu_check.sh"), sys.executable, *parts]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)


def rows(done: "subprocess.CompletedProcess[str]") -> dict[str, str]:
    lines = done.stdout.splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("part "))
    return {line.split()[0]: " ".join(line.split()[1:]) for line in lines[start + 1 : -1]}


def test_each_part_has_its_row_and_failures_are_counted(tree: Path) -> None:
    (tree / "scripts" / "gpu_faults.py").write_text("print('twelve planted, twelve found')\n")
    (tree / "scripts" / "gpu_agreement.py").write_text("import sys\nprint('1 | 2')\nsys.exit(3)\n")
    done = check(tree, "faults", "agreement", "identical")
    table = rows(done)
    assert done.returncode == 1
    assert table["faults"].startswith("ok ")
    assert table["faults"].endswith("twelve planted, twelve found")
    assert table["agreement"].startswith("FAILED (3)")
    assert table["agreement"].endswith("1 | 2")
    assert table["identical"].startswith("not here")
    assert (tree / "out" / "faults.log").read_text() == "twelve planted, twelve found\n"


def test_part_for_which_no_time_is_left_is_a_failure_and_is_named(tree: Path) -> None:
    (tree / "scripts" / "gpu_faults.py").write_text("print('ran')\n")
    done = check(tree, "faults", GPU_CHECK_SECONDS="0")
    assert done.returncode == 1
    assert rows(done)["faults"].startswith("NOT RUN")


def test_misspelt_part_is_refused_before_anything_runs(tree: Path) -> None:
    done = check(tree, "test")
    assert (done.returncode, done.stdout) == (1, "")
    assert "there is no part test; known are: tests faults" in done.stderr


def test_tests_that_lack_a_package_are_left_out_by_name_and_broken_ones_fail(tree: Path) -> None:
    tests = tree / "tests"
    for name in ("far", "near"):
        (tests / name).mkdir(parents=True)
    head = "import pytest\n\n@pytest.mark.gpu\ndef test_it(): pass\n"
    (tree / "pyproject.toml").write_text('[tool.pytest.ini_options]\nmarkers = ["gpu: x"]\n')
    (tests / "far" / "conftest.py").write_text("import no_such_package_a\n")
    (tests / "far" / "test_far.py").write_text(head)
    (tests / "near" / "test_lacking.py").write_text("from no_such_package_b.part import thing\n" + head)
    (tests / "near" / "test_there.py").write_text(head)
    done = check(tree, "tests")
    assert rows(done)["tests"].startswith("ok ")
    assert "1 passed, 1 skipped" in done.stdout
    assert "left out: far (no package no_such_package_a here)" in done.stdout
    assert "test_lacking.py (no package no_such_package_b here)" in done.stdout
    (tests / "near" / "test_broken.py").write_text("import cuda_tui.no_such_module\n" + head)
    assert rows(check(tree, "tests"))["tests"].startswith("FAILED")
