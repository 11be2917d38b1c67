"""`cuda-tui doctor`: everything the product needs, each with the value found or the exact remedy."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from cuda_tui.cli.devices import Host
from cuda_tui.cli.doctor_cuda import check_counters, check_device, check_gpus, check_toolkit
from cuda_tui.cli.surroundings import Folders
from cuda_tui.errors import UsageError
from cuda_tui.evaluation.build import toolchain
from cuda_tui.evaluation.build.interpreter import Interpreter, choose_python, inspect
from cuda_tui.evaluation.build.toolchain import Finding, State
from cuda_tui.nvml import Nvml
from cuda_tui.sandbox import rung
from cuda_tui.sandbox.access import environment
from cuda_tui.secrets import KEYS_FILE, known_providers

SIGNS = {"ok": "ok", "warning": "note", "missing": "MISSING"}


def run(json: bool, python: str | None, device: str | None = None) -> int:
    """Print the findings, as lines or as one JSON list. Returns 0, or 2 where something needed is missing."""
    chosen = choose_python(python, os.environ, own=sys.executable)
    env = environment(os.environ, python=chosen)
    folders = Folders.of_user()
    findings = examine(chosen, env=env, cache_folder=folders.cache, device=device)
    findings.append(check_keys(os.environ, keys_file=folders.config / KEYS_FILE))
    if json:
        print(msgspec.json.format(msgspec.json.encode(findings)).decode())
    else:
        for item in findings:
            print(f"{SIGNS[item.state]:8}{item.name}: {item.found}")
            if item.remedy:
                print(f"{'':8}  -> {item.remedy}")
    return 2 if any(item.state == "missing" for item in findings) else 0


def examine(
    python: str,
    *,
    env: Mapping[str, str],
    cache_folder: Path | None,
    device: str | None = None,
    nvml: Nvml | None = None,
) -> list[Finding]:
    """What the machine has, in the order in which a person would mend it. `device` is the one set, if any."""
    nvml = nvml or Nvml.open()
    findings, interpreter = _interpreter(python, env)
    findings.append(toolchain.check_cxx(env))
    findings.append(check_ninja(env, python))
    findings += check_toolkit(env, interpreter, nvml, cache_folder)
    findings += check_gpus(env, nvml)
    if interpreter is not None:
        findings.append(check_device(device, Host(python=python, env=dict(env)), nvml))
    findings += [check_counters(env, nvml), _sandbox(), _git()]
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
