"""What doctor says of GPUs that this machine does not have."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cuda_tui.cli.devices import Host
from cuda_tui.cli.doctor_cuda import check_device, check_gpus
from cuda_tui.evaluation.build.toolchain import Finding
from cuda_tui.nvml import Nvml
from tests.cli.test_devices import Machine, program
from tests.fake_nvml import FakeGpu, nvml_of

FAKE_PYNVML = """
class NVMLError(Exception): pass
class NVMLError_NotSupported(NVMLError): pass
def nvmlInit(): pass
def nvmlDeviceGetCount(): return 1
def nvmlDeviceGetHandleByIndex(i): return i
def nvmlDeviceGetName(h): return b"Fake MIG 1g.18gb"
def __getattr__(n):
    def f(*a, **k): raise NVMLError_NotSupported(n)
    return f
"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def findings(nvml: Nvml, env: dict[str, str]) -> dict[str, Finding]:
    return {item.name: item for item in check_gpus(env, nvml)}


def test_gpu_is_shown_with_memory_driver_readings_and_target(machine: Machine) -> None:
    found = findings(nvml_of(FakeGpu()), machine.env)
    assert found["GPU 0"].found == "NVIDIA H200, compute 9.0, 139 of 140 GiB free, driver 580.1"
    assert found["NVML 0"].state == "ok"
    assert (found["target 0"].found, found["target 0"].state) == ("sm_90a", "ok")
    assert set(found) == {"GPU 0", "NVML 0", "target 0"}


def test_slice_tenants_and_silence_each_have_a_line_that_says_what_still_works(machine: Machine) -> None:
    gpu = FakeGpu(slices=("MIG-1",), pids=(7,), silent=frozenset({"utilisation"}))
    found = findings(nvml_of(gpu), machine.env)
    assert found["MIG 0"].found == "MIG-1 of NVIDIA H200"
    assert found["NVML 0"].found == "does not say utilisation: Not Supported"
    assert found["others on GPU 0"].found == "1 process uses it"
    assert all("measuring works" in found[name].remedy for name in ("MIG 0", "NVML 0", "others on GPU 0"))


def test_gpu_newer_than_nvcc_is_told_with_the_newest_target_that_it_knows(machine: Machine) -> None:
    text = '[ "$1" = --list-gpu-code ] && echo sm_90 && exit\necho "release 13.0, V13.0.88"'
    program(machine.nvcc, text)
    found = findings(nvml_of(FakeGpu(capability=(13, 0))), machine.env)["target 0"]
    assert found.state == "missing"
    assert "knows no sm_130a; the newest target that it knows is sm_90." in found.found
    assert "PTX" in found.remedy


def test_hidden_gpus_and_an_ambiguous_order_are_told(machine: Machine) -> None:
    two = nvml_of(FakeGpu(), FakeGpu(name="NVIDIA A100", uuid="GPU-b"))
    assert "hides every GPU" in findings(two, machine.env | {"CUDA_VISIBLE_DEVICES": ""})["GPU"].found
    assert "GPU order" in findings(two, machine.env)
    assert "GPU order" not in findings(two, machine.env | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    assert "GPU 1" not in findings(two, machine.env | {"CUDA_VISIBLE_DEVICES": "1"})


def test_device_line_says_the_default_and_why_it_is_not_the_gpu(machine: Machine) -> None:
    assert check_device(None, machine.host(), nvml_of(FakeGpu())).found == "cuda by default"
    old = check_device(None, machine.host(), nvml_of(FakeGpu(), driver_cuda=12020))
    assert old.state == "warning"
    assert old.found.startswith("cpu by default: there is NVIDIA H200 here, and its driver supports CUDA 12.2 at most")
    assert old.remedy == "Install a driver for CUDA 13.0, or an older torch."


def test_device_line_refuses_a_gpu_that_is_not_there(machine: Machine) -> None:
    found = check_device("cuda:1", machine.host(), nvml_of(FakeGpu()))
    assert (found.state, found.found) == ("missing", "there is no GPU 1; this machine has 1: 0 (NVIDIA H200)")
    without = check_device("cuda", Host(python=machine.host().python, env=machine.env, nodes=()), Nvml(reason="none"))
    assert (without.state, without.remedy) == ("warning", "--device cpu runs here")


@pytest.mark.slow
def test_driver_that_answers_almost_nothing_takes_nothing_down(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text(FAKE_PYNVML)
    environ = {**os.environ, "PYTHONPATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "cuda_tui.cli.main", "doctor", "--json"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)
    found = {item["name"]: item for item in json.loads(done.stdout)}
    assert found["GPU 0"]["found"].startswith("Fake MIG 1g.18gb, compute unknown, memory unknown")
    assert "power: nvmlDeviceGetPowerUsage" in found["NVML 0"]["found"]
    assert done.stderr == ""
