import os
import shutil
from pathlib import Path

import pytest

from cuda_tui.evaluation.build.toolchain import (
    Finding,
    Toolkit,
    check_cuda_versions,
    check_cxx,
    check_pair,
    find_cxx,
    find_toolkit,
    unknown_targets,
)

NVCC = shutil.which("nvcc")
needs_nvcc = pytest.mark.skipif(NVCC is None, reason="no nvcc here")
ENV = {"PATH": os.environ["PATH"]}


def executable(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="ascii")
    path.chmod(0o755)
    return str(path)


def fake_nvcc(path: Path, version: str) -> str:
    return executable(path, f'#!/bin/sh\necho "Cuda compilation tools, release {version}, V{version}.89"\n')


def test_named_compiler_wins_over_the_path(tmp_path: Path) -> None:
    mine = executable(tmp_path / "my-g++", "#!/bin/sh\nexit 0\n")
    assert find_cxx(ENV | {"CXX": mine}) == mine


def test_named_compiler_that_is_missing_is_said() -> None:
    finding = check_cxx(ENV | {"CXX": "no-such-compiler"})
    assert finding.state == "missing"
    assert "no-such-compiler" in finding.found


@pytest.mark.slow
def test_compiler_that_fails_is_not_called_ok(tmp_path: Path) -> None:
    broken = executable(tmp_path / "g++", "#!/bin/sh\necho 'error: broken' >&2\nexit 1\n")
    finding = check_cxx({"PATH": f"{tmp_path}:{ENV['PATH']}"})
    assert finding.state == "missing"
    assert broken in finding.found
    assert "error: broken" in finding.found


def test_toolkit_of_another_major_version_is_refused_with_both_ways_out(tmp_path: Path) -> None:
    fake_nvcc(tmp_path / "bin/nvcc", "11.8")
    (tmp_path / "include").mkdir()
    (tmp_path / "include/cuda_runtime.h").touch()
    toolkit = find_toolkit(ENV | {"CUDA_HOME": str(tmp_path)})
    assert isinstance(toolkit, Toolkit)
    finding = check_cuda_versions(toolkit, torch_cuda="13.0", driver_cuda="13.1")
    assert finding.state == "missing"
    for number in ("11.8", "13.0", "13.1"):
        assert number in finding.found
    assert "CUDA toolkit 13.0" in finding.remedy
    assert "torch built with 11.x" in finding.remedy


def test_other_minor_version_is_only_a_warning() -> None:
    toolkit = Toolkit(nvcc="nvcc", root="/", version="13.1.2", why="")
    assert check_cuda_versions(toolkit, torch_cuda="13.0", driver_cuda="13.0").state == "warning"
    assert check_cuda_versions(toolkit, torch_cuda="13.1", driver_cuda="13.1").state == "ok"


def test_torch_without_cuda_is_said_plainly() -> None:
    toolkit = Toolkit(nvcc="nvcc", root="/", version="13.0.88", why="")
    finding = check_cuda_versions(toolkit, torch_cuda=None, driver_cuda=None)
    assert "can compile CUDA, cannot run it" in finding.remedy


def test_cuda_home_that_is_no_toolkit_is_named(tmp_path: Path) -> None:
    finding = find_toolkit(ENV | {"CUDA_HOME": str(tmp_path)})
    assert isinstance(finding, Finding)
    assert str(tmp_path) in finding.found


@needs_nvcc
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wrapper", "link"])
def test_root_behind_a_wrapper_or_link_has_the_headers(tmp_path: Path, kind: str) -> None:
    assert NVCC is not None
    place = tmp_path / "bin" / "nvcc"
    if kind == "wrapper":
        executable(place, f'#!/bin/sh\nexec {os.path.realpath(NVCC)} "$@"\n')
    else:
        place.parent.mkdir()
        place.symlink_to(os.path.realpath(NVCC))
    toolkit = find_toolkit({"PATH": f"{place.parent}:{ENV['PATH']}"})
    assert isinstance(toolkit, Toolkit)
    assert Path(toolkit.root, "include/cuda_runtime.h").exists()
    assert not toolkit.root.startswith(str(tmp_path))


@needs_nvcc
@pytest.mark.slow
def test_host_compiler_too_new_for_nvcc_is_named_with_one_that_works(tmp_path: Path) -> None:
    wrapper = executable(tmp_path / "g99", '#!/bin/sh\nexec g++ -U__GNUC__ -D__GNUC__=99 "$@"\n')
    toolkit = find_toolkit(ENV)
    assert isinstance(toolkit, Toolkit)
    env = ENV | {"NVCC_PREPEND_FLAGS": f"-ccbin {wrapper}"}
    finding = check_pair(toolkit, env=env, cache_folder=tmp_path / "cache")
    assert finding.state == "missing"
    assert "accepts g++ up to" in finding.found
    assert f"found 99 at {wrapper}" in finding.found
    assert "works: set CXX=" in finding.remedy
    assert check_pair(toolkit, env=env, cache_folder=tmp_path / "cache") == finding
    assert check_pair(toolkit, env=ENV, cache_folder=tmp_path / "cache").state == "ok"


def nvcc_that_knows(path: Path, version: str, *chips: int) -> str:
    codes = "".join(f"sm_{chip}\\n" for chip in chips)
    text = f'#!/bin/sh\n[ "$1" = --list-gpu-code ] && printf "{codes}" && exit\necho "release 1.0, V{version}.89"\n'
    return executable(path, text)


def test_target_newer_than_nvcc_is_told_with_the_newest_that_it_knows(tmp_path: Path) -> None:
    nvcc = nvcc_that_knows(tmp_path / "nvcc", "11.8", 80, 86, 90)
    assert unknown_targets(nvcc, ["sm_80", "sm_90", "sm_86+PTX"]) == ""
    told = unknown_targets(nvcc, ["sm_80", "sm_100a"])
    assert told == f"nvcc 11.8.89 ({nvcc}) knows no sm_100a; the newest target that it knows is sm_90."
    assert "knows no sm_90a" in unknown_targets(nvcc, ["sm_90a"])  # the chip, without its own instructions


def test_nvcc_that_lists_no_targets_is_not_second_guessed(tmp_path: Path) -> None:
    assert unknown_targets(nvcc_that_knows(tmp_path / "nvcc", "11.2"), ["sm_90a"]) == ""


@needs_nvcc
def test_real_nvcc_knows_its_own_targets() -> None:
    assert NVCC is not None
    assert unknown_targets(NVCC, ["sm_80", "sm_90a", "sm_90+PTX"]) == ""


def test_driver_older_than_nvcc_runs_machine_code_and_no_ptx() -> None:
    toolkit = Toolkit(nvcc="nvcc", root="/", version="12.8.1", why="")
    finding = check_cuda_versions(toolkit, torch_cuda="12.8", driver_cuda="12.2")
    assert finding.state == "warning"
    assert "PTX" in finding.remedy
