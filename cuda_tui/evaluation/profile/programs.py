"""Where NVIDIA's tools are: on PATH, in the toolkit, or, for the disassemblers, in Triton's package."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from cuda_tui.sandbox.access import interpreter_paths

ORIGIN = {
    "ncu": "it comes with the CUDA toolkit (Nsight Compute)",
    "compute-sanitizer": "it comes with the CUDA toolkit (package cuda-sanitizer)",
    "cuobjdump": "it comes with the CUDA toolkit (package cuda-cuobjdump), and with Triton's Python package",
    "nvdisasm": "it comes with the CUDA toolkit (package cuda-nvdisasm), and with Triton's Python package",
}
_DISASSEMBLERS = ("cuobjdump", "nvdisasm")


def find(name: str, *, env: Mapping[str, str], python: str) -> str | None:
    """The program's path, or None."""
    if found := shutil.which(name, path=env.get("PATH", os.defpath)):
        return found
    roots = [env[variable] for variable in ("CUDA_HOME", "CUDA_PATH") if env.get(variable)]
    folders = [Path(root, "bin") for root in (*roots, "/usr/local/cuda")]
    if name in _DISASSEMBLERS:
        folders += [Path(folder, "triton", "backends", "nvidia", "bin") for folder in interpreter_paths(python)]
    return next((str(path / name) for path in folders if os.access(path / name, os.X_OK)), None)


def absent(name: str) -> str:
    """What to say where it is not there."""
    return f"{name} is not installed here: {ORIGIN[name]}"


def folder_of(program: str) -> Path:
    """The folder that a program and its own parts lie in, for the sandbox to show."""
    return Path(os.path.realpath(program)).parent
