"""The command line: parse, hand over, turn errors into one message and an exit code.

0 done, 1 usage, 2 infrastructure, 3 stopped unfinished; `eval` adds 4 rejected and 5 unverified. Heavy modules are
imported by the command that needs them, so that `--help` and the first frame come at once.
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cuda_tui.errors import CudaTuiError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
        return code
    except CudaTuiError as error:
        _say(error.message, error.hint)
        return error.exit_code
    except KeyboardInterrupt:
        return 3
    except BrokenPipeError:  # the reader of our output went away; that is its good right
        sys.stderr.close()
        return 3
    except Exception as error:
        return _own_fault(error)


def _say(message: str, hint: str) -> None:
    sys.stderr.write(f"cuda-tui: {message}\n" + (f"  {hint}\n" if hint else ""))


def _own_fault(error: Exception) -> int:
    """A fault of ours: one line for the person, the traceback in the log."""
    path = _start_log()
    logging.getLogger(__name__).error("unexpected", exc_info=error)
    where = f"the traceback is in {path}" if path else "and the log cannot be written"
    _say(f"internal error: {type(error).__name__}: {error}", where)
    return 2


def _start_log() -> Path | None:
    """Send the program's own log to a file; None where there is no place for one."""
    from cuda_tui.cli.surroundings import Folders

    path = Folders.of_user().log
    ours = logging.getLogger("cuda_tui")
    for handler in ours.handlers[:]:
        ours.removeHandler(handler)
        handler.close()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handler = logging.FileHandler(path)
    except OSError:
        ours.addHandler(logging.NullHandler())
        return None
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    ours.addHandler(handler)
    return path


class _Parser(argparse.ArgumentParser):
    """Usage errors end with 1, as every usage error of this program."""

    def error(self, message: str) -> Any:
        self.print_usage(sys.stderr)
        self.exit(1, f"{self.prog}: {message}\n")


class _Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from cuda_tui.workspace.data import version

        parser.exit(0, f"cuda-tui {version()}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="cuda-tui", description="Makes a PyTorch model fast: verified, measured, step by step.")
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    parser.set_defaults(run=_start_screen)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    _add_optimize(commands)
    _add_resume(commands)
    _add_eval(commands)
    _add_profile(commands)
    replay = commands.add_parser("replay", help="play a recorded session back")
    replay.add_argument(
        "session", metavar="FILE|ID", nargs="?", help="a log file or a session's name; newest if left out"
    )
    replay.add_argument("--speed", default="1", metavar="N", help="0.5 to 16, or max")
    replay.add_argument("--paused", action="store_true", help="begin at rest")
    replay.set_defaults(run=_replay)
    sessions = commands.add_parser("sessions", help="list past sessions")
    sessions.add_argument("--json", action="store_true", help="one JSON object a line")
    sessions.set_defaults(run=_sessions)
    doctor = commands.add_parser("doctor", help="look at interpreter, compilers, GPU, sandbox and keys")
    doctor.add_argument("--json", action="store_true", help="print JSON")
    doctor.add_argument("--python", metavar="EXE", help="the interpreter that runs the model")
    doctor.add_argument("--device", metavar="D", help="the device to look at: cuda, cuda:1 or cpu")
    doctor.set_defaults(run=_doctor)
    return parser


def _add_optimize(commands: Any) -> None:
    optimize = commands.add_parser("optimize", help="make a model faster")
    optimize.add_argument("target", metavar="FILE[:Class]", help="a Python file with the model, or a workspace folder")
    optimize.add_argument("--inputs", metavar="F", help="function in FILE that returns example inputs")
    optimize.add_argument("--device", metavar="D", help="cuda, cuda:1 or cpu; a GPU that can be used if left out")
    optimize.add_argument("--arch", metavar="A", help="CUDA targets, as sm_80,sm_90a; the GPU's own if left out")
    optimize.add_argument("--workspace", metavar="DIR", help="new or empty folder for the workspace")
    _add_session_flags(optimize)
    optimize.set_defaults(run=_optimize)


def _add_resume(commands: Any) -> None:
    resume = commands.add_parser("resume", help="go on with a past session")
    resume.add_argument("session", metavar="ID", nargs="?", help="its name or the beginning of it; newest if left out")
    _add_session_flags(resume)
    resume.set_defaults(run=_resume)


def _add_session_flags(parser: Any) -> None:
    parser.add_argument("--model", metavar="PROVIDER:NAME", help='who optimises: "autopilot" (default), anthropic:NAME')
    parser.add_argument(
        "--approve", choices=("step", "edits", "auto"), help="ask for writes and commands (default), commands, nothing"
    )
    parser.add_argument("--headless", action="store_true", help="no screen: print lines; needs --approve auto")
    parser.add_argument("--json", action="store_true", help="no screen: print one JSON event a line")
    parser.add_argument("--python", metavar="EXE", help="the interpreter that runs the model")
    parser.add_argument("--turns", type=int, metavar="N", help="most replies of the model")
    parser.add_argument("--minutes", type=float, metavar="N", help="most wall time")


def _add_eval(commands: Any) -> None:
    evaluate = commands.add_parser("eval", help="verify and measure a workspace, without an agent")
    evaluate.add_argument("workspace", metavar="WORKSPACE", help="the folder with task.toml")
    evaluate.add_argument("--json", action="store_true", help="print the report as JSON")
    evaluate.add_argument("--device", metavar="D", help="another GPU than the task's, as cuda:1")
    evaluate.add_argument("--python", metavar="EXE", help="the interpreter that runs the model")
    evaluate.set_defaults(run=_eval)


def _add_profile(commands: Any) -> None:
    profile = commands.add_parser("profile", help="show where the time goes, check memory accesses, show machine code")
    profile.add_argument("workspace", metavar="WORKSPACE", help="the folder with task.toml")
    profile.add_argument("--reference", action="store_true", help="the model as given, in place of the candidate")
    checks = ("memcheck", "racecheck", "initcheck", "synccheck")
    profile.add_argument("--check", choices=checks, help="run the candidate under compute-sanitizer instead")
    profile.add_argument(
        "--sass", metavar="KERNEL", help="machine code of the kernels whose name contains this instead"
    )
    profile.add_argument("--line", type=int, metavar="N", help="with --sass: the source line whose code to show")
    profile.add_argument("--json", action="store_true", help="print JSON")
    profile.add_argument("--device", metavar="D", help="another GPU than the task's, as cuda:1")
    profile.add_argument("--python", metavar="EXE", help="the interpreter that runs the model")
    profile.set_defaults(run=_profile)


# ---- commands


def _around(arguments: argparse.Namespace) -> Any:
    from cuda_tui.cli.surroundings import Surroundings

    names = ("model", "approve", "device", "python", "turns", "minutes")
    _start_log()
    return Surroundings.read({name: getattr(arguments, name, None) for name in names})


def _opening(arguments: argparse.Namespace, target: str) -> Any:
    from cuda_tui.agent.runner import Opening
    from cuda_tui.events import Approval

    return Opening(
        target=target,
        inputs=getattr(arguments, "inputs", None),
        device=getattr(arguments, "device", None),
        architectures=getattr(arguments, "arch", None),
        model=arguments.model,
        approval=Approval(arguments.approve) if arguments.approve else None,
        workspace=getattr(arguments, "workspace", None),
        python=arguments.python,
        turns=arguments.turns,
        minutes=arguments.minutes,
    )


def _start_screen(arguments: argparse.Namespace) -> int:
    from cuda_tui.cli.optimize import start_screen

    return start_screen(_around(arguments))


def _optimize(arguments: argparse.Namespace) -> int:
    from cuda_tui.cli.optimize import optimize

    opening = _opening(arguments, arguments.target)
    return optimize(_around(arguments), opening, headless=arguments.headless, as_json=arguments.json)


def _resume(arguments: argparse.Namespace) -> int:
    from cuda_tui.cli.optimize import resume

    opening = _opening(arguments, "")
    around = _around(arguments)
    return resume(around, arguments.session, opening, headless=arguments.headless, as_json=arguments.json)


def _eval(arguments: argparse.Namespace) -> int:
    from cuda_tui.cli.evaluate import run

    around = _around(arguments)
    return run(
        Path(arguments.workspace),
        host=around.host,
        cache=around.folders.cache,
        as_json=arguments.json,
        device=arguments.device,
    )


def _profile(arguments: argparse.Namespace) -> int:
    from cuda_tui.cli.profile import Wanted, run

    around = _around(arguments)
    wanted = Wanted(
        reference=arguments.reference,
        check=arguments.check,
        sass=arguments.sass,
        line=arguments.line,
        device=arguments.device,
    )
    workspace, cache = Path(arguments.workspace), around.folders.cache
    return run(workspace, wanted, host=around.host, cache=cache, as_json=arguments.json)


def _replay(arguments: argparse.Namespace) -> int:
    from cuda_tui.cli.replay import run

    return run(arguments.session, speed=arguments.speed, paused=arguments.paused)


def _sessions(arguments: argparse.Namespace) -> int:
    from cuda_tui.cli.sessions import run
    from cuda_tui.cli.surroundings import Folders

    return run(Folders.of_user(), as_json=arguments.json)


def _doctor(arguments: argparse.Namespace) -> int:
    from cuda_tui.cli.doctor import run

    settings = _around(arguments).settings
    return run(json=arguments.json, python=settings.python, device=settings.device)


if __name__ == "__main__":
    sys.exit(main())
