"""What NVML says of a real GPU beside what torch says of it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cuda_tui.cli.devices import Host, default_device, look
from cuda_tui.cli.doctor_cuda import check_gpus
from cuda_tui.evaluation.build.target import own_target, runs_on
from cuda_tui.evaluation.memory import CONTEXT_BYTES
from cuda_tui.gpu import Sampler, gpu_index
from cuda_tui.nvml import Nvml

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

HOLDER = """
import sys, torch
x = torch.randn(1024, device="cuda"); y = (x * 2).sum().item()
properties = torch.cuda.get_device_properties(0)
print(properties.uuid, *torch.cuda.get_device_capability(), flush=True)
sys.stdin.read()
"""


@contextmanager
def context_held() -> "Iterator[tuple[int, list[str]]]":
    """A process with a CUDA context: its id and the words that it printed."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER], stdin=-1, stdout=-1, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.pid, process.stdout.readline().split()
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def test_place_and_target_are_those_of_the_gpu_that_torch_uses() -> None:
    nvml = Nvml.open()
    place = gpu_index("cuda", os.environ, nvml=nvml)
    assert place is not None
    with context_held() as (_, (uuid, major, minor)):
        assert place.uuid == f"GPU-{uuid}"
    capability = nvml.read(place.index).capability
    assert capability == (int(major), int(minor))
    assert runs_on(own_target(capability), capability) == ""


def test_readings_are_all_there_and_a_process_of_another_is_a_tenant() -> None:
    place = gpu_index("cuda", os.environ)
    with context_held() as (pid, _):
        quiet, watched = Sampler(place, own=lambda: (pid,), contexts=1), Sampler(place)
        quiet.sample()
        watched.sample()
    found, all_of_them = quiet.found(), watched.found()
    assert found.missing == {}
    assert found.clock_mhz is not None
    assert found.power_w is not None
    assert found.temperature_c is not None
    assert all_of_them.tenants is not None
    assert found.tenants == all_of_them.tenants - 1


def test_context_takes_about_as_much_memory_as_the_estimate_says() -> None:
    nvml, place = Nvml.open(), gpu_index("cuda", os.environ)
    assert place is not None
    before = nvml.read(place.index).memory_used_bytes
    with context_held():
        during = nvml.read(place.index).memory_used_bytes
    assert before is not None
    assert during is not None
    assert 0.3 * CONTEXT_BYTES < during - before < 1.5 * CONTEXT_BYTES


def test_gpu_is_the_default_here_and_doctor_finds_nothing_amiss() -> None:
    host = Host(python=sys.executable, env=dict(os.environ))
    assert default_device(host).device == "cuda"
    found = look("cuda", host)
    assert found.runs
    assert found.capability is not None
    assert [item for item in check_gpus(host.env, Nvml.open()) if item.state == "missing"] == []
