"""The machine that a measurement runs on: which core, whose processor, and what else was running."""

import contextlib
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from cuda_tui import process
from cuda_tui.evaluation.build.target import runs_on
from cuda_tui.evaluation.report import GpuConditions
from cuda_tui.gpu import GpuPlace, Sampler, device_number, gpu_index, processor_ticks
from cuda_tui.nvml import Nvml


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """The core that timed processes are pinned to, None where the system cannot pin; and the processor's name."""

    cpu: int | None
    device: str


def conditions() -> Conditions:
    """The core to pin to (the last allowed one: the first serves interrupts) and the processor's name."""
    try:
        cores = sorted(os.sched_getaffinity(0))
    except AttributeError:
        return Conditions(cpu=None, device=platform.processor() or platform.machine())
    return Conditions(cpu=cores[-1], device=processor_name())


def processor_name() -> str:
    """The processor's model name, as the kernel has it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    return platform.machine()


class ForeignLoad:
    """Cores kept busy by others since it was made: all busy time of the machine less that of our own processes."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._busy_s = _busy_s()

    def mean(self) -> float | None:
        """In cores; None where the system does not say. One core is ours: exactly one worker runs at any time."""
        seconds, busy_s = time.monotonic() - self._began, _busy_s()
        if seconds <= 0 or busy_s is None or self._busy_s is None:
            return None
        return max(0.0, (busy_s - self._busy_s) / seconds - 1.0)


def _busy_s() -> float | None:
    ticks = processor_ticks()
    return ticks[0] / os.sysconf("SC_CLK_TCK") if ticks else None


_POWER_CAP_BIT = 0x4  # of NVML's reasons for a lower clock


@dataclass(frozen=True, kw_only=True)
class Place:
    """What a task's device is on this machine: its lease, where NVML has it, and whether it is there at all."""

    lease: str
    gpu: GpuPlace | None = None
    present: bool = True

    @classmethod
    def of(cls, device: str, environ: Mapping[str, str]) -> "Place":
        """Of "cpu", "cuda" or "cuda:1". Raises UsageError where NVML says that there is no such GPU."""
        if not device.startswith("cuda"):
            return cls(lease=device)
        gpu = gpu_index(device, environ)
        if gpu is not None:
            return cls(lease=gpu.lease_name, gpu=gpu)
        # Without NVML a GPU can still be used; the driver's device files tell that it is there.
        there = Nvml.open().count == 0 and any(Path("/dev").glob("nvidia[0-9]*"))
        return cls(lease=f"gpu-{device_number(device)}", present=there)

    def cannot_run(self, target: str) -> str:
        """Why no code built for a target ("sm_80,sm_90") runs on this GPU; empty where some does or none is known."""
        capability = Nvml.open().read(self.gpu.index).capability if target and self.gpu is not None else None
        return runs_on(target, capability) if capability else ""

    def facts(self, *, nvml: Nvml | None = None) -> dict[str, Any]:
        """What NVML says of the GPU that code may be written for: `name` (of a whole GPU), `capability` as [9, 0]."""
        if self.gpu is None:
            return {}
        reading = (nvml or Nvml.open()).read(self.gpu.index)
        found = {"name": None if self.gpu.mig else reading.name, "capability": list(reading.capability or ())}
        return {key: value for key, value in found.items() if value}

    def free_bytes(self) -> int | None:
        """Memory that is free on the GPU now; None where NVML does not say."""
        return Nvml.open().read(self.gpu.index, mig=self.gpu.mig).memory_free_bytes if self.gpu is not None else None


class GpuWatch:
    """What NVML says of a GPU while a measurement runs on it: a context manager. Without NVML nothing is known."""

    def __init__(self, place: Place, *, name: str, contexts: int = 0) -> None:
        self._name = name
        own = os.getpid()
        self._sampler = Sampler(place.gpu, own=lambda: process.descendants(own), contexts=contexts)

    def __enter__(self) -> "GpuWatch":
        self._sampler.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._sampler.__exit__(kind, error, at)

    @property
    def name(self) -> str:
        """The GPU's name, else what it is called by."""
        return self._sampler.found().name or self._name

    @property
    def power_limited(self) -> bool:
        """Whether the clock was held down for power at any time."""
        return bool(self._sampler.found().throttle_bits & _POWER_CAP_BIT)

    def conditions(self) -> GpuConditions | None:
        """All readings together; None where there are none."""
        found = self._sampler.found()
        if not found.samples:
            return None
        return GpuConditions(
            name=found.name,
            uuid=found.uuid,
            driver=found.driver,
            clock_mhz=found.clock_mhz,
            power_w=found.power_w,
            temperature_c=found.temperature_c,
            throttle=found.throttle,
            tenants=found.tenants,
            samples=found.samples,
        )
