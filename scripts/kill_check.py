"""Kill headless sessions at random moments, and look at what is left of each.

    python scripts/kill_check.py [MODEL.py] [--kills 10] [--within 60] [--seed 0]

Each session gets folders of its own. After `kill -9` of its process alone, every process that it started has to end
by itself; then its log has to read back, its workspace to open with a sound git history, and `resume` to reach a
proper end. This process is made the reaper of orphans, so whatever a session leaves behind becomes its own child,
whichever session, group or environment that process moved to.
"""

import argparse
import contextlib
import ctypes
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from cuda_tui.errors import CudaTuiError
from cuda_tui.events import Entry, MachineSampled, SessionStarted
from cuda_tui.process import descendants
from cuda_tui.session.listing import list_sessions, summarise
from cuda_tui.session.log import read_log
from cuda_tui.workspace.workspace import Workspace

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "multi_term_loss" / "model.py"
GRACE_S = 5.0  # orphans have to be gone by then
RESUME_LIMIT_S = 900.0
COLUMNS = "{:>3}  {:>6}  {:<24} {:<9} {:<22} {:<10} {:<7} {}"
_PR_SET_CHILD_SUBREAPER = 36  # from the kernel's prctl.h


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one killed session left. Texts are empty where all is well; `session` is None before there was a log."""

    after_s: float
    during: str
    left: str
    session: str | None
    log: str = ""
    workspace: str = ""
    resumed: str = ""
    end: str = ""

    @property
    def sound(self) -> bool:
        """Whether nothing was left running and nothing was lost."""
        return not (self.left or self.log or self.workspace or self.resumed)


def main() -> int:
    """Run the checks and print a line for each. Returns 1 where any of them failed."""
    arguments = _arguments()
    moments = random.Random(arguments.seed)
    if ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        print("this kernel does not let a process collect orphans")
        return 2
    print(COLUMNS.format("no.", "killed", "while", "left", "log", "workspace", "resume", "end"))
    failed = 0
    for number in range(1, arguments.kills + 1):
        with tempfile.TemporaryDirectory(prefix="kill-check-") as folder:
            outcome = check(arguments.model, Path(folder), after_s=moments.uniform(2.0, arguments.within))
        failed += not outcome.sound
        print(_row(number, outcome), flush=True)
    print(f"{arguments.kills - failed} of {arguments.kills} sound (seed {arguments.seed})")
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", nargs="?", type=Path, default=EXAMPLE, help="what to optimise")
    parser.add_argument("--kills", type=int, default=10, help="how many sessions")
    parser.add_argument("--within", type=float, default=60.0, metavar="S", help="seconds in which the kill falls")
    parser.add_argument("--seed", type=int, default=0, help="of the random moments")
    return parser.parse_args()


def check(model: Path, folder: Path, *, after_s: float) -> Outcome:
    """Start a session below `folder`, kill it after that many seconds, and look."""
    environment = os.environ | {f"XDG_{name}_HOME": str(folder / name) for name in ("DATA", "STATE", "CACHE", "CONFIG")}
    with (folder / "output").open("wb") as output:
        process = _start(["optimize", str(model), "--device", "cpu", "--model", "autopilot"], environment, output)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(after_s)
        process.send_signal(signal.SIGKILL)
        process.wait()
        left = _left_behind()
        sessions = list_sessions(folder / "STATE" / "cuda-tui" / "sessions")
        if not sessions:
            return Outcome(after_s=after_s, during="opening", left=left, session=None)
        path = Path(sessions[0].path)
        try:
            entries = read_log(path).entries
        except CudaTuiError as error:
            return Outcome(after_s=after_s, during="?", left=left, session=path.stem, log=error.message)
        workspace = _workspace_problem(entries)
        happened = [entry.event for entry in entries if not isinstance(entry.event, MachineSampled)]
        during = happened[-1].__struct_config__.tag
        resumed = _resume(path.stem, environment, output)
    after = summarise(path)
    return Outcome(
        after_s=after_s,
        during=f"after {during}",
        left=left or _left_behind(),
        session=path.stem,
        log=after.problem,
        workspace=workspace or _workspace_problem(read_log(path).entries),
        resumed=resumed,
        end=f"{after.outcome.value if after.outcome else 'no end'}: {(after.message.splitlines() or [''])[0]}",
    )


def _start(arguments: list[str], environment: dict[str, str], output: IO[bytes]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "cuda_tui.cli.main", *arguments, "--headless", "--approve", "auto"]
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)


def _left_behind() -> str:
    """Collect orphans until there is none, or the grace is over; then end what still runs and name it."""
    deadline = time.monotonic() + GRACE_S
    while running := _orphans():
        if time.monotonic() > deadline:
            names = ", ".join(_name(pid) for pid in running)
            for pid in running:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return names
        time.sleep(0.05)
    return ""


def _orphans() -> list[int]:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return descendants(os.getpid())


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:60].strip()
    except OSError:
        return f"process {pid}"


def _workspace_problem(entries: tuple[Entry, ...]) -> str:
    """Why the session's workspace does not open, or what git finds broken in it."""
    root = next(Path(entry.event.workspace) for entry in entries if isinstance(entry.event, SessionStarted))
    try:
        Workspace.open(root)
    except CudaTuiError as error:
        return error.message
    fsck = subprocess.run(["git", "fsck", "--full", "--no-dangling"], cwd=root, capture_output=True, text=True)
    locks = [path.name for path in (root / ".git").glob("*.lock")]
    return " ".join([*(fsck.stderr.splitlines() if fsck.returncode else ()), *locks])


def _resume(session: str, environment: dict[str, str], output: IO[bytes]) -> str:
    """Go on with a session; why it did not come to a proper end, or nothing."""
    process = _start(["resume", session], environment, output)
    try:
        code = process.wait(RESUME_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return f"no end in {RESUME_LIMIT_S:.0f} s"
    return f"exit {code}" if code else ""


def _row(number: int, outcome: Outcome) -> str:
    unread = "none" if outcome.session is None else "reads"
    return COLUMNS.format(
        number,
        f"{outcome.after_s:.1f} s",
        outcome.during,
        outcome.left or "nothing",
        outcome.log or unread,
        outcome.workspace or ("sound" if outcome.session else "none"),
        outcome.resumed or ("ok" if outcome.session else "none"),
        outcome.end,
    )


if __name__ == "__main__":
    sys.exit(main())
