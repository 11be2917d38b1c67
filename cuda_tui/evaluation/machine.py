"""The machine that a measurement runs on: which core, whose processor, and what else was running."""

import contextlib
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path

from cuda_tui.evaluation.build.target import runs_on
from cuda_tui.evaluation.report import GpuConditions
from cuda_tui.gpu import processor_ticks
from cuda_tui.nvml import GpuReading, Nvml


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


POWER_CAP = "power cap"


@dataclass(frozen=True, kw_only=True)
class Place:
    """What a task's device is on this machine: its lease, NVML's index for it, and whether it is there at all."""

    lease: str
    index: int | None = None
    present: bool = True

    @classmethod
    def of(cls, device: str) -> "Place":
        """Of "cpu", "cuda" or "cuda:1"."""
        if not device.startswith("cuda"):
            return cls(lease=device)
        number = int(device.partition(":")[2] or 0)
        nvml = Nvml.open()
        if number < nvml.count:
            return cls(lease=f"gpu-{nvml.read(number).uuid or number}", index=number)
        # Without NVML a GPU can still be used; the driver's device files tell that it is there.
        return cls(lease=f"gpu-{number}", present=not nvml.count and any(Path("/dev").glob("nvidia[0-9]*")))

    def cannot_run(self, target: str) -> str:
        """Why no code built for a target ("sm_80,sm_90") runs on this GPU; empty where some does or nothing is known."""
        capability = Nvml.open().read(self.index).capability if target and self.index is not None else None
        return runs_on(target, capability) if capability else ""


class GpuWatch:
    """What NVML says of one GPU from round to round of a measurement. A reading takes about 1 ms and disturbs nothing.

    `index` is NVML's; None where there is no NVML, and then nothing is known.
    """

    def __init__(self, index: int | None, *, name: str) -> None:
        self._nvml = Nvml.open() if index is not None else None
        self._index = index or 0
        self._name = name
        self._readings: list[GpuReading] = []
        self.sample()

    @property
    def name(self) -> str:
        """The GPU's name, else what it is called by."""
        return next((reading.name for reading in self._readings if reading.name), None) or self._name

    @property
    def power_limited(self) -> bool:
        """Whether the clock was held down for power at any time."""
        return any(POWER_CAP in (reading.throttle or "") for reading in self._readings)

    def sample(self) -> None:
        """Take a reading."""
        if self._nvml is not None:
            self._readings.append(self._nvml.read(self._index))

    def conditions(self) -> GpuConditions | None:
        """All readings together; None where there are none."""
        if not self._readings:
            return None
        clocks = [reading.clock_mhz for reading in self._readings if reading.clock_mhz is not None]
        powers = [reading.power_w for reading in self._readings if reading.power_w is not None]
        heats = [reading.temperature_c for reading in self._readings if reading.temperature_c is not None]
        reasons = dict.fromkeys(reading.throttle for reading in self._readings if reading.throttle)
        first = self._readings[0]
        return GpuConditions(
            name=first.name,
            uuid=first.uuid,
            driver=first.driver,
            clock_mhz=(min(clocks), max(clocks)) if clocks else None,
            power_w=max(powers, default=None),
            temperature_c=max(heats, default=None),
            throttle=tuple(reasons),
            samples=len(self._readings),
        )
