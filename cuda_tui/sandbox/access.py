"""What a build, a shell command or a worker may reach: an allow-list, for files and for the environment."""

import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from cuda_tui.errors import UsageError
from cuda_tui.records import Record

# Folders of the system that hold programs, libraries and descriptions of the hardware, and no one's secrets.
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix/store", "/sys")
SYSTEM_FILES = (
    "/etc/alternatives",
    "/etc/group",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
)
# fmt: off
ENVIRONMENT = (
    "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "TERM", "TZ", "CUDA_HOME", "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES", "CXX", "CC", "MAX_JOBS", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "CPATH",
    "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "CONDA_PREFIX", "VIRTUAL_ENV", "PYTHONPATH",
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE",
)
# fmt: on
CREDENTIAL_NAMES = (".env", ".netrc", ".pypirc", ".npmrc", ".git-credentials", "credentials", "credentials.json")
CREDENTIAL_SUFFIXES = (".pem", ".key", ".p12", ".pfx", ".keystore")
CREDENTIAL_PREFIXES = ("id_rsa", "id_ed25519", "id_ecdsa", "id_dsa", ".env.")
SCAN_LIMIT = 20_000  # entries looked at for credential files; a larger project is said to be scanned in part


class Access(Record):
    """Absolute paths. Nothing else of the file system exists inside; there is no network."""

    read: tuple[str, ...]
    write: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()  # files inside `read` that look empty

    def and_write(self, *folders: Path) -> "Access":
        """The same, with more writable folders."""
        return Access(read=self.read, write=(*self.write, *map(str, folders)), hidden=self.hidden)

    def and_read(self, *paths: Path) -> "Access":
        """The same, with more readable paths."""
        return Access(read=(*self.read, *map(str, paths)), write=self.write, hidden=self.hidden)


@cache
def interpreter_paths(python: str) -> tuple[str, ...]:
    """Folders an interpreter imports from: its prefixes and its sys.path. Raises UsageError where it does not run."""
    script = "import sys, json; print(json.dumps([sys.prefix, sys.base_prefix, sys.executable, *sys.path]))"
    try:
        answer = subprocess.run([python, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise UsageError(
            f"The Python interpreter {python} does not run: {error}", hint="Name another with --python."
        ) from None
    folders = {str(Path(item).parent) if item == python else item for item in json.loads(answer.stdout) if item}
    folders |= {str(Path(os.path.realpath(python)).parent.parent)}
    return tuple(sorted(folder for folder in folders if Path(folder).exists() and not _is_too_wide(folder)))


def _is_too_wide(folder: str) -> bool:
    """The home folder or a folder above it holds more than a program needs."""
    return Path.home().is_relative_to(Path(folder).resolve())


def system_access(python: str, *, read: Iterable[Path] = (), write: Iterable[Path] = ()) -> Access:
    """The system, one interpreter, and the folders named. Credential files below `read` are hidden."""
    named = tuple(str(path) for path in read)
    base = (*SYSTEM, *SYSTEM_FILES, *interpreter_paths(python))
    hidden = [secret for path in named for secret in credential_files(Path(path))]
    existing = tuple(dict.fromkeys(path for path in (*base, *named) if os.path.lexists(path)))
    return Access(read=existing, write=tuple(str(path) for path in write), hidden=tuple(hidden))


def credential_files(root: Path) -> list[str]:
    """Files below a folder that by their name hold keys."""
    found: list[str] = []
    seen = 0
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in {".git", ".venv", "node_modules", "__pycache__"}]
        if ".ssh" in folders or ".aws" in folders:
            found += [str(path) for name in (".ssh", ".aws") for path in Path(folder, name).glob("*") if path.is_file()]
        found += [os.path.join(folder, name) for name in files if _names_credential(name)]
        seen += len(files) + len(folders)
        if seen > SCAN_LIMIT:
            break
    return found


def _names_credential(name: str) -> bool:
    return (
        name in CREDENTIAL_NAMES
        or name.endswith(CREDENTIAL_SUFFIXES)
        or (name.startswith(CREDENTIAL_PREFIXES) and not name.endswith((".pub", ".example")))
    )


def environment(base: Mapping[str, str], *, python: str, home: Path | None = None, **extra: str) -> dict[str, str]:
    """The allow-listed part of an environment, with the interpreter's folder first on PATH and a private home.

    Stub libraries of the CUDA toolkit are dropped from LD_LIBRARY_PATH: with them CUPTI finds no driver.
    """
    kept = {name: base[name] for name in ENVIRONMENT if name in base}
    folders = [str(Path(python).parent), *base.get("PATH", os.defpath).split(":")]
    kept["PATH"] = ":".join(dict.fromkeys(folder for folder in folders if folder))
    if "LD_LIBRARY_PATH" in kept:
        parts = kept["LD_LIBRARY_PATH"].split(":")
        kept["LD_LIBRARY_PATH"] = ":".join(part for part in parts if not part.rstrip("/").endswith("/stubs"))
    kept["HOME"] = str(home) if home else "/tmp"
    kept["TMPDIR"] = "/tmp"
    kept["PYTHONDONTWRITEBYTECODE"] = "1"
    return kept | extra
