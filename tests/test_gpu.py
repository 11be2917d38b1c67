import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from cuda_tui.errors import Cancelled, InfrastructureError, UsageError
from cuda_tui.gpu import GpuPlace, Machine, Sampler, gpu_index, lease
from cuda_tui.nvml import Nvml
from tests.fake_nvml import FakeGpu, nvml_of


class PartialNvml(SimpleNamespace):
    """A driver as under MIG: it has a name, and answers nothing else."""

    calls = 0

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, _: int) -> bytes:
        return b"Fake MIG 1g.18gb"

    def __getattr__(self, name: str) -> object:
        def refuse(*_: object) -> None:
            self.__dict__["calls"] = self.calls + 1
            raise RuntimeError("Not Supported")

        return refuse


def test_each_reading_that_a_driver_lacks_is_none_with_its_reason() -> None:
    reading = Nvml(library=PartialNvml(), count=1).read(0)
    assert reading.name == "Fake MIG 1g.18gb"
    assert reading.power_w is None
    assert reading.utilisation is None
    assert reading.missing["power"] == "Not Supported"


def test_failing_readings_are_left_alone_for_a_minute() -> None:
    library = PartialNvml()
    nvml = Nvml(library=library, count=1)
    nvml.read(0, now=lambda: 100.0)
    first = library.calls
    nvml.read(0, now=lambda: 101.0)
    assert library.calls == first
    nvml.read(0, now=lambda: 200.0)
    assert library.calls == 2 * first


def test_machine_without_a_gpu_says_so() -> None:
    reading = Nvml(reason="NVML: library not found").read(0)
    assert reading.missing == {"gpu": "NVML: library not found"}


def test_load_is_the_cores_busy_between_two_samples(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 400 kB\n")
    (tmp_path / "stat").write_text("cpu 100 0 0 900 0 0 0 0 0 0\n")
    machine = Machine(proc=tmp_path)
    (tmp_path / "stat").write_text("cpu 150 0 0 950 0 0 0 0 0 0\n")
    reading = machine.sample()
    assert reading.cpu_load == pytest.approx(0.5 * (os.cpu_count() or 1))
    assert reading.memory_used_bytes == 600 * 1024


def test_missing_proc_is_none_and_not_zero(tmp_path: Path) -> None:
    reading = Machine(proc=tmp_path).sample()
    assert reading.cpu_load is None
    assert reading.memory_used_bytes is None


def test_second_lease_names_the_holder(tmp_path: Path) -> None:
    refused = pytest.raises(InfrastructureError, match=str(os.getpid()))
    with lease("gpu-1", folder=tmp_path), refused, lease("gpu-1", folder=tmp_path):
        pytest.fail("held twice")
    with lease("gpu-1", folder=tmp_path):
        pass


def test_waiting_for_a_lease_says_for_whom_and_ends_when_it_is_cancelled(tmp_path: Path) -> None:
    cancel, told = threading.Event(), list[str]()

    def hear(text: str) -> None:
        told.append(text)
        cancel.set()

    waited = lease("gpu-1", wait_s=60, on_wait=hear, cancel=cancel, folder=tmp_path)
    with lease("gpu-1", folder=tmp_path), pytest.raises(Cancelled), waited:
        pytest.fail("held twice")
    assert told == [f"waiting for gpu-1, in use by pid {os.getpid()}"]


@pytest.mark.slow
def test_lease_is_free_when_its_holder_was_killed(tmp_path: Path) -> None:
    script = (
        "import sys, signal, pathlib\nfrom cuda_tui.gpu import lease\n"
        "with lease('gpu-1', folder=pathlib.Path(sys.argv[1])):\n  print('held', flush=True)\n  signal.pause()\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(InfrastructureError, match=str(holder.pid)), lease("gpu-1", folder=tmp_path):
        pass
    holder.kill()
    holder.wait()
    holder.stdout.close()
    with lease("gpu-1", folder=tmp_path):
        pass


# ---- which GPU a name means

TWO = (FakeGpu(uuid="GPU-aaaa1111"), FakeGpu(name="NVIDIA A100", uuid="GPU-bbbb2222", capability=(8, 0)))


@pytest.mark.parametrize(
    ("device", "visible", "uuid"),
    [
        ("cuda", None, "GPU-aaaa1111"),
        ("cuda:1", None, "GPU-bbbb2222"),
        ("cuda", "1", "GPU-bbbb2222"),
        ("cuda:1", "1,0", "GPU-aaaa1111"),
        ("cuda", "GPU-bbbb", "GPU-bbbb2222"),
        ("cuda", "0,-1,1", "GPU-aaaa1111"),
    ],
)
def test_device_is_the_gpu_that_cuda_would_take(device: str, visible: str | None, uuid: str) -> None:
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    place = gpu_index(device, environ, nvml=nvml_of(*TWO))
    assert place is not None
    assert (place.uuid, place.device, place.lease_name) == (uuid, device, f"gpu-{uuid}")


def test_gpu_out_of_range_is_told_with_those_that_are_there() -> None:
    told = r"there is no GPU 1; this machine has 1: 0 \(NVIDIA H200\)"
    with pytest.raises(UsageError, match=told):
        gpu_index("cuda:1", {}, nvml=nvml_of(FakeGpu()))
    with pytest.raises(UsageError, match=r"CUDA_VISIBLE_DEVICES=0,-1,1 leaves 1: 0 \(NVIDIA H200\)"):
        gpu_index("cuda:1", {"CUDA_VISIBLE_DEVICES": "0,-1,1"}, nvml=nvml_of(*TWO))
    with pytest.raises(UsageError, match="there is no GPU 0; CUDA_VISIBLE_DEVICES= leaves none"):
        gpu_index("cuda", {"CUDA_VISIBLE_DEVICES": ""}, nvml=nvml_of(*TWO))


@pytest.mark.parametrize("text", ["cuda:", "cuda:x", "gpu", "cuda:-1", "CUDA"])
def test_what_is_no_device_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no device"):
        gpu_index(text, {}, nvml=nvml_of(FakeGpu()))


def test_without_nvml_the_place_of_a_gpu_is_unknown() -> None:
    assert gpu_index("cuda:3", {}, nvml=Nvml(reason="NVML: library not found")) is None


def test_slice_of_a_gpu_is_found_by_default_and_by_its_uuid() -> None:
    nvml = nvml_of(FakeGpu(slices=("MIG-1", "MIG-2")))
    first, named = gpu_index("cuda", {}, nvml=nvml), gpu_index("cuda", {"CUDA_VISIBLE_DEVICES": "MIG-2"}, nvml=nvml)
    assert first is not None
    assert named is not None
    assert (first.mig, named.mig, named.lease_name) == ("MIG-1", "MIG-2", "gpu-MIG-2")
    reading = nvml.read(named.index, mig=named.mig)
    assert reading.memory_total_bytes == 18 << 30
    assert reading.clock_mhz == 1980


# ---- sampling

PLACE = GpuPlace(device="cuda", index=0, uuid="GPU-aaaa1111")


def test_samples_give_extremes_every_throttle_reason_and_the_most_tenants() -> None:
    gpu = FakeGpu(clocks=[1980, 1230, 1500], pids=(10, 11, 99), throttle_bits=0x1)
    sampler = Sampler(PLACE, own=lambda: (10, 11, 12), nvml=nvml_of(gpu))
    sampler.sample()
    gpu.throttle_bits, gpu.power_w, gpu.pids = 0x4 | 0x20, 690.0, (10, 11)
    sampler.sample()
    sampler.sample()
    found = sampler.found()
    assert found.clock_mhz == (1230, 1980)
    assert (found.power_w, found.samples, found.tenants) == (690.0, 3, 1)
    assert found.throttle == ("power cap", "thermal (software)")
    assert found.throttle_bits == 0x25


def test_processes_that_the_driver_numbers_otherwise_are_counted_against_our_contexts() -> None:
    gpu = FakeGpu(pids=(70001, 70002, 70003))
    sampler = Sampler(PLACE, own=lambda: (10, 11), contexts=2, nvml=nvml_of(gpu))
    sampler.sample()
    assert sampler.found().tenants == 1


def test_older_library_tells_throttling_under_its_older_name() -> None:
    assert nvml_of(FakeGpu(throttle_bits=0x40), has_event_reasons=False).read(0).throttle == "thermal (hardware)"


def test_sampler_on_a_driver_that_says_nothing_gives_reasons_and_no_numbers() -> None:
    silent = frozenset({"clock", "power", "temperature", "throttle", "processes", "memory", "utilisation"})
    with Sampler(PLACE, nvml=nvml_of(FakeGpu(silent=silent))) as sampler:
        sampler.sample()
    found = sampler.found()
    assert (found.clock_mhz, found.power_w, found.temperature_c, found.tenants, found.throttle) == (
        None, None, None, None, (),
    )  # fmt: skip
    assert found.missing["clock"] == "Not Supported"


def test_sampler_without_nvml_says_why_it_knows_nothing() -> None:
    with Sampler(None, nvml=Nvml(reason="NVML: library not found")) as sampler:
        pass
    assert sampler.found().missing == {"gpu": "NVML: library not found"}


def test_sampler_samples_by_itself_until_its_block_ends() -> None:
    again = threading.Event()
    seen: list[int] = []

    def own() -> tuple[int, ...]:
        seen.append(1)
        if len(seen) == 3:
            again.set()
        return ()

    with Sampler(PLACE, own=own, nvml=nvml_of(FakeGpu()), interval_s=0.001) as sampler:
        assert again.wait(10)
    assert sampler.found().samples >= 3
    assert not any(thread.name == "gpu-sampler" for thread in threading.enumerate())
