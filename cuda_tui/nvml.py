"""What the driver says of each GPU, every question guarded by itself. No torch and no CUDA context."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from cuda_tui.records import Record

Answer = TypeVar("Answer")
RETRY_S = 60.0  # a reading that failed is asked again this much later, not at every sample

# NVML's bits for what holds the clock down; idle and clocks that the user set are no throttling.
_THROTTLE = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
}


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
    throttle_bits: int | None = None  # the same as the driver has it, idle and user-set clocks included
    missing: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def memory_free_bytes(self) -> int | None:
        """None where the driver does not say."""
        if self.memory_total_bytes is None or self.memory_used_bytes is None:
            return None
        return self.memory_total_bytes - self.memory_used_bytes


def throttle_words(bits: int) -> tuple[str, ...]:
    """The reasons among NVML's bits that hold a clock down."""
    return tuple(word for bit, word in _THROTTLE.items() if bits & bit)


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


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

    # ---- one question each; None where the driver does not answer

    def name(self, index: int) -> str | None:
        """What the GPU is called."""
        return self._optional(lambda nvml: _text(nvml.nvmlDeviceGetName(self._gpu(index))))

    def uuid(self, index: int) -> str | None:
        """Of the whole GPU, "GPU-…"."""
        return self._optional(lambda nvml: _text(nvml.nvmlDeviceGetUUID(self._gpu(index))))

    def processes(self, index: int) -> tuple[int, ...] | None:
        """Process ids that have a CUDA context on the GPU, as the driver counts them."""

        def query(nvml: Any) -> tuple[int, ...]:
            return tuple(int(process.pid) for process in nvml.nvmlDeviceGetComputeRunningProcesses(self._gpu(index)))

        return self._optional(query)

    def is_split(self, index: int) -> bool:
        """Whether the GPU is cut into MIG slices."""
        return bool(self._optional(lambda nvml: int(nvml.nvmlDeviceGetMigMode(self._gpu(index))[0]) == 1))

    def slices(self, index: int) -> tuple[str, ...]:
        """The uuids of the GPU's MIG slices, "MIG-…", in CUDA's order."""
        if not self.is_split(index):
            return ()
        count = self._optional(lambda nvml: int(nvml.nvmlDeviceGetMaxMigDeviceCount(self._gpu(index)))) or 0
        found = [self._slice_uuid(index, at) for at in range(count)]
        return tuple(uuid for uuid in found if uuid)

    def _slice_uuid(self, index: int, at: int) -> str | None:
        def query(nvml: Any) -> str:
            return _text(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetMigDeviceHandleByIndex(self._gpu(index), at)))

        return self._optional(query)

    def _gpu(self, index: int) -> Any:
        return self.library.nvmlDeviceGetHandleByIndex(index)

    def _optional(self, query: Callable[[Any], Answer]) -> Answer | None:
        if self.library is None:
            return None
        try:
            return query(self.library)
        except Exception:  # any question may be unsupported under MIG, vGPU or WSL, each in its own way
            return None

    # ---- everything at once

    def read(self, index: int, *, mig: str | None = None, now: Callable[[], float] = time.monotonic) -> GpuReading:
        """All that the GPU says. A query that fails is None and is left alone for a minute.

        `mig` names a slice of it: name and memory are then the slice's, clock, power and temperature the GPU's.
        """
        missing: dict[str, str] = {}
        if index >= self.count:
            return GpuReading(index=index, missing={"gpu": self.reason or f"there is no GPU {index}"})
        nvml = self.library

        def ask(name: str, query: Callable[[Any], Any], *, of_slice: bool = False) -> Any:
            key = (index, name)
            again_at, reason = self._asked_again_at.get(key, (0.0, ""))
            if now() < again_at:
                missing[name] = reason
                return None
            try:
                return query(nvml.nvmlDeviceGetHandleByUUID(mig) if mig and of_slice else self._gpu(index))
            except Exception as error:  # as in _optional
                missing[name] = str(error) or type(error).__name__
                self._asked_again_at[key] = (now() + RETRY_S, missing[name])
                return None

        memory = ask("memory", lambda gpu: nvml.nvmlDeviceGetMemoryInfo(gpu), of_slice=True)
        capability = ask("capability", lambda gpu: tuple(nvml.nvmlDeviceGetCudaComputeCapability(gpu)))
        cuda = ask("driver_cuda", lambda _: int(nvml.nvmlSystemGetCudaDriverVersion()))
        bits = ask("throttle", lambda gpu: _throttle_bits(nvml, gpu))
        return GpuReading(
            index=index,
            name=ask("name", lambda gpu: _text(nvml.nvmlDeviceGetName(gpu)), of_slice=True),
            uuid=ask("uuid", lambda gpu: _text(nvml.nvmlDeviceGetUUID(gpu)), of_slice=True),
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
            throttle=", ".join(throttle_words(bits)) or None if bits is not None else None,
            throttle_bits=bits,
            missing=missing,
        )


def _throttle_bits(nvml: Any, gpu: Any) -> int:
    """Under its newer name, else under the one that older drivers' libraries have."""
    try:
        return int(nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu))
    except Exception:  # an older driver has no such function; what the older name says counts
        return int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu))
