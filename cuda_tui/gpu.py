"""Load of the machine: NVML readings, each guarded by itself, /proc for the processor, and the machine-wide lease.

No torch and no CUDA context: NVML only asks the driver.
"""

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from cuda_tui.errors import Cancelled, InfrastructureError
from cuda_tui.records import Record

RETRY_S = 60.0  # a reading that failed is asked again this much later, not at every sample
LEASE_POLL_S = 0.2
LEASE_FOLDERS = (Path("/run/lock"), Path("/tmp"))


class GpuReading(Record):
    """One GPU at one moment. What it does not say is None, with the reason in `missing`."""

    index: int
    name: str | None = None
    uuid: str | None = None
    capability: tuple[int, int] | None = None
    driver: str | None = None
    driver_cuda: str | None = None  # newest CUDA version that the driver supports, "13.0"
    utilisation: float | None = None  # 0 to 1
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    clock_mhz: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    throttle: str | None = None  # why the clock is held down; None where it is not, or is not known
    missing: dict[str, str] = msgspec.field(default_factory=dict)


class MachineReading(Record):
    """Processor and memory at one moment; `cpu_load` is cores busy since the reading before."""

    cpu_load: float | None = None
    memory_used_bytes: int | None = None
    gpu: GpuReading | None = None


# NVML's bits for what holds the clock down; idle and clocks that the user set are no throttling.
_THROTTLE = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
}


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _throttle(bits: int) -> str | None:
    return ", ".join(word for bit, word in _THROTTLE.items() if bits & bit) or None


@dataclass
class Nvml:
    """NVML, opened once. `reason` says why there is nothing to read; then `count` is 0."""

    library: Any = None
    reason: str = ""
    count: int = 0
    _asked_again_at: dict[tuple[int, str], tuple[float, str]] = field(default_factory=dict)

    @classmethod
    def open(cls) -> "Nvml":
        """Never raises: no library, no driver and no permission are a reason."""
        try:
            import pynvml  # type: ignore[import-untyped]  # nvidia-ml-py ships no types
        except ImportError:
            return cls(reason="the package nvidia-ml-py is not installed")
        try:
            pynvml.nvmlInit()
            return cls(library=pynvml, count=int(pynvml.nvmlDeviceGetCount()))
        except Exception as error:  # pynvml raises a class of its own for each code, and others where a call is missing
            return cls(reason=f"NVML: {error}")

    def read(self, index: int, *, now: Callable[[], float] = time.monotonic) -> GpuReading:
        """All that the GPU says. A query that fails is None and is left alone for a minute."""
        missing: dict[str, str] = {}
        if index >= self.count:
            return GpuReading(index=index, missing={"gpu": self.reason or f"there is no GPU {index}"})
        nvml = self.library

        def ask(name: str, query: Callable[[Any], Any]) -> Any:
            key = (index, name)
            again_at, reason = self._asked_again_at.get(key, (0.0, ""))
            if now() < again_at:
                missing[name] = reason
                return None
            try:
                return query(nvml.nvmlDeviceGetHandleByIndex(index))
            except Exception as error:  # any metric may be unsupported under MIG, vGPU or WSL, each in its own way
                missing[name] = str(error) or type(error).__name__
                self._asked_again_at[key] = (now() + RETRY_S, missing[name])
                return None

        memory = ask("memory", lambda gpu: nvml.nvmlDeviceGetMemoryInfo(gpu))
        capability = ask("capability", lambda gpu: tuple(nvml.nvmlDeviceGetCudaComputeCapability(gpu)))
        cuda = ask("driver_cuda", lambda _: int(nvml.nvmlSystemGetCudaDriverVersion()))
        return GpuReading(
            index=index,
            name=ask("name", lambda gpu: _text(nvml.nvmlDeviceGetName(gpu))),
            uuid=ask("uuid", lambda gpu: _text(nvml.nvmlDeviceGetUUID(gpu))),
            capability=(int(capability[0]), int(capability[1])) if capability else None,
            driver=ask("driver", lambda _: _text(nvml.nvmlSystemGetDriverVersion())),
            driver_cuda=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
            utilisation=ask("utilisation", lambda gpu: float(nvml.nvmlDeviceGetUtilizationRates(gpu).gpu) / 100),
            memory_used_bytes=int(memory.used) if memory else None,
            memory_total_bytes=int(memory.total) if memory else None,
            clock_mhz=ask("clock", lambda gpu: int(nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM))),
            power_w=ask("power", lambda gpu: float(nvml.nvmlDeviceGetPowerUsage(gpu)) / 1000),
            temperature_c=ask(
                "temperature", lambda gpu: int(nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU))
            ),
            throttle=ask("throttle", lambda gpu: _throttle(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu))),
            missing=missing,
        )


def processor_ticks(proc: Path = Path("/proc")) -> tuple[int, int] | None:
    """Clock ticks of all cores together since the machine started: (busy, all). None where the system has no count."""
    try:
        words = (proc / "stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]
        ticks = [int(word) for word in words]
    except (OSError, ValueError):
        return None
    idle = ticks[3] + (ticks[4] if len(ticks) > 4 else 0)
    return sum(ticks) - idle, sum(ticks)


class Machine:
    """Samples processor, memory and, where asked for, one GPU. Call `sample` from one thread, about once a second."""

    def __init__(self, *, gpu_index: int | None = None, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._gpu_index = gpu_index
        self._nvml = Nvml.open() if gpu_index is not None else None
        self._before = processor_ticks(proc)

    def sample(self) -> MachineReading:
        """The load since the sample before."""
        now = processor_ticks(self._proc)
        load = None
        if now and self._before and now[1] > self._before[1]:
            cores = os.cpu_count() or 1
            load = cores * (now[0] - self._before[0]) / (now[1] - self._before[1])
        self._before = now
        gpu = self._nvml.read(self._gpu_index) if self._nvml is not None and self._gpu_index is not None else None
        return MachineReading(cpu_load=load, memory_used_bytes=self._memory(), gpu=gpu)

    def _memory(self) -> int | None:
        try:
            lines = (self._proc / "meminfo").read_text(encoding="ascii").splitlines()
            values = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if len(line.split()) > 1}
            return values["MemTotal"] - values["MemAvailable"]
        except (OSError, ValueError, KeyError):
            return None


@contextlib.contextmanager
def lease(
    name: str,
    *,
    wait_s: float = 0.0,
    on_wait: Callable[[str], None] | None = None,
    cancel: threading.Event | None = None,
    folder: Path | None = None,
) -> Iterator[None]:
    """Hold a device ("gpu-<uuid>", "cpu") for the whole machine; it is freed when the holder dies.

    Waits up to `wait_s`, telling `on_wait` once who holds it. Raises InfrastructureError naming the holder's pid, and
    Cancelled where `cancel` is set while it waits.
    """
    descriptor = _open_lease(name, folder)
    try:
        deadline, told = time.monotonic() + wait_s, False
        while not _take(descriptor):
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            if time.monotonic() >= deadline:
                raise InfrastructureError(
                    f"{name} is in use by another measurement (pid {holder}).", hint="Wait for it, or end that process."
                )
            if cancel is not None and cancel.is_set():
                raise Cancelled("cancelled")
            if on_wait is not None and not told:
                on_wait(f"waiting for {name}, in use by pid {holder}")
                told = True
            time.sleep(LEASE_POLL_S)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode("ascii"), 0)
        yield
    finally:
        os.close(descriptor)


def _open_lease(name: str, folder: Path | None) -> int:
    folder = folder or next((item for item in LEASE_FOLDERS if os.access(item, os.W_OK)), Path("/tmp"))
    path = folder / f"cuda-tui-{''.join(letter if letter.isalnum() else '-' for letter in name)}.lock"
    # Opened without O_CREAT first: in a sticky folder the kernel refuses O_CREAT on another user's file.
    for flags in (os.O_RDWR, os.O_RDWR | os.O_CREAT):
        with contextlib.suppress(FileNotFoundError):
            try:
                descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            except PermissionError as error:
                raise InfrastructureError(f"The lease {path} cannot be opened: {error.strerror}") from None
            if flags & os.O_CREAT:
                with contextlib.suppress(PermissionError):
                    os.fchmod(descriptor, 0o666)
            return descriptor
    raise InfrastructureError(f"The lease {path} cannot be made.")


def _take(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
