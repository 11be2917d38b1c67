"""The part of `cuda-tui doctor` that looks at GPUs: toolkit, versions, each GPU, targets, counters, the default."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from cuda_tui.cli.devices import Host, default_device, look
from cuda_tui.errors import UsageError
from cuda_tui.evaluation.build import toolchain
from cuda_tui.evaluation.build.interpreter import Interpreter
from cuda_tui.evaluation.build.target import own_target
from cuda_tui.evaluation.build.toolchain import Finding, State, Toolkit
from cuda_tui.gpu import GpuPlace, visible_gpus
from cuda_tui.nvml import GpuReading, Nvml


def check_toolkit(
    env: Mapping[str, str], interpreter: Interpreter | None, nvml: Nvml, cache_folder: Path | None
) -> list[Finding]:
    """Toolkit, versions and the compiler pair. Without a GPU, a missing toolkit is only a note."""
    found = toolchain.find_toolkit(env)
    toolkit = found if isinstance(found, Toolkit) else None
    driver_cuda = nvml.read(0).driver_cuda if nvml.count else None
    torch_cuda = interpreter.torch_cuda if interpreter else None
    findings = [toolchain.check_cuda_versions(toolkit, torch_cuda=torch_cuda, driver_cuda=driver_cuda)]
    if isinstance(found, Finding):
        needed = nvml.count > 0 or "CUDA_HOME" in found.found
        state: State = "missing" if needed else "warning"
        return [Finding(name=found.name, state=state, found=found.found, remedy=found.remedy), *findings]
    about = f"{found.root}, nvcc {found.version} ({found.why})"
    headers = Path(found.root, "include", "cuda_runtime.h").exists()
    remedy = "" if headers else "set CUDA_HOME to a toolkit with include/cuda_runtime.h"
    findings.insert(0, Finding(name="CUDA toolkit", state="ok" if headers else "missing", found=about, remedy=remedy))
    # A toolkit that cannot be used with this torch is not tried: the remedy comes first.
    if headers and findings[-1].state != "missing":
        findings.append(toolchain.check_pair(found, env=env, cache_folder=cache_folder))
    return findings


def check_gpus(env: Mapping[str, str], nvml: Nvml) -> list[Finding]:
    """Every GPU that CUDA sees here: what it is, what its driver tells, its target, and who else is on it."""
    if nvml.count == 0:
        found = nvml.reason or "no NVIDIA GPU"
        return [Finding(name="GPU", state="warning", found=found, remedy="CPU tasks run; CUDA compiles and cannot run")]
    places = visible_gpus(env, nvml=nvml)
    if not places:
        limit = env.get("CUDA_VISIBLE_DEVICES", "")
        found = f"CUDA_VISIBLE_DEVICES={limit} hides every GPU of this machine ({nvml.count})"
        return [Finding(name="GPU", state="warning", found=found, remedy="unset it to use them")]
    toolkit = toolchain.find_toolkit(env)
    nvcc = toolkit.nvcc if isinstance(toolkit, Toolkit) else None
    findings: list[Finding] = []
    for number, place in enumerate(places):
        reading = nvml.read(place.index, mig=place.mig)
        findings += [_gpu(number, reading), *_slice(number, place), _nvml(number, reading)]
        findings += [*_target(number, reading, nvcc), *_tenants(number, nvml.processes(place.index))]
    return findings + _order(env, places)


def _gpu(number: int, reading: GpuReading) -> Finding:
    capability = ".".join(map(str, reading.capability)) if reading.capability else "unknown"
    memory = "memory unknown"
    if reading.memory_total_bytes and reading.memory_free_bytes is not None:
        memory = f"{reading.memory_free_bytes / 2**30:.0f} of {reading.memory_total_bytes / 2**30:.0f} GiB free"
    about = f"{reading.name or 'unnamed'}, compute {capability}, {memory}, driver {reading.driver or 'unknown'}"
    return Finding(name=f"GPU {number}", state="ok", found=about)


def _slice(number: int, place: GpuPlace) -> list[Finding]:
    if place.mig is None:
        return []
    remedy = "measuring works; times hold for the slice, whose share of the processors is fixed"
    found = f"{place.mig} of {place.name or 'a GPU'}"
    return [Finding(name=f"MIG {number}", state="warning", found=found, remedy=remedy)]


def _nvml(number: int, reading: GpuReading) -> Finding:
    name = f"NVML {number}"
    if not reading.missing:
        return Finding(name=name, state="ok", found="clocks, power, temperature, throttling")
    lacking = "; ".join(f"{reading_name}: {reason}" for reading_name, reason in reading.missing.items())
    remedy = "measuring works; what is not said stands as unknown beside each figure"
    return Finding(name=name, state="warning", found=f"does not say {lacking}", remedy=remedy)


def _target(number: int, reading: GpuReading, nvcc: str | None) -> list[Finding]:
    if reading.capability is None or nvcc is None:
        return []
    target, name = own_target(reading.capability), f"target {number}"
    problem = toolchain.unknown_targets(nvcc, [target])
    if problem:
        remedy = "install a newer CUDA toolkit; until then, --arch with the newest one plus PTX, as in sm_90+PTX"
        return [Finding(name=name, state="missing", found=problem, remedy=remedy)]
    return [Finding(name=name, state="ok", found=target)]


def _tenants(number: int, processes: tuple[int, ...] | None) -> list[Finding]:
    if not processes:
        return []
    words = "1 process uses it" if len(processes) == 1 else f"{len(processes)} processes use it"
    remedy = "measuring works, and tells them with each figure; a quiet GPU gives better ones"
    return [Finding(name=f"others on GPU {number}", state="warning", found=words, remedy=remedy)]


def _order(env: Mapping[str, str], places: tuple[GpuPlace, ...]) -> list[Finding]:
    """CUDA puts the fastest GPU first unless it is told not to; NVML goes by the bus."""
    if len({place.name for place in places}) < 2 or env.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        return []
    remedy = "set CUDA_DEVICE_ORDER=PCI_BUS_ID and name one by CUDA_VISIBLE_DEVICES=GPU-..., so that all mean the same"
    return [Finding(name="GPU order", state="warning", found="GPUs of different models", remedy=remedy)]


def check_device(device: str | None, host: Host, nvml: Nvml) -> Finding:
    """The device that a task gets: the one set, or the default and why."""
    try:
        if device is None:
            choice = default_device(host, nvml=nvml)
            about = f"{choice.device} by default" + (f": {choice.reason}" if choice.reason else "")
            return Finding(name="device", state="warning" if choice.reason else "ok", found=about, remedy=choice.hint)
        found = look(device, host, nvml=nvml)
    except UsageError as error:
        return Finding(name="device", state="missing", found=error.message, remedy=error.hint)
    if found.runs:
        return Finding(name="device", state="ok", found="; ".join([device, *found.notes]))
    about = found.notes[0] if found.notes else "there is no GPU here: CUDA is compiled, and not run"
    return Finding(name="device", state="warning", found=f"{device}: {about}", remedy="--device cpu runs here")


def check_counters(env: Mapping[str, str], nvml: Nvml) -> Finding:
    """Whether Nsight Compute may read the GPU's counters."""
    program = shutil.which("ncu", path=env.get("PATH"))
    if nvml.count == 0:
        return Finding(name="ncu", state="warning", found=f"{program or 'not found'}; no GPU to profile")
    if program is None:
        remedy = "optional: install Nsight Compute for counters of single kernels"
        return Finding(name="ncu", state="warning", found="not found", remedy=remedy)
    try:
        limits = Path("/proc/driver/nvidia/params").read_text(encoding="ascii", errors="replace")
    except OSError:
        limits = ""
    if "RmProfilingAdminOnly: 1" in limits and os.geteuid() != 0:
        remedy = (
            "as root: options nvidia NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d, then reload the driver"
        )
        return Finding(name="ncu", state="warning", found=f"{program}; counters are for root only", remedy=remedy)
    return Finding(name="ncu", state="ok", found=program)
