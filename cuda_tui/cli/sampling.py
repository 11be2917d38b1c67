"""The machine's load as an event, once a second at most."""

from collections.abc import Callable, Mapping

from cuda_tui.errors import UsageError
from cuda_tui.events import MachineSampled
from cuda_tui.gpu import GpuPlace, Machine, gpu_index
from cuda_tui.nvml import Nvml


def machine_sampler(
    device: str, environ: Mapping[str, str], *, nvml: Nvml | None = None
) -> Callable[[], MachineSampled]:
    """Samples the processor and, for a CUDA device, its GPU. Why a reading is missing is told when it changes."""
    nvml = (nvml or Nvml.open()) if device.startswith("cuda") else None
    place = _place(device, environ, nvml) if nvml else None
    machine = Machine(gpu=place, nvml=nvml)
    none = {"gpu": nvml.reason or f"there is no {device} here"} if nvml and place is None else {}
    told: dict[str, str] = {}

    def sample() -> MachineSampled:
        nonlocal told
        reading = machine.sample()
        gpu = reading.gpu
        missing = gpu.missing if gpu else none
        changed, told = missing != told, missing
        return MachineSampled(
            cpu_load=reading.cpu_load,
            memory_used_bytes=reading.memory_used_bytes,
            gpu_utilisation=gpu.utilisation if gpu else None,
            gpu_memory_used_bytes=gpu.memory_used_bytes if gpu else None,
            gpu_memory_total_bytes=gpu.memory_total_bytes if gpu else None,
            gpu_clock_mhz=gpu.clock_mhz if gpu else None,
            gpu_power_w=gpu.power_w if gpu else None,
            gpu_temperature_c=gpu.temperature_c if gpu else None,
            throttle=gpu.throttle if gpu else None,
            gpu_name=gpu.name if gpu else None,
            gpu_missing=missing if changed else {},
        )

    return sample


def _place(device: str, environ: Mapping[str, str], nvml: Nvml) -> GpuPlace | None:
    """None where there is no such GPU: a session of another machine can still be gone on with, compiling only."""
    try:
        return gpu_index(device, environ, nvml=nvml)
    except UsageError:
        return None
