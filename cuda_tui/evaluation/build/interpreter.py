"""What the user's interpreter has: version, headers, torch. Asked in a subprocess, without importing torch."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import msgspec

from cuda_tui.errors import UsageError
from cuda_tui.records import Record

_SCRIPT = """
import importlib.util, json, os, re, sys, sysconfig
include = sysconfig.get_paths()["include"]
header = os.path.join(include, "Python.h")
facts = {"version": sys.version.split()[0], "executable": sys.executable, "include": include,
         "python_header": os.path.exists(header)}
spec = importlib.util.find_spec("torch")
if spec is not None and spec.origin:
    text = open(os.path.join(os.path.dirname(spec.origin), "version.py"), encoding="utf-8").read()
    version = re.search(r"__version__ = '([^']+)'", text)
    cuda = re.search(r"^cuda[^=\\n]*= '([^']+)'", text, re.M)
    facts.update(torch_version=version and version.group(1), torch_cuda=cuda and cuda.group(1))
print(json.dumps(facts))
"""


_CUDA_SCRIPT = """
import json, torch
count = torch.cuda.device_count() if torch.cuda.is_available() else 0
print(json.dumps([{"name": torch.cuda.get_device_name(at), "capability": torch.cuda.get_device_capability(at)}
                  for at in range(count)]))
"""


class Interpreter(Record):
    """One Python. `torch_version` is None without torch, `torch_cuda` is None for a CPU-only torch."""

    executable: str
    version: str
    include: str
    python_header: bool
    torch_version: str | None = None
    torch_cuda: str | None = None


def inspect(python: str, *, env: Mapping[str, str], timeout_s: float = 60.0) -> Interpreter:
    """Raises UsageError where the interpreter does not run."""
    try:
        done = subprocess.run(
            [python, "-c", _SCRIPT], env=dict(env), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=timeout_s, check=True,
        )  # fmt: skip
        return msgspec.json.decode(done.stdout.strip().rpartition("\n")[2], type=Interpreter)
    except subprocess.CalledProcessError as error:
        reason = error.stderr.strip().rpartition("\n")[2] or f"exit code {error.returncode}"
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError) as error:
        reason = str(error)
    raise UsageError(f"The Python interpreter {python} does not run: {reason}", hint="Name another with --python.")


class CudaDevice(Record):
    """A GPU as torch sees it."""

    name: str
    capability: tuple[int, int]


def cuda_devices(python: str, *, env: Mapping[str, str], timeout_s: float = 120.0) -> tuple[CudaDevice, ...]:
    """The GPUs that torch sees, by importing it in a process of its own (some seconds); none where that fails.

    Only for machines on which NVML says nothing.
    """
    try:
        done = subprocess.run(
            [python, "-W", "ignore", "-c", _CUDA_SCRIPT], env=dict(env), stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=timeout_s, check=True,
        )  # fmt: skip
        return msgspec.json.decode(done.stdout.strip().rpartition("\n")[2], type=tuple[CudaDevice, ...])
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError):
        return ()


def choose_python(named: str | None, env: Mapping[str, str], *, own: str) -> str:
    """The interpreter that runs the model: the one named, else the active environment's, else our own."""
    if named:
        return named
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        folder = env.get(variable)
        if folder and (candidate := Path(folder, "bin", "python")).exists():
            return str(candidate)
    return own
