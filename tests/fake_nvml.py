"""A driver library of the shape of `pynvml`, with GPUs that a test describes."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from cuda_tui.nvml import Nvml


@dataclass(kw_only=True)
class FakeGpu:
    """One GPU. `silent` names what its driver refuses to answer."""

    name: str = "NVIDIA H200"
    uuid: str = "GPU-aaaa1111"
    capability: tuple[int, int] = (9, 0)
    slices: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()
    clocks: list[int] = field(default_factory=lambda: [1980])  # one a reading; the last one stays
    power_w: float = 400.0
    temperature_c: int = 55
    used_bytes: int = 1 << 30
    total_bytes: int = 140 << 30
    throttle_bits: int = 0
    silent: frozenset[str] = frozenset()


class FakeLibrary:
    """Answers as pynvml does: names may be bytes, what is unsupported raises."""

    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0

    def __init__(self, *gpus: FakeGpu, driver_cuda: int = 13000, has_event_reasons: bool = True) -> None:
        self.gpus = gpus
        self.driver_cuda = driver_cuda
        self.has_event_reasons = has_event_reasons

    def _answer(self, gpu: FakeGpu, what: str, value: Any) -> Any:
        if what in gpu.silent:
            raise RuntimeError("Not Supported")
        return value

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        return self.gpus[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeGpu:
        owner = next(gpu for gpu in self.gpus if uuid in gpu.slices)
        return FakeGpu(name=f"{owner.name} MIG 1g.18gb", uuid=uuid, total_bytes=18 << 30)

    def nvmlDeviceGetName(self, gpu: FakeGpu) -> bytes:
        return gpu.name.encode()

    def nvmlDeviceGetUUID(self, gpu: "FakeGpu | str") -> str:
        return gpu if isinstance(gpu, str) else str(self._answer(gpu, "uuid", gpu.uuid))

    def nvmlDeviceGetCudaComputeCapability(self, gpu: FakeGpu) -> tuple[int, int]:
        major, minor = self._answer(gpu, "capability", gpu.capability)
        return major, minor

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        return self.driver_cuda

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.1"

    def nvmlDeviceGetUtilizationRates(self, gpu: FakeGpu) -> Any:
        return self._answer(gpu, "utilisation", SimpleNamespace(gpu=87))

    def nvmlDeviceGetMemoryInfo(self, gpu: FakeGpu) -> Any:
        return self._answer(gpu, "memory", SimpleNamespace(used=gpu.used_bytes, total=gpu.total_bytes))

    def nvmlDeviceGetClockInfo(self, gpu: FakeGpu, _: int) -> int:
        clocks = self._answer(gpu, "clock", gpu.clocks)
        return int(clocks.pop(0) if len(clocks) > 1 else clocks[0])

    def nvmlDeviceGetPowerUsage(self, gpu: FakeGpu) -> float:
        return float(self._answer(gpu, "power", gpu.power_w * 1000))

    def nvmlDeviceGetTemperature(self, gpu: FakeGpu, _: int) -> int:
        return int(self._answer(gpu, "temperature", gpu.temperature_c))

    def nvmlDeviceGetCurrentClocksEventReasons(self, gpu: FakeGpu) -> int:
        if not self.has_event_reasons:
            raise RuntimeError("Function Not Found")
        return int(self._answer(gpu, "throttle", gpu.throttle_bits))

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, gpu: FakeGpu) -> int:
        return int(self._answer(gpu, "throttle", gpu.throttle_bits))

    def nvmlDeviceGetMigMode(self, gpu: FakeGpu) -> tuple[int, int]:
        return (1, 1) if gpu.slices else (0, 0)

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: FakeGpu) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: FakeGpu, at: int) -> str:
        return gpu.slices[at]

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: FakeGpu) -> list[Any]:
        return list(self._answer(gpu, "processes", [SimpleNamespace(pid=pid) for pid in gpu.pids]))


def nvml_of(*gpus: FakeGpu, driver_cuda: int = 13000, has_event_reasons: bool = True) -> Nvml:
    """As if the driver had these GPUs."""
    library = FakeLibrary(*gpus, driver_cuda=driver_cuda, has_event_reasons=has_event_reasons)
    return Nvml(library=library, count=len(gpus))
