import json
import os
import sys
from pathlib import Path

import pytest

from cuda_tui.cli import doctor
from cuda_tui.evaluation.build.toolchain import Finding
from cuda_tui.sandbox.access import environment

pytestmark = pytest.mark.slow  # runs compilers


def examine(tmp_path: Path, python: str = sys.executable, **env: str) -> dict[str, Finding]:
    base = environment(os.environ, python=python) | env
    return {item.name: item for item in doctor.examine(python, env=base, cache_folder=tmp_path / "cache")}


def test_every_part_is_named_with_what_was_found(tmp_path: Path) -> None:
    findings = examine(tmp_path)
    for name in ("Python", "torch", "Python.h", "C++ compiler", "ninja", "CUDA versions", "sandbox", "git"):
        assert findings[name].found
    assert all(item.remedy for item in findings.values() if item.state == "missing")


def test_json_is_a_list_and_never_holds_a_key(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "canary-123456789")
    code = doctor.run(True, None)
    printed = capsys.readouterr().out
    findings = json.loads(printed)
    assert code == (2 if any(item["state"] == "missing" for item in findings) else 0)
    keys = next(item for item in findings if item["name"] == "keys")
    assert "ANTHROPIC_API_KEY" in keys["found"]
    assert "canary" not in printed


def test_ninja_beside_the_interpreter_is_found_with_a_bare_path(tmp_path: Path) -> None:
    base = environment({"PATH": "/usr/bin:/bin"}, python=sys.executable)
    finding = doctor.check_ninja(base, sys.executable)
    assert finding.state == "ok"
    if Path(sys.executable).with_name("ninja").exists():
        assert finding.found == str(Path(sys.executable).with_name("ninja"))


def test_interpreter_that_does_not_run_is_one_finding_with_a_remedy(tmp_path: Path) -> None:
    finding = examine(tmp_path, python="/no/such/python")["Python"]
    assert finding.state == "missing"
    assert "--python" in finding.remedy


def test_interpreter_without_headers_names_the_package(tmp_path: Path) -> None:
    fake = tmp_path / "bin" / "python"
    fake.parent.mkdir()
    facts = {
        "version": "3.11.7",
        "executable": str(fake),
        "include": "/none",
        "python_header": False,
        "torch_version": "2.13.0+cpu",
    }
    fake.write_text(f"#!/bin/sh\necho '{json.dumps(facts)}'\n")
    fake.chmod(0o755)
    finding = examine(tmp_path, python=str(fake))["Python.h"]
    assert finding.state == "missing"
    assert "python3-dev" in finding.remedy


def test_toolkit_of_another_version_is_refused_before_any_compile(tmp_path: Path) -> None:
    home = tmp_path / "cuda"
    (home / "bin").mkdir(parents=True)
    (home / "include").mkdir()
    marker = tmp_path / "compiled"
    (home / "bin/nvcc").write_text(
        f'#!/bin/sh\n[ "$1" = --version ] || touch {marker}\necho "Cuda compilation tools, release 11.8, V11.8.89"\n'
    )
    (home / "bin/nvcc").chmod(0o755)
    findings = examine(tmp_path, CUDA_HOME=str(home))
    assert "11.8.89" in findings["CUDA versions"].found
    assert findings["CUDA toolkit"].state == "missing"  # it has no headers
    assert not marker.exists()
