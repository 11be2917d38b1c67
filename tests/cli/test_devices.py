"""The device of a task on machines of every kind, by a fake driver, a fake interpreter and a fake nvcc."""

import json
import re
from pathlib import Path

import pytest

from cuda_tui.cli.devices import Choice, Found, Host, default_device, look, on_device, require_toolkit, targets
from cuda_tui.cli.sampling import machine_sampler
from cuda_tui.errors import InfrastructureError, UsageError
from cuda_tui.nvml import Nvml
from cuda_tui.workspace.task import Task
from cuda_tui.workspace.workspace import Workspace
from tests.fake_nvml import FakeGpu, nvml_of

NO_NVML = Nvml(reason="NVML: library not found")


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


class Machine:
    """A folder with an interpreter and, unless it is taken away, a CUDA toolkit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nvcc = program(folder / "cuda/bin/nvcc", 'echo "release 13.0, V13.0.88"')
        (folder / "cuda/include").mkdir()
        (folder / "cuda/include/cuda_runtime.h").touch()
        self.env = {"PATH": "/usr/bin:/bin", "CUDA_HOME": str(folder / "cuda")}

    def host(self, *, torch_cuda: str | None = "13.0", sees: str = "[]", node: bool = False, **env: str) -> Host:
        """`sees` is what torch itself would say of the GPUs; `node` whether there is a device file."""
        python = self.folder / "python"
        facts = {
            "version": "3.12.3",
            "executable": str(python),
            "include": "/none",
            "python_header": True,
            "torch_version": "2.11.0+cu130" if torch_cuda else "2.11.0+cpu",
            "torch_cuda": torch_cuda,
        }
        asked = f"case \"$*\" in *is_available*) echo '{sees}';; *) echo '{json.dumps(facts)}';; esac"
        program(python, asked)
        (self.folder / "nvidiactl").touch()
        nodes = (str(self.folder / "nvidiactl"),) if node else ()
        return Host(python=str(python), env=self.env | env, nodes=nodes)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


# ---- the default


def test_gpu_that_can_be_worked_on_is_the_default(machine: Machine) -> None:
    assert default_device(machine.host(), nvml=nvml_of(FakeGpu())) == Choice(device="cuda")


def test_machine_without_a_gpu_works_on_the_cpu_and_starts_no_interpreter(machine: Machine) -> None:
    host = Host(python="/no/such/python", env=machine.env, nodes=())
    assert default_device(host, nvml=NO_NVML) == Choice(device="cpu")


@pytest.mark.parametrize(
    ("lacking", "reason"),
    [
        ("torch", "torch 2.11.0.cpu of .* is built without CUDA; the CPU is worked on"),
        ("driver", "its driver supports CUDA 12.2 at most, and torch is built with 13.0"),
        ("nvcc", "there is NVIDIA H200 here, and CUDA_HOME=.* lacks bin/nvcc"),
        ("visible", "CUDA_VISIBLE_DEVICES= hides every GPU of this machine; the CPU is worked on"),
    ],
)
def test_gpu_that_cannot_be_worked_on_is_named_with_the_reason(machine: Machine, lacking: str, reason: str) -> None:
    host = machine.host(torch_cuda=None) if lacking == "torch" else machine.host()
    if lacking == "visible":
        host = machine.host(CUDA_VISIBLE_DEVICES="")
    if lacking == "nvcc":
        machine.nvcc.unlink()
    choice = default_device(host, nvml=nvml_of(FakeGpu(), driver_cuda=12020 if lacking == "driver" else 13000))
    assert choice.device == "cpu"
    assert re.search(reason, choice.reason), choice.reason


def test_gpu_that_nvml_cannot_look_at_is_not_taken_unasked(machine: Machine) -> None:
    choice = default_device(machine.host(node=True), nvml=NO_NVML)
    assert choice.device == "cpu"
    assert "there may be a GPU here" in choice.reason
    assert "library not found" in choice.reason


# ---- a device that is named


def test_named_gpu_is_found_with_its_capability(machine: Machine) -> None:
    found = look("cuda", machine.host(), nvml=nvml_of(FakeGpu()))
    assert (found.runs, found.capability, found.notes) == (True, (9, 0), ())


def test_gpu_out_of_range_is_refused_with_those_that_are_there(machine: Machine) -> None:
    with pytest.raises(UsageError, match=r"there is no GPU 1; this machine has 1: 0 \(NVIDIA H200\)"):
        look("cuda:1", machine.host(), nvml=nvml_of(FakeGpu()))


def test_driver_too_old_for_torch_compiles_and_does_not_run(machine: Machine) -> None:
    found = look("cuda", machine.host(), nvml=nvml_of(FakeGpu(), driver_cuda=12080))
    assert not found.runs
    assert found.notes == (
        "its driver supports CUDA 12.8 at most, and torch is built with 13.0: CUDA is compiled here, and not run",
    )


def test_torch_without_cuda_compiles_and_does_not_run(machine: Machine) -> None:
    found = look("cuda", machine.host(torch_cuda=None), nvml=nvml_of(FakeGpu()))
    assert not found.runs
    assert "built without CUDA: CUDA is compiled here, and not run" in found.notes[0]


def test_slice_of_a_gpu_and_tenants_are_told_and_measured_all_the_same(machine: Machine) -> None:
    found = look("cuda", machine.host(), nvml=nvml_of(FakeGpu(slices=("MIG-1",), pids=(7, 8))))
    assert found.runs
    assert "a slice (MIG) of NVIDIA H200" in found.notes[0]
    assert found.notes[1].startswith("2 other processes use cuda already")


def test_without_nvml_torch_is_asked_and_conditions_are_unknown(machine: Machine) -> None:
    sees = '[{"name": "NVIDIA H200", "capability": [9, 0]}]'
    found = look("cuda", machine.host(sees=sees, node=True), nvml=NO_NVML)
    assert (found.runs, found.capability) == (True, (9, 0))
    assert "the GPU's state cannot be read (NVML: library not found): measured all the same" in found.notes[0]
    assert targets(None, found, {}) == ("sm_90a",)  # no later build could ask NVML
    with pytest.raises(UsageError, match=r"there is no GPU 1; this machine has 1: 0 \(NVIDIA H200\)"):
        look("cuda:1", machine.host(sees=sees, node=True), nvml=NO_NVML)


def test_gpu_that_neither_nvml_nor_torch_sees_is_compiled_for(machine: Machine) -> None:
    found = look("cuda", machine.host(node=True), nvml=NO_NVML)
    assert not found.runs
    assert found.notes == ("torch finds no GPU that works here: CUDA is compiled here, and not run",)
    assert look("cuda", machine.host(), nvml=NO_NVML) == Found(device="cuda", runs=False)


def test_gpu_without_nvcc_is_told_with_what_still_works(machine: Machine) -> None:
    machine.nvcc.unlink()
    found = look("cuda", machine.host(), nvml=nvml_of(FakeGpu()))
    with pytest.raises(InfrastructureError, match=r"CUDA cannot be built here: .* lacks bin/nvcc") as caught:
        require_toolkit(found, machine.host())
    assert "--device cpu works without" in caught.value.hint
    require_toolkit(look("cpu", machine.host()), machine.host())


# ---- targets


def test_targets_are_left_to_the_device_unless_the_person_names_some() -> None:
    here = Found(device="cuda", runs=True, place=None, capability=None)
    with pytest.raises(UsageError, match="no CUDA target is named"):
        targets(None, here, {})
    assert targets("80,90a", here, {}) == ("sm_80", "sm_90a")
    assert targets(None, here, {"TORCH_CUDA_ARCH_LIST": "9.0"}) == ("sm_90",)
    assert targets("90a", Found(device="cpu", runs=True), {}) == ()


def test_present_device_tells_the_target_at_each_build(machine: Machine) -> None:
    assert targets(None, look("cuda", machine.host(), nvml=nvml_of(FakeGpu())), {}) == ()


# ---- workspaces and samples


def test_workspace_is_taken_to_another_gpu_and_not_to_another_kind_of_device(tmp_path: Path) -> None:
    task = Task(name="x", device="cuda")
    workspace = Workspace.create(tmp_path / "w", task=task, model_source=b"class Model: pass\n")
    assert on_device(workspace, None) is workspace
    assert on_device(workspace, "cuda:1").task.device == "cuda:1"
    assert Workspace.open(workspace.root).task.device == "cuda"
    with pytest.raises(UsageError, match="is a workspace for cuda, not for cpu"):
        on_device(workspace, "cpu")


def test_reason_of_a_missing_reading_is_sampled_once() -> None:
    sample = machine_sampler("cuda", {}, nvml=nvml_of(FakeGpu(silent=frozenset({"power"}))))
    first, second = sample(), sample()
    assert first.gpu_missing == {"power": "Not Supported"}
    assert second.gpu_missing == {}
    assert (second.gpu_power_w, second.gpu_clock_mhz, second.gpu_memory_total_bytes) == (None, 1980, 140 << 30)


def test_sampler_of_a_gpu_that_is_not_here_says_so() -> None:
    assert machine_sampler("cuda", {}, nvml=NO_NVML)().gpu_missing == {"gpu": "NVML: library not found"}
    assert machine_sampler("cuda:3", {}, nvml=nvml_of(FakeGpu()))().gpu_missing == {"gpu": "there is no cuda:3 here"}
    assert machine_sampler("cpu", {})().gpu_missing == {}
