"""The plan of a build, made by the workspace's own `cuda_extension.py` in the user's interpreter.

The trusted copy from the template runs, not the one in the workspace: nothing in a workspace decides how it is built.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from cuda_tui import process
from cuda_tui.errors import InfrastructureError, UsageError
from cuda_tui.records import Record
from cuda_tui.workspace.data import data_folder

PLAN_TIMEOUT_S = 60.0


class PlannedObject(Record):
    """One source: where its object and its messages will be, and whether they are there already."""

    source: str
    object: str
    log: str
    command: tuple[str, ...]
    ready: bool
    cuda: bool = False
    note: str = ""


class Precompiled(Record):
    """The header that is compiled once for several sources."""

    object: str
    ready: bool


class PlannedLink(Record):
    """The step that makes the library."""

    command: tuple[str, ...]
    log: str
    ready: bool


class PlannedTools(Record):
    """Programs that the build uses; None where there is none."""

    cxx: str
    nvcc: str | None
    cuda_home: str | None
    ninja: str | None


class PlannedTorch(Record):
    """The torch that the extension is built for."""

    version: str
    cuda: str | None
    folder: str
    cxx11_abi: int


class Plan(Record):
    """What `cuda_extension.py plan --json` says. Paths are relative to the workspace unless they are absolute."""

    root: str
    build_dir: str
    torch: PlannedTorch
    tools: PlannedTools
    target: str
    objects: tuple[PlannedObject, ...]
    jobs: int
    library: str | None
    link: PlannedLink | None
    link_reason: str
    notes: tuple[str, ...] = ()
    precompiled: tuple[Precompiled, ...] = ()

    @property
    def is_ready(self) -> bool:
        """Nothing is left to compile or link."""
        return all(item.ready for item in self.objects) and (self.link is None or self.link.ready)


class _Refused(Record):
    error: str
    kind: str = "machine"


class SourcesRefused(UsageError):
    """The sources themselves do not allow a build: there are none, or they ask for what is not allowed."""


class BuildOptions(Record):
    """What the caller decides about a build; None leaves it to the plan."""

    device: str | None = None
    cxx: str | None = None
    nvcc: str | None = None
    cuda_home: str | None = None
    architectures: tuple[str, ...] = ()
    jobs: int | None = None
    build_dir: str | None = None  # absolute: out of the agent's reach, or shared by copies of one workspace


def make_plan(root: Path, *, python: str, env: Mapping[str, str], options: BuildOptions, write: bool) -> Plan:
    """Ask the template for the plan; with `write` also build.ninja and the generated sources are written.

    Raises UsageError with the plan's own words where tools or target do not allow a build, SourcesRefused where the
    sources do not.
    """
    script = data_folder("workspace_template") / "cuda_extension.py"
    argv = [python, str(script), "plan", "--json", "--root", str(root), *(["--write"] if write else [])]
    argv += _arguments(options)
    done = process.run(argv, cwd=root, env=env, timeout_s=PLAN_TIMEOUT_S)
    text = done.output.strip().rpartition("\n")[2]
    try:
        if done.returncode == 0:
            return msgspec.json.decode(text, type=Plan)
        refusal = msgspec.json.decode(text, type=_Refused)
    except msgspec.DecodeError:
        reason = done.output.strip() or f"exit code {done.returncode}"
        raise InfrastructureError(f"{python} could not plan the build: {reason}") from None
    raise (SourcesRefused if refusal.kind == "sources" else UsageError)(refusal.error)


def _arguments(options: BuildOptions) -> list[str]:
    named = {
        "--device": options.device,
        "--cxx": options.cxx,
        "--nvcc": options.nvcc,
        "--cuda-home": options.cuda_home,
        "--architectures": ",".join(options.architectures) or None,
        "--jobs": str(options.jobs) if options.jobs else None,
        "--build-dir": options.build_dir,
    }
    return [word for name, value in named.items() if value is not None for word in (name, value)]
