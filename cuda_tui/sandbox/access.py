"""What a build, a shell command or a worker may reach: an allow-list, for files and for the environment."""

import json
import os
import subprocess
from collections import deque
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
    "CUDA_VISIBLE_DEVICES", "TORCH_CUDA_ARCH_LIST", "CXX", "CC", "MAX_JOBS",
    "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "CPATH",
    "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "CONDA_PREFIX", "VIRTUAL_ENV", "PYTHONPATH",
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE",
)
# fmt: on
# fmt: off
CREDENTIAL_NAMES = (
    ".env", ".netrc", ".pypirc", ".npmrc", ".git-credentials", "credentials", "credentials.json",
    ".pgpass", ".htpasswd", "secrets.toml", "secrets.json", "secrets.yaml", "secrets.yml",
)
CREDENTIAL_FOLDERS = (".ssh", ".aws", ".gnupg", ".kube", ".docker", ".azure", ".gcloud")
# fmt: on
CREDENTIAL_SUFFIXES = (".pem", ".key", ".p12", ".pfx", ".keystore")
CREDENTIAL_PREFIXES = ("id_rsa", "id_ed25519", "id_ecdsa", "id_dsa", ".env.")
SKIPPED_FOLDERS = (".venv", "node_modules", "__pycache__", "site-packages")
SCAN_LIMIT = 20_000  # entries looked at for credential files, the shallow ones first


class Access(Record):
    """Absolute paths. Nothing else of the file system exists inside; there is no network."""

    read: tuple[str, ...]
    write: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()  # files inside `read` that look empty

    def and_write(self, *folders: Path) -> "Access":
        """The same, with more writable folders."""
        return Access(read=self.read, write=(*self.write, *map(str, folders)), hidden=self.hidden)

    def and_read(self, *paths: Path) -> "Access":
        """The same, with more readable paths; a folder of the user's goes through `readable` first."""
        return Access(read=(*self.read, *map(str, paths)), write=self.write, hidden=self.hidden)

    def and_read_project(self, folder: Path) -> "Access":
        """The same, with a folder of the user's readable, less what holds their keys."""
        read, hidden = readable(folder)
        return Access(read=(*self.read, *read), write=self.write, hidden=(*self.hidden, *hidden))


@cache
def interpreter_paths(python: str) -> tuple[str, ...]:
    """Folders an interpreter imports from: its prefixes and its sys.path. Raises UsageError where it does not run."""
    script = "import sys, json; print(json.dumps([sys.prefix, sys.base_prefix, sys.executable, *sys.path]))"
    try:
        # A sitecustomize of the user's runs here, so it gets no more of the environment than a worker does.
        answer = subprocess.run(
            [python, "-c", script],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env=environment(os.environ, python=python),
        )
        items = [str(item) for item in json.loads(answer.stdout.strip().rpartition("\n")[2])]
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise UsageError(
            f"The Python interpreter {python} does not run: {error}", hint="Name another with --python."
        ) from None
    folders = {str(Path(item).parent) if item == python else item for item in items if item}
    folders |= {str(Path(os.path.realpath(python)).parent.parent)}
    return tuple(sorted(folder for folder in folders if Path(folder).exists() and not _is_too_wide(folder)))


def _is_too_wide(folder: str) -> bool:
    """The home folder or a folder above it holds more than a program needs."""
    return Path.home().is_relative_to(Path(folder).resolve())


def system_access(python: str, *, read: Iterable[Path] = (), write: Iterable[Path] = ()) -> Access:
    """The system, one interpreter, and the folders named. Credential files below `read` are hidden."""
    base = (*SYSTEM, *SYSTEM_FILES, *interpreter_paths(python))
    named: list[str] = []
    hidden: list[str] = []
    for path in read:
        inside, secret = readable(path)
        named += inside
        hidden += secret
    existing = tuple(dict.fromkeys(path for path in (*base, *named) if os.path.lexists(path)))
    return Access(read=existing, write=tuple(str(path) for path in write), hidden=tuple(hidden))


def readable(path: Path) -> tuple[list[str], list[str]]:
    """What of a folder of the user's may be read, and the credential files in it that must look empty.

    The home folder and what lies above it are never whole: in their place stand their visible entries, without
    those that hold the home folder. Dot files at home are where programs keep keys.
    """
    if not _is_too_wide(str(path)):
        return [str(path)], credential_files(path)
    entries = [
        str(item)
        for item in sorted(path.iterdir())
        if item.name[0] != "." and not _is_too_wide(str(item)) and (path.parent != path or item.is_file())
    ]
    return entries, [secret for entry in entries for secret in credential_files(Path(entry))]


def credential_files(root: Path) -> list[str]:
    """Files below a folder, or the file itself, that by their name or place hold keys; shallow ones first."""
    if not root.is_dir():
        return [str(root)] if _names_credential(root.name) else []
    found: list[str] = []
    queue = deque([(root, root.name in CREDENTIAL_FOLDERS)])
    seen = 0
    while queue and seen <= SCAN_LIMIT:
        folder, secret = queue.popleft()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            continue
        seen += len(entries)
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name == ".git":
                    found += [path for path in [os.path.join(entry.path, "config")] if os.path.isfile(path)]
                elif entry.name not in SKIPPED_FOLDERS:
                    queue.append((Path(entry.path), secret or entry.name in CREDENTIAL_FOLDERS))
            elif secret or _names_credential(entry.name):
                found.append(entry.path)
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
