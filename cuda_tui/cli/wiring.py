"""From settings to a running session: the one place that knows providers, tools, workspace and evaluator."""

import asyncio
import shutil
import time
from pathlib import Path

import msgspec

from cuda_tui.agent.checkpoints import WorkspaceCheckpoints
from cuda_tui.agent.loop import AgentLoop
from cuda_tui.agent.prompt import system_prompt
from cuda_tui.agent.protocols import Budgets, Provider, Tool
from cuda_tui.agent.runner import Opening, SessionRunner
from cuda_tui.agent.skills import find_skills
from cuda_tui.cli import devices
from cuda_tui.cli.devices import Found
from cuda_tui.cli.models import provider_for
from cuda_tui.cli.sampling import machine_sampler
from cuda_tui.cli.surroundings import Surroundings
from cuda_tui.config import checked
from cuda_tui.errors import CudaTuiError, InfrastructureError, UsageError, WorkspaceError
from cuda_tui.evaluation.build.toolchain import find_cxx
from cuda_tui.evaluation.intake import Wanted, open_target
from cuda_tui.evaluation.pipeline import Evaluator
from cuda_tui.evaluation.runtime import Interpreter
from cuda_tui.events import Approval, ProblemMet, SessionResumed, SessionStarted, SettingsChanged
from cuda_tui.sandbox.rung import Rung, detect
from cuda_tui.session.listing import find_session
from cuda_tui.session.store import Session, new_session_id
from cuda_tui.tools.evaluation import (
    BuildTool,
    EvaluatorThread,
    MeasureTool,
    ProfileTool,
    SanitizeTool,
    SassTool,
    TraceTool,
    VerifyTool,
)
from cuda_tui.tools.files import EditTool, ListTool, ReadTool, SearchTool, WriteTool
from cuda_tui.tools.shell import ShellTool
from cuda_tui.tools.steering import FinishTool, NoteTool, RestoreTool
from cuda_tui.workspace.data import data_folder, version
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
        found = await asyncio.to_thread(_device_for, around)
        interpreter = _interpreter(around, rung)
        try:
            workspace = await asyncio.to_thread(_open_workspace, around, opening, interpreter, found)
            found = await asyncio.to_thread(_device_of, workspace, around, found)
        except BaseException:
            await asyncio.to_thread(interpreter.close)
            raise
        evaluator = EvaluatorThread(lambda: Evaluator(workspace, interpreter=interpreter))
        try:
            await asyncio.to_thread(_require_intact, workspace)
            await _examine(evaluator, found)
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
        for note in _device_notes(around, found):
            session.append(note)
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


def opening_text(task: Task) -> str:
    """What the session begins with."""
    source = f" (from {task.source})" if task.source else ""
    what = f"Make {task.class_name} in {task.file}{source} faster on {task.device}."
    return f"{what} Keep what measures faster, then finish."


def _interpreter(around: Surroundings, rung: Rung) -> Interpreter:
    return Interpreter.at(around.python, environment=around.worker_environment, rung=rung, cache=around.folders.cache)


def _device_for(around: Surroundings) -> Found:
    """The device of a new task: the one named or the default. Raises UsageError where it cannot be used."""
    found = devices.look(around.choice.device, around.host)
    devices.require_toolkit(found, around.host)
    return found


def _device_of(workspace: Workspace, around: Surroundings, found: Found) -> Found:
    """The device of the workspace, which may be an earlier one and for another device than a new task."""
    device = workspace.task.device
    return found if device == found.device else devices.look(device, around.host)


def _device_notes(around: Surroundings, found: Found) -> list[ProblemMet]:
    """What a person should know of the device before they read any figure."""
    notes = [ProblemMet(message=text) for text in found.notes]
    if found.device == "cpu" and around.choice.reason:
        notes.append(ProblemMet(message=around.choice.reason, hint=around.choice.hint))
    return notes


def _open_workspace(around: Surroundings, opening: Opening, interpreter: Interpreter, found: Found) -> Workspace:
    architectures = devices.targets(opening.architectures, found, around.worker_environment)
    workspace = open_target(
        opening.target,
        interpreter=interpreter,
        wanted=Wanted(inputs=opening.inputs, device=found.device, architectures=architectures),
        workspace=Path(opening.workspace).expanduser().absolute() if opening.workspace else None,
        workspaces=around.folders.workspaces,
    )
    return devices.on_device(workspace, opening.device)


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


async def _examine(evaluator: EvaluatorThread, found: Found) -> None:
    """A reference that cannot serve is said before anything else happens; then the baselines warm up."""
    if found.runs:
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
        sample=machine_sampler(workspace.task.device, around.worker_environment),
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
        SanitizeTool(evaluator),
        SassTool(evaluator),
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
