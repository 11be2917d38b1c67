"""From settings to a running session: the one place that knows providers, tools, workspace and evaluator."""

import asyncio
import importlib.metadata
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from cuda_tui.agent.checkpoints import WorkspaceCheckpoints
from cuda_tui.agent.loop import AgentLoop
from cuda_tui.agent.prompt import system_prompt
from cuda_tui.agent.protocols import Budgets, Provider, Tool
from cuda_tui.agent.runner import Opening, SessionRunner
from cuda_tui.agent.skills import find_skills
from cuda_tui.cli.models import provider_for
from cuda_tui.cli.surroundings import Surroundings
from cuda_tui.config import checked
from cuda_tui.errors import CudaTuiError, InfrastructureError, UsageError, WorkspaceError
from cuda_tui.evaluation.build.target import spelled
from cuda_tui.evaluation.build.toolchain import find_cxx
from cuda_tui.evaluation.intake import Wanted, open_target
from cuda_tui.evaluation.pipeline import Evaluator
from cuda_tui.evaluation.runtime import Interpreter
from cuda_tui.events import Approval, MachineSampled, ProblemMet, SessionResumed, SessionStarted, SettingsChanged
from cuda_tui.gpu import Machine, Nvml
from cuda_tui.sandbox.rung import Rung, detect
from cuda_tui.session.listing import find_session
from cuda_tui.session.store import Session, new_session_id
from cuda_tui.tools.evaluation import BuildTool, EvaluatorThread, MeasureTool, ProfileTool, TraceTool, VerifyTool
from cuda_tui.tools.files import EditTool, ListTool, ReadTool, SearchTool, WriteTool
from cuda_tui.tools.shell import ShellTool
from cuda_tui.tools.steering import FinishTool, NoteTool, RestoreTool
from cuda_tui.workspace.data import data_folder
from cuda_tui.workspace.task import Task
from cuda_tui.workspace.workspace import Workspace


class Wiring:
    """Opens and resumes sessions. `open` and `resume` are what the front ends call."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._around = surroundings

    # ---- sessions

    async def open(self, opening: Opening) -> SessionRunner:
        """A new session on what the person named. Raises UsageError, ReferenceFault and infrastructure errors."""
        around = self._with(opening)
        rung = await asyncio.to_thread(detect)
        approval = Approval(around.settings.approve)
        _check_auto(approval, rung)
        provider = provider_for(around, around.settings.model)
        _require_compiler(around)
        interpreter = _interpreter(around, rung)
        try:
            workspace = await asyncio.to_thread(_open_workspace, around, opening, interpreter)
        except BaseException:
            await asyncio.to_thread(interpreter.close)
            raise
        evaluator = EvaluatorThread(lambda: Evaluator(workspace, interpreter=interpreter))
        try:
            await asyncio.to_thread(_require_intact, workspace)
            await _examine(evaluator, workspace)
            session = Session.create(
                around.folders.sessions,
                SessionStarted(
                    session=new_session_id(time.time()),
                    title=workspace.task.name,
                    workspace=str(workspace.root),
                    device=workspace.task.device,
                    model=provider.name,
                    approval=approval,
                    version=version(),
                    source=workspace.task.source,
                    sandbox=rung.summary,
                ),
                mask=around.mask,
            )
        except BaseException:
            await asyncio.to_thread(evaluator.close)
            await asyncio.to_thread(_discard_made_for, opening, workspace)
            raise
        runner = _runner(
            around, session=session, workspace=workspace, evaluator=evaluator, provider=provider, rung=rung
        )
        runner.say(opening_text(workspace.task))
        return runner

    async def resume(self, name: str | None, opening: Opening | None = None) -> SessionRunner:
        """An old session, continued. What the settings do not say is as it was. Raises UsageError."""
        around = self._with(opening) if opening else self._around
        rung = await asyncio.to_thread(detect)
        session = Session.resume(find_session(around.folders.sessions, name), mask=around.mask)
        evaluator: EvaluatorThread | None = None
        try:
            started = _first(session)
            model, approval = _last_settings(session, started)
            if opening is not None and opening.model is not None:
                model = opening.model
            if opening is not None and opening.approval is not None:
                approval = opening.approval
            _check_auto(approval, rung)
            provider = provider_for(around, model)
            _require_compiler(around)
            workspace = await asyncio.to_thread(Workspace.open, Path(started.workspace))
            await asyncio.to_thread(_require_intact, workspace)
            interpreter = _interpreter(around, rung)
            evaluator = EvaluatorThread(lambda: Evaluator(workspace, interpreter=interpreter))
            dropped = len(session.log.problems)
            session.append(
                SessionResumed(model=provider.name, approval=approval, version=version(), dropped_lines=dropped)
            )
        except BaseException:
            session.close()
            if evaluator is not None:
                await asyncio.to_thread(evaluator.close)
            raise
        around = _approving(around, approval)
        return _runner(around, session=session, workspace=workspace, evaluator=evaluator, provider=provider, rung=rung)

    def _with(self, opening: Opening) -> Surroundings:
        """The surroundings with what the opening itself asks for."""
        asked = {
            "model": opening.model,
            "approve": opening.approval.value if opening.approval else None,
            "device": opening.device,
            "python": opening.python,
            "turns": opening.turns,
            "minutes": opening.minutes,
        }
        given = {name: value for name, value in asked.items() if value is not None}
        settings = checked(msgspec.structs.replace(self._around.settings, **given))
        return self._around.with_settings(settings)


def version() -> str:
    """Of the installed package."""
    return importlib.metadata.version("cuda-tui")


def opening_text(task: Task) -> str:
    """What the session begins with."""
    source = f" (from {task.source})" if task.source else ""
    what = f"Make {task.class_name} in {task.file}{source} faster on {task.device}."
    return f"{what} Keep what measures faster, then finish."


def _interpreter(around: Surroundings, rung: Rung) -> Interpreter:
    return Interpreter.at(around.python, environment=around.worker_environment, rung=rung, cache=around.folders.cache)


def _open_workspace(around: Surroundings, opening: Opening, interpreter: Interpreter) -> Workspace:
    return open_target(
        opening.target,
        interpreter=interpreter,
        wanted=Wanted(
            inputs=opening.inputs,
            device=around.device,
            architectures=_architectures(opening.architectures, around.device),
        ),
        workspace=Path(opening.workspace).expanduser().absolute() if opening.workspace else None,
        workspaces=around.folders.workspaces,
    )


def _require_compiler(around: Surroundings) -> None:
    """Without one nothing can be made faster, and it is better said before the model is loaded than after."""
    if find_cxx(around.worker_environment) is None:
        raise InfrastructureError(
            "There is no C++ compiler here (g++, c++ or clang++).",
            hint="Install one, as in apt install g++, or set CXX.",
        )


def _require_intact(workspace: Workspace) -> None:
    """Raises WorkspaceError where a protected file is not what it was: every candidate would be rejected."""
    problems = workspace.protected_problems()
    if problems:
        hint = f"Bring it back with `git -C {workspace.root} checkout FILE`, or start anew from the file you changed."
        raise WorkspaceError(f"{workspace.root}: {'; '.join(problems)}.", hint=hint)


def _discard_made_for(opening: Opening, workspace: Workspace) -> None:
    """Remove the workspace of a session that could not begin, unless it is the one that the person named."""
    if workspace.root.resolve() != Path(opening.target).expanduser().resolve():
        shutil.rmtree(workspace.root, ignore_errors=True)


def _architectures(named: str | None, device: str) -> tuple[str, ...]:
    """CUDA targets as the person named them. Raises UsageError where none is named and no device is there to tell."""
    if named:
        return spelled(named)
    if device.startswith("cuda") and not Nvml.open().count:
        raise UsageError(
            "There is no GPU here, and no CUDA target is named.",
            hint="Name what the code is for with --arch, as in --arch sm_90a: it is then compiled, and not run.",
        )
    return ()


async def _examine(evaluator: EvaluatorThread, workspace: Workspace) -> None:
    """A reference that cannot serve is said before anything else happens; then the baselines warm up."""
    if not workspace.task.device.startswith("cuda") or Nvml.open().count:
        await evaluator.call(lambda found: found.check_reference(), emit=lambda _: None, cancel=asyncio.Event())
        await evaluator.call(lambda found: found.warm_up(), emit=lambda _: None, cancel=asyncio.Event())


def _runner(
    around: Surroundings,
    *,
    session: Session,
    workspace: Workspace,
    evaluator: EvaluatorThread,
    provider: Provider,
    rung: Rung,
) -> SessionRunner:
    settings = around.settings
    folders = (data_folder("skills"), around.folders.config / "skills", workspace.root / "skills")
    skills, problems = find_skills(folders)
    for problem in problems:
        session.append(ProblemMet(message=f"a skill is left out: {problem}"))
    loop = AgentLoop(
        session=session,
        provider=provider,
        tools=tools_for(around, workspace, evaluator, rung),
        checkpoints=WorkspaceCheckpoints(workspace),
        system=system_prompt(workspace.task, skills=skills),
        approval=Approval(settings.approve),
        budgets=Budgets(
            turns=settings.turns,
            tokens=settings.tokens,
            wall_s=settings.minutes * 60 if settings.minutes is not None else None,
        ),
        mask=around.mask,
        sample=_sampler(workspace.task.device),
    )
    runner = SessionRunner(loop, provider=lambda name: provider_for(around, name), auto_refused=auto_refusal(rung))
    runner.on_close(evaluator.close)
    return runner


def tools_for(around: Surroundings, workspace: Workspace, evaluator: EvaluatorThread, rung: Rung) -> tuple[Tool, ...]:
    """Everything that the agent can do, always in the same order: the list is part of the cached prefix."""
    readable = [data_folder("skills"), around.folders.config / "skills"]
    if workspace.task.project_root:
        readable.append(Path(workspace.task.project_root))
    return (
        ReadTool(workspace=workspace, readable=tuple(readable)),
        ListTool(workspace=workspace),
        SearchTool(workspace=workspace),
        WriteTool(workspace=workspace),
        EditTool(workspace=workspace),
        ShellTool(workspace=workspace, rung=rung, python=around.python, env=around.worker_environment),
        TraceTool(evaluator),
        BuildTool(evaluator),
        VerifyTool(evaluator),
        MeasureTool(evaluator),
        ProfileTool(evaluator),
        NoteTool(workspace=workspace),
        RestoreTool(workspace=workspace),
        FinishTool(),
    )


def auto_refusal(rung: Rung) -> str:
    """Why nothing may run unasked on this machine; empty where it may."""
    if rung.name == "none" or rung.worker == "none":
        return f"there is no sandbox ({rung.summary})"
    return ""


def _check_auto(approval: Approval, rung: Rung) -> None:
    refusal = auto_refusal(rung)
    if approval is Approval.AUTO and refusal:
        raise UsageError(f"--approve auto is refused: {refusal}", hint="`cuda-tui doctor` says what would help")


def _sampler(device: str) -> Callable[[], MachineSampled]:
    index = int(device.partition(":")[2] or 0) if device.startswith("cuda") else None
    machine = Machine(gpu_index=index)

    def sample() -> MachineSampled:
        reading = machine.sample()
        gpu = reading.gpu
        return MachineSampled(
            cpu_load=reading.cpu_load,
            memory_used_bytes=reading.memory_used_bytes,
            gpu_utilisation=gpu.utilisation if gpu else None,
            gpu_memory_used_bytes=gpu.memory_used_bytes if gpu else None,
            gpu_clock_mhz=gpu.clock_mhz if gpu else None,
            gpu_power_w=gpu.power_w if gpu else None,
            gpu_temperature_c=gpu.temperature_c if gpu else None,
            throttle=gpu.throttle if gpu else None,
            gpu_name=gpu.name if gpu else None,
        )

    return sample


def _first(session: Session) -> SessionStarted:
    first = next((entry.event for entry in session.entries if isinstance(entry.event, SessionStarted)), None)
    if first is None:
        raise CudaTuiError(f"session {session.id} has lost its first event", hint="it can be replayed, not resumed")
    return first


def _last_settings(session: Session, started: SessionStarted) -> tuple[str, Approval]:
    model, approval = started.model, started.approval
    for entry in session.entries:
        if isinstance(entry.event, SessionResumed | SettingsChanged):
            model, approval = entry.event.model, entry.event.approval
    return model, approval


def _approving(around: Surroundings, approval: Approval) -> Surroundings:
    settings = msgspec.structs.replace(around.settings, approve=approval.value)
    return around.with_settings(settings)
