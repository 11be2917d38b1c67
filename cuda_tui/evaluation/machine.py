"""The machine that a measurement runs on: which core, whose processor, and what else was running."""

import contextlib
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path

from cuda_tui.gpu import processor_ticks


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
