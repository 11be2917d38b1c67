"""`cuda-tui doctor`: everything the product needs, each with the value found or the exact remedy."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from cuda_tui import gpu
from cuda_tui.cli.surroundings import Folders
from cuda_tui.errors import UsageError
from cuda_tui.evaluation.build import toolchain
from cuda_tui.evaluation.build.interpreter import Interpreter, choose_python, inspect
from cuda_tui.evaluation.build.toolchain import Finding, State, Toolkit
from cuda_tui.sandbox import rung
from cuda_tui.sandbox.access import environment
from cuda_tui.secrets import KEYS_FILE, known_providers

SIGNS = {"ok": "ok", "warning": "note", "missing": "MISSING"}


def run(json: bool, python: str | None) -> int:
    """Print the findings, as lines or as one JSON list. Returns 0, or 2 where something needed is missing."""
    chosen = choose_python(python, os.environ, own=sys.executable)
    env = environment(os.environ, python=chosen)
    folders = Folders.of_user()
    findings = examine(chosen, env=env, cache_folder=folders.cache)
    findings.append(check_keys(os.environ, keys_file=folders.config / KEYS_FILE))
    if json:
        print(msgspec.json.format(msgspec.json.encode(findings)).decode())
    else:
        for item in findings:
            print(f"{SIGNS[item.state]:8}{item.name}: {item.found}")
            if item.remedy:
                print(f"{'':8}  -> {item.remedy}")
    return 2 if any(item.state == "missing" for item in findings) else 0


def examine(python: str, *, env: Mapping[str, str], cache_folder: Path | None) -> list[Finding]:
    """What the machine has, in the order in which a person would mend it."""
    nvml = gpu.Nvml.open()
    findings, interpreter = _interpreter(python, env)
    findings.append(toolchain.check_cxx(env))
    findings.append(check_ninja(env, python))
    findings += _cuda(env, interpreter, nvml, cache_folder)
    findings += _gpus(nvml)
    findings += [_ncu(env, nvml), _sandbox(), _git()]
    return findings


def _interpreter(python: str, env: Mapping[str, str]) -> tuple[list[Finding], Interpreter | None]:
    """The interpreter, its torch and its headers."""
    try:
        found = inspect(python, env=env)
    except UsageError as error:
        return [Finding(name="Python", state="missing", found=error.message, remedy=error.hint)], None
    old = tuple(int(number) for number in re.findall(r"\d+", found.version)[:2]) < (3, 10)
    remedy = "use Python 3.10 or later for the model" if old else ""
    state: State = "missing" if old else "ok"
    findings = [Finding(name="Python", state=state, found=f"{found.version} at {found.executable}", remedy=remedy)]
    findings.append(_torch(found))
    if found.python_header:
        findings.append(Finding(name="Python.h", state="ok", found=found.include))
    else:
        remedy = "apt install python3-dev (or a Python with headers); torch.compile and pybind modules need it"
        findings.append(Finding(name="Python.h", state="missing", found=f"not in {found.include}", remedy=remedy))
    return findings, found


def _torch(found: Interpreter) -> Finding:
    if found.torch_version is None:
        remedy = f"{found.executable} -m pip install 'torch>=2.10', or name another interpreter with --python"
        return Finding(name="torch", state="missing", found=f"not installed for {found.executable}", remedy=remedy)
    numbers = tuple(int(number) for number in re.findall(r"\d+", found.torch_version)[:2])
    about = f"{found.torch_version}, {f'CUDA {found.torch_cuda}' if found.torch_cuda else 'CPU only'}"
    if numbers < (2, 10):
        return Finding(name="torch", state="missing", found=about, remedy="install torch 2.10 or later")
    return Finding(name="torch", state="ok", found=about)


def check_ninja(env: Mapping[str, str], python: str) -> Finding:
    found = shutil.which("ninja", path=env.get("PATH"))
    if found is None:
        return Finding(name="ninja", state="missing", found="not found", remedy=f"{python} -m pip install ninja")
    return Finding(name="ninja", state="ok", found=found)


def _cuda(
    env: Mapping[str, str], interpreter: Interpreter | None, nvml: gpu.Nvml, cache_folder: Path | None
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


def _gpus(nvml: gpu.Nvml) -> list[Finding]:
    if nvml.count == 0:
        found = nvml.reason or "no NVIDIA GPU"
        return [Finding(name="GPU", state="warning", found=found, remedy="CPU tasks run; CUDA compiles and cannot run")]
    findings = []
    for index in range(nvml.count):
        reading = nvml.read(index)
        capability = ".".join(map(str, reading.capability)) if reading.capability else "unknown"
        memory = f"{reading.memory_total_bytes / 2**30:.0f} GiB" if reading.memory_total_bytes else "memory unknown"
        about = f"{reading.name or 'unnamed'}, compute {capability}, {memory}, driver {reading.driver or 'unknown'}"
        findings.append(Finding(name=f"GPU {index}", state="ok", found=about))
        if reading.missing:
            lacking = "; ".join(f"{name}: {reason}" for name, reason in reading.missing.items())
            findings.append(Finding(name=f"NVML {index}", state="warning", found=f"does not say {lacking}"))
        else:
            findings.append(Finding(name=f"NVML {index}", state="ok", found="clocks, power, temperature, throttling"))
    return findings


def _ncu(env: Mapping[str, str], nvml: gpu.Nvml) -> Finding:
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


def _sandbox() -> Finding:
    found = rung.detect()
    if found.name == "none":
        remedy = "install bubblewrap (apt install bubblewrap) and allow user namespaces; until then no automatic mode"
        return Finding(name="sandbox", state="warning", found=found.summary, remedy=remedy)
    return Finding(name="sandbox", state="ok", found=found.summary)


def _git() -> Finding:
    """git, and whose name commits carry."""
    program = shutil.which("git")
    if program is None:
        return Finding(name="git", state="missing", found="not found", remedy="apt install git")
    values = []
    for key in ("user.name", "user.email"):
        done = subprocess.run(
            [program, "config", "--global", "--get", key], capture_output=True, text=True, check=False, cwd="/",
            stdin=subprocess.DEVNULL, timeout=20,
        )  # fmt: skip
        values.append(done.stdout.strip())
    if all(values):
        return Finding(name="git", state="ok", found=f"{program}, commits as {values[0]} <{values[1]}>")
    return Finding(name="git", state="ok", found=f"{program}, no identity: commits in workspaces are made as cuda-tui")


def check_keys(environ: Mapping[str, str], *, keys_file: Path) -> Finding:
    """Which keys there are and where; the keys themselves are never shown."""
    try:
        found = known_providers(environ, keys_file)
    except UsageError as error:
        return Finding(name="keys", state="warning", found=error.message, remedy=error.hint)
    if found:
        return Finding(name="keys", state="ok", found=", ".join(found))
    remedy = "the autopilot needs none; for an LLM set ANTHROPIC_API_KEY or OPENAI_API_KEY"
    return Finding(name="keys", state="warning", found="none", remedy=remedy)
