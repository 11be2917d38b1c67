"""A process isolates itself: namespaces with a root of its own, else Landlock. Standard library only.

Used in two ways: a forked worker calls `enter` before it loads anything of the user's; and, where bubblewrap is
missing, `python isolate.py SPEC -- ARGV` confines itself with Landlock and then becomes the command.

A specification is a plain dictionary:
    read    folders and files that can be read (and executed)
    write   folders that can be written
    hidden  files that must look empty
    memory_bytes, file_bytes, processes    limits, or null
"""

import ctypes
import json
import os
import resource
import signal
import struct
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

Spec = dict[str, Any]

_libc = ctypes.CDLL(None, use_errno=True)

# From the kernel's headers: sched.h, mount.h, prctl.h, landlock.h.
_NEWNS, _NEWUTS, _NEWIPC = 0x00020000, 0x04000000, 0x08000000
_NEWUSER, _NEWPID, _NEWNET = 0x10000000, 0x20000000, 0x40000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_REC, _MS_PRIVATE = 0x2, 0x4, 0x8, 0x1000, 0x4000, 0x40000
_MNT_DETACH = 2
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID, _AT_RECURSIVE, _AT_FDCWD = 0x1, 0x2, 0x8000, -100
_SYS_MOUNT_SETATTR, _SYS_PIVOT_ROOT = 442, {"x86_64": 155, "aarch64": 41}.get(os.uname().machine, 155)
_SYS_LANDLOCK_CREATE, _SYS_LANDLOCK_ADD, _SYS_LANDLOCK_RESTRICT = 444, 445, 446
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38

DEVICES = ("null", "zero", "full", "random", "urandom")


class IsolationFailed(Exception):
    """The kernel refused a step; the text names it."""


def _check(result: int, what: str) -> int:
    if result < 0:
        raise IsolationFailed(f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def _mount(source: str, target: str, kind: "str | None" = None, flags: int = 0, data: "str | None" = None) -> None:
    kind_bytes, data_bytes = kind.encode() if kind else None, data.encode() if data else None
    _check(
        _libc.mount(source.encode(), target.encode(), kind_bytes, ctypes.c_ulong(flags), data_bytes), "mount " + target
    )


def _read_only(target: str) -> None:
    attributes = struct.pack("QQQQ", _MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID, 0, 0, 0)
    result = _libc.syscall(_SYS_MOUNT_SETATTR, _AT_FDCWD, target.encode(), _AT_RECURSIVE, attributes, 32)
    _check(result, "read-only " + target)


def _bind(source: str, target: str, writable: bool) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if not os.path.exists(target):
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
    _mount(source, target, None, _MS_BIND | _MS_REC)
    if not writable:
        _read_only(target)


def die_with_parent() -> None:
    """SIGKILL for this process when the thread that forked it ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def adopt_orphans() -> None:
    """Descendants that lose their parent become this process's children."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children() -> "list[int]":
    """Children of this process, zombies too."""
    found, me = [], str(os.getpid())
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", errors="replace") as handle:
                    parent = handle.read().rpartition(")")[2].split()[1]
            except (OSError, IndexError):
                continue
            if parent == me:
                found.append(int(name))
    return found


def limit(spec: Spec) -> None:
    """Apply the limits of a specification; a limit above the hard one keeps the hard one."""
    wanted = [
        (resource.RLIMIT_AS, spec.get("memory_bytes")),
        (resource.RLIMIT_FSIZE, spec.get("file_bytes")),
        (resource.RLIMIT_NPROC, spec.get("processes")),
        (resource.RLIMIT_CORE, 0),
    ]
    for which, value in wanted:
        if value is None:
            continue
        hard = resource.getrlimit(which)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (value, value))


def _new_root(spec: Spec) -> None:
    """Build a root that holds only what the specification names, and move into it."""
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE)
    _mount("tmpfs", "/tmp", "tmpfs", _MS_NOSUID | _MS_NODEV)
    os.mkdir("/tmp/old")
    os.mkdir("/tmp/new")
    _check(_libc.syscall(_SYS_PIVOT_ROOT, b"/tmp", b"/tmp/old"), "pivot_root")
    os.chdir("/")
    _mount("tmpfs", "/new", "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=0755")
    for private in ("/tmp", "/dev", "/dev/shm", "/proc"):
        os.makedirs("/new" + private, exist_ok=True)
    _mount("tmpfs", "/new/tmp", "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=1777,size=4g")
    _mount("tmpfs", "/new/dev/shm", "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=1777,size=4g")
    nodes = [name for name in os.listdir("/old/dev") if name in DEVICES or name.startswith("nvidia")]
    for name in nodes:
        _bind("/old/dev/" + name, "/new/dev/" + name, True)
    # Shallow paths first, so that a folder inside another one is bound over it and not under it.
    binds = [(path, False) for path in spec["read"]] + [(path, True) for path in spec["write"]]
    for path, writable in sorted(binds, key=lambda item: (item[0].count("/"), item[0], item[1])):
        _bind_as_given(path, writable)
    for path in spec.get("hidden", ()):
        if os.path.exists("/new" + path):
            _bind("/old/dev/null", "/new" + path, True)


def _bind_as_given(path: str, writable: bool) -> None:
    """Bind one path of the old root; a symbolic link at the top (/bin -> usr/bin) stays a link."""
    if os.path.islink("/old" + path):
        os.makedirs(os.path.dirname("/new" + path), exist_ok=True)
        if not os.path.lexists("/new" + path):
            os.symlink(os.readlink("/old" + path), "/new" + path)
    elif os.path.exists("/old" + path):
        _bind("/old" + path, "/new" + path, writable)


def _enter_root() -> None:
    try:
        _mount("proc", "/new/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    except IsolationFailed:
        # Containers mask parts of /proc, and the kernel then allows no new one: the outer one it is.
        _bind("/old/proc", "/new/proc", True)
    os.chdir("/new")
    _check(_libc.syscall(_SYS_PIVOT_ROOT, b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", _MNT_DETACH), "umount")
    os.chdir("/")


def _drop_privileges() -> None:
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    header = struct.pack("Ii", 0x20080522, 0)
    _check(_libc.capset(header, bytes(24)), "capset")
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def namespaces(spec: Spec) -> None:
    """Unshare user, mount, pid, net, ipc and uts; returns in process 2 of the new pid namespace.

    Process 1 would be deaf to its own signals, abort's among them. It and the calling process stay behind as
    waiters that end as their child ended, so that the parent outside sees the signal.
    """
    uid, gid = os.getuid(), os.getgid()
    _check(_libc.unshare(_NEWUSER | _NEWNS | _NEWPID | _NEWIPC | _NEWUTS | _NEWNET), "unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open("/proc/self/" + name, "w") as handle:
            handle.write(text)
    _new_root(spec)
    child = os.fork()
    if child:
        _wait_like(child)
    die_with_parent()
    _enter_root()
    _drop_privileges()
    child = os.fork()
    if child:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os._exit(128 - status if status < 0 else status)
    die_with_parent()


def _wait_like(child: int) -> NoReturn:
    """Wait for a child and end the way it ended."""
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if 128 < status < 160:
        status = 128 - status  # process 1 says this of its child's signal
    if status < 0:
        if -status not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status & 255)


def landlock_abi() -> int:
    """The kernel's Landlock version; 0 where it has none."""
    version: int = _libc.syscall(_SYS_LANDLOCK_CREATE, None, 0, 1)
    return max(version, 0)


def landlock(spec: Spec) -> None:
    """Read only what is named, write only what is named, no TCP. Files that must be hidden inside a readable
    folder cannot be: Landlock has no exceptions, so such a folder's other files are allowed one by one."""
    abi = landlock_abi()
    if not abi:
        raise IsolationFailed("landlock: not in this kernel")
    all_rights = (1 << 13) - 1
    all_rights |= (1 << 13 if abi >= 2 else 0) | (1 << 14 if abi >= 3 else 0) | (1 << 15 if abi >= 5 else 0)
    scopes = 3 if abi >= 6 else 0
    attributes = struct.pack("QQQ", all_rights, 3 if abi >= 4 else 0, scopes)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = _check(_libc.syscall(_SYS_LANDLOCK_CREATE, attributes, size, 0), "landlock ruleset")
    execute_and_read = 1 | 4 | 8
    file_rights = 1 | 2 | 4 | (1 << 14 if abi >= 3 else 0) | (1 << 15 if abi >= 5 else 0)

    def allow(path: str, rights: int) -> None:
        if not os.path.exists(path):
            return
        handle = os.open(path, os.O_PATH)
        rights &= all_rights if os.path.isdir(path) else file_rights
        _check(_libc.syscall(_SYS_LANDLOCK_ADD, ruleset, 1, struct.pack("<Qi", rights, handle), 0), path)
        os.close(handle)

    real = [os.path.realpath(path) for path in spec["read"]]
    for path in _around(real, [os.path.realpath(path) for path in spec.get("hidden", ())]):
        allow(path, execute_and_read)
    for path in spec["write"]:
        allow(path, all_rights)
    for name in os.listdir("/dev"):
        if name in DEVICES or name.startswith("nvidia"):
            allow("/dev/" + name, 2 | 4 | 8 | (1 << 14) | (1 << 15))
    allow("/proc", 2 | 4 | 8 | (1 << 14))  # the CUDA driver writes /proc/self/task/*/comm
    allow("/dev/shm", all_rights)
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _check(_libc.syscall(_SYS_LANDLOCK_RESTRICT, ruleset, 0), "landlock restrict")
    os.close(ruleset)
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _around(paths: "Iterable[str]", hidden: "Iterable[str]") -> "Iterator[str]":
    """The paths, with every folder that holds a hidden file replaced by its other entries."""
    for path in paths:
        inside = [secret for secret in hidden if secret == path or secret.startswith(path.rstrip("/") + "/")]
        if not inside:
            yield path
        elif path not in inside and os.path.isdir(path):
            # A link's target was not named; where it lies inside, its own path opens it.
            entries = [os.path.join(path, name) for name in os.listdir(path)]
            yield from _around([entry for entry in entries if not os.path.islink(entry)], inside)


def enter(spec: Spec, rung: str) -> None:
    """Isolate this process as far as `rung` says ("namespaces", "landlock" or "none"). Raises IsolationFailed."""
    die_with_parent()
    if rung == "namespaces":
        namespaces(spec)
    elif rung == "landlock":
        landlock(spec)
    limit(spec)


def probe() -> "dict[str, str]":
    """Which rungs this kernel allows a forked worker, as JSON: {"namespaces": "" or the reason, "landlock": ...}."""
    found = {}
    spec = {"read": ["/usr", "/lib", "/lib64", "/bin"], "write": []}
    for rung in ("namespaces", "landlock"):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            try:
                enter(spec, rung)
            except (IsolationFailed, OSError) as error:
                os.write(writing, str(error).encode())
                os._exit(1)
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as answers:
            reason = answers.read()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        found[rung] = reason or ("" if status == 0 else f"ended with status {status}")
    return found


def main(arguments: "list[str]") -> None:
    """`isolate.py SPEC -- ARGV`: Landlock and limits, then become the command. `isolate.py probe`: what is possible."""
    if arguments == ["probe"]:
        print(json.dumps(probe()))  # noqa: T201  the answer
        return
    spec, dashes, argv = json.loads(arguments[0]), arguments[1], arguments[2:]
    assert dashes == "--"
    die_with_parent()
    landlock(spec)
    limit(spec)
    os.execvpe(argv[0], argv, os.environ)


if __name__ == "__main__":
    main(sys.argv[1:])
