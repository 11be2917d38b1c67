"""Which device a task is for, and what this machine lets it do there. Asks NVML and reads files; imports no torch."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from cuda_tui.errors import InfrastructureError, UsageError
from cuda_tui.evaluation.build.interpreter import Interpreter, cuda_devices, inspect
from cuda_tui.evaluation.build.target import attached_target, own_target, spelled
from cuda_tui.evaluation.build.toolchain import Finding, driver_problem, find_toolkit
from cuda_tui.gpu import GpuPlace, device_number, gpu_index, visible_gpus
from cuda_tui.nvml import Nvml
from cuda_tui.records import Record
from cuda_tui.workspace.workspace import Workspace

NODES = (Path("/dev/nvidiactl"), Path("/dev/nvidia0"), Path("/dev/dxg"))  # the last one is WSL's
ON_CPU = "the CPU is worked on"


class Choice(Record):
    """The device for a task that names none. `reason` says why it is not the GPU, where there is one."""

    device: str
    reason: str = ""
    hint: str = ""


class Found(Record):
    """What this machine has for a device. `runs` is whether code can run there, else it is only compiled."""

    device: str
    runs: bool
    place: GpuPlace | None = None
    capability: tuple[int, int] | None = None
    notes: tuple[str, ...] = ()  # what bears on the results, a sentence each


class Host(Record):
    """Where to look: the interpreter that runs the model, and the environment of its processes."""

    python: str
    env: dict[str, str]
    nodes: tuple[str, ...] = tuple(map(str, NODES))

    def interpreter(self) -> Interpreter:
        """Raises UsageError where it does not run."""
        return inspect(self.python, env=self.env)

    @property
    def has_nodes(self) -> bool:
        """Whether the system has a device file of a GPU."""
        return any(Path(node).exists() for node in self.nodes)


# ---- the default


def default_device(host: Host, *, nvml: Nvml | None = None) -> Choice:
    """ "cuda" where everything that it needs is there: a GPU, a torch with CUDA, a driver for it, and nvcc; else "cpu".

    Without a GPU nothing is started; with one, the interpreter (about 0.1 s, torch is not imported).
    """
    nvml = nvml or Nvml.open()
    if nvml.count == 0:
        if not host.has_nodes:
            return Choice(device="cpu")
        reason = f"there may be a GPU here, and it cannot be looked at ({nvml.reason or 'NVML sees none'}); {ON_CPU}"
        return Choice(device="cpu", reason=reason, hint="--device cuda tries it.")
    places = visible_gpus(host.env, nvml=nvml)
    if not places:
        limit = host.env.get("CUDA_VISIBLE_DEVICES", "")
        return Choice(device="cpu", reason=f"CUDA_VISIBLE_DEVICES={limit} hides every GPU of this machine; {ON_CPU}")
    problem, hint = _unusable(host, nvml, places[0])
    if problem:
        name = places[0].name or "a GPU"
        return Choice(device="cpu", reason=f"there is {name} here, and {problem}; {ON_CPU}", hint=hint)
    return Choice(device="cuda")


def named_devices(chosen: str, host: Host, *, nvml: Nvml | None = None) -> tuple[dict[str, str], str]:
    """Every device with its name, and the own target of the GPU that is chosen; "" for the CPU.

    Raises UsageError where the choice is a GPU that is not there.
    """
    nvml = nvml or Nvml.open()
    names = {place.device: place.name or "" for place in visible_gpus(host.env, nvml=nvml)} | {"cpu": ""}
    return names, attached_target(chosen, host.env, nvml=nvml) or ""


def _unusable(host: Host, nvml: Nvml, place: GpuPlace) -> tuple[str, str]:
    """Why the GPU cannot be worked on, and what would help; empty where it can."""
    interpreter = host.interpreter()
    if interpreter.torch_cuda is None:
        return _no_cuda_in_torch(interpreter), "Install a CUDA build of torch, or name another interpreter."
    old = driver_problem(nvml.read(place.index).driver_cuda, torch_cuda=interpreter.torch_cuda)
    if old:
        return old, f"Install a driver for CUDA {interpreter.torch_cuda}, or an older torch."
    toolkit = find_toolkit(host.env)
    return (toolkit.found, _sentence(toolkit.remedy)) if isinstance(toolkit, Finding) else ("", "")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _no_cuda_in_torch(interpreter: Interpreter) -> str:
    if interpreter.torch_version is None:
        return f"{interpreter.executable} has no torch"
    return f"torch {interpreter.torch_version} of {interpreter.executable} is built without CUDA"


# ---- a device that is named


def look(device: str, host: Host, *, nvml: Nvml | None = None) -> Found:
    """What the machine has for "cpu", "cuda" or "cuda:1".

    Raises UsageError where there is no such GPU, with those that there are.
    """
    if device == "cpu":
        return Found(device=device, runs=True)
    number = device_number(device)
    nvml = nvml or Nvml.open()
    place = gpu_index(device, host.env, nvml=nvml)
    if place is None:
        return _without_nvml(device, number, host, nvml)
    reading = nvml.read(place.index, mig=place.mig)
    found = Found(device=device, runs=True, place=place, capability=reading.capability)
    interpreter = host.interpreter()
    if interpreter.torch_cuda is None:
        return _compiles(found, _no_cuda_in_torch(interpreter))
    old = driver_problem(reading.driver_cuda, torch_cuda=interpreter.torch_cuda)
    if old:
        return _compiles(found, old)
    return msgspec.structs.replace(found, notes=_company(place, nvml))


def _compiles(found: Found, problem: str) -> Found:
    return msgspec.structs.replace(found, runs=False, notes=(f"{problem}: CUDA is compiled here, and not run",))


def _company(place: GpuPlace, nvml: Nvml) -> tuple[str, ...]:
    """What else bears on what is measured on this GPU."""
    notes: list[str] = []
    if place.mig:
        notes.append(
            f"{place.device} is a slice (MIG) of {place.name or 'a GPU'}: times hold for this slice, whose share of "
            "the processors is fixed, and say nothing of the whole GPU; clock and power are read of the whole GPU"
        )
    tenants = nvml.processes(place.index)
    if tenants:
        words = "1 other process uses" if len(tenants) == 1 else f"{len(tenants)} other processes use"
        notes.append(f"{words} {place.device} already: measured all the same, and told with each figure")
    return tuple(notes)


def _without_nvml(device: str, number: int, host: Host, nvml: Nvml) -> Found:
    """NVML says nothing. Where a GPU may be there all the same, torch is asked, which takes some seconds."""
    compiled = Found(device=device, runs=False)
    if not host.has_nodes or host.interpreter().torch_cuda is None:
        return compiled
    names = cuda_devices(host.python, env=host.env)
    if not names:
        return _compiles(compiled, "torch finds no GPU that works here")
    if number >= len(names):
        listed = ", ".join(f"{index} ({gpu.name})" for index, gpu in enumerate(names))
        raise UsageError(
            f"there is no GPU {number}; this machine has {len(names)}: {listed}",
            hint="Name one of them with --device, or work on the CPU.",
        )
    note = f"the GPU's state cannot be read ({nvml.reason or 'NVML sees no GPU'}): measured all the same, under "
    note += "conditions unknown (clock, power, temperature, other processes)"
    return Found(device=device, runs=True, capability=names[number].capability, notes=(note,))


# ---- what follows from it


def require_toolkit(found: Found, host: Host) -> None:
    """Raises InfrastructureError where CUDA is asked for and there is no nvcc: there is nothing to build with."""
    toolkit = find_toolkit(host.env) if found.device != "cpu" else None
    if isinstance(toolkit, Finding):
        hint = f"{_sentence(toolkit.remedy)} --device cpu works without."
        raise InfrastructureError(f"CUDA cannot be built here: {toolkit.found}.", hint=hint)


def targets(named: str | None, found: Found, env: Mapping[str, str]) -> tuple[str, ...]:
    """The CUDA targets to write into a task: what the person named, else none where the device tells at each build.

    Raises UsageError where nothing tells.
    """
    if found.device == "cpu":
        return ()
    if named:
        return spelled(named)
    if found.place is not None and found.capability is not None:
        return ()
    if found.capability is not None:
        return (own_target(found.capability),)
    listed = env.get("TORCH_CUDA_ARCH_LIST", "native")
    if listed not in ("", "native"):
        return spelled(listed)
    raise UsageError(
        "There is no GPU here, and no CUDA target is named.",
        hint="Name what the code is for with --arch, as in --arch sm_90a: it is then compiled, and not run.",
    )


def on_device(workspace: Workspace, device: str | None) -> Workspace:
    """The workspace with its task on another GPU of the machine. Raises UsageError for another kind of device."""
    own = workspace.task.device
    if device is None or device == own:
        return workspace
    if device.partition(":")[0] != own.partition(":")[0]:
        raise UsageError(
            f"{workspace.root} is a workspace for {own}, not for {device}.",
            hint="Start a new one from the model's file: the kernels of the one do not run on the other.",
        )
    return Workspace(workspace.root, msgspec.structs.replace(workspace.task, device=device))
