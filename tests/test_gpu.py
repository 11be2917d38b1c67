import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from cuda_tui.errors import Cancelled, InfrastructureError
from cuda_tui.gpu import Machine, Nvml, lease


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
