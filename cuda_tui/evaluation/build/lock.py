"""One build at a time in one folder, by the same two files as the workspace's `cuda_extension.py`.

`lock.os` carries an OS lock, which the kernel frees when its holder dies. `lock` is the visible marker with the
holder's pid; a marker that is there when the OS lock is free was left behind by a build that was killed.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from cuda_tui.errors import UsageError


@contextlib.contextmanager
def build_lock(folder: Path) -> Iterator[str]:
    """Hold the folder. Yields a note on a stale marker, or "". Raises UsageError naming the process that builds."""
    folder.mkdir(parents=True, exist_ok=True)
    marker = folder / "lock"
    with open(folder / "lock.os", "a+", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"A build is already running in {folder} ({_holder(marker)}).", hint="Wait for it, or end that process."
            ) from None
        note = f"cleared the stale build marker of {_holder(marker)}" if marker.exists() else ""
        marker.write_text(str(os.getpid()), encoding="ascii")
        try:
            yield note
        finally:
            marker.unlink(missing_ok=True)


def _holder(marker: Path) -> str:
    try:
        text = marker.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        text = ""
    return f"pid {text}" if text.isdigit() else "an unknown process"
