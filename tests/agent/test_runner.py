"""What a front end may do with a session."""

from pathlib import Path
from typing import Any

import pytest

from cuda_tui.agent.protocols import Proposal
from cuda_tui.agent.runner import SessionRunner
from cuda_tui.errors import UsageError
from cuda_tui.events import Approval, ApprovalGiven, Decision, SessionEnded, SettingsChanged, ToolStarted, UserSpoke
from cuda_tui.messages import Effect
from cuda_tui.providers.scripted import ScriptedProvider, ScriptedReply
from tests.agent.helpers import ListApprover, RecordingTool, calls, make_loop, of, says


def make_runner(folder: Path, replies: list[ScriptedReply], *tools: Any, auto_refused: str = "", **options: Any) -> Any:
    loop = make_loop(folder, replies, *tools, **options)
    loop.control.queued.clear()
    return SessionRunner(
        loop, provider=lambda name: ScriptedProvider([says("switched")], name=name), auto_refused=auto_refused
    )


async def test_stretches_follow_each_other_in_one_log(tmp_path: Path) -> None:
    runner = make_runner(tmp_path, [says("one"), says("two")])
    for text in ("first", "second"):
        runner.say(text)
        events = [event async for event in runner.run()]
        assert isinstance(events[-1], SessionEnded)
    await runner.close()
    spoken = [entry.event.text for entry in runner.entries if isinstance(entry.event, UserSpoke)]
    assert spoken == ["first", "second"]
    assert runner.exit_code == 0
    assert not runner.running


async def test_text_said_at_the_very_end_begins_another_stretch(tmp_path: Path) -> None:
    runner = make_runner(tmp_path, [says("one"), says("two")])
    runner.say("first")
    events = []
    async for event in runner.run():
        events.append(event)
        if isinstance(event, SessionEnded) and len(of(events, SessionEnded)) == 1:
            runner.say("one more thing")
    assert len(of(events, SessionEnded)) == 2
    await runner.close()


async def test_model_switched_in_mid_session_answers_from_then_on(tmp_path: Path) -> None:
    runner = make_runner(tmp_path, [])
    assert runner.switch(model="other:m") == SettingsChanged(model="other:m", approval=Approval.AUTO)
    runner.say("go")
    events = [event async for event in runner.run()]
    assert events[-1].message == "switched"
    await runner.close()


async def test_auto_mode_is_refused_where_there_is_no_sandbox(tmp_path: Path) -> None:
    runner = make_runner(tmp_path, [], auto_refused="there is no sandbox", approval=Approval.STEP)
    with pytest.raises(UsageError, match="no sandbox"):
        runner.switch(approval=Approval.AUTO)
    await runner.close()


async def test_rule_is_listed_and_can_be_taken_back(tmp_path: Path) -> None:
    write = RecordingTool(
        name="write", effect=Effect.WRITE, proposal=lambda arguments: Proposal(grants=("every edit",))
    )
    script = [calls(("write", {"text": text})) for text in "abc"]
    runner = make_runner(tmp_path, [*script, says("ok")], write, approval=Approval.STEP)
    approver = ListApprover([lambda a: ApprovalGiven(call_id=a.call.id, decision=Decision.APPROVED_ALL)] * 2)
    runner.approver = approver
    runner.say("go")
    async for event in runner.run():
        if isinstance(event, ToolStarted) and event.call.arguments == {"text": "b"}:
            assert runner.rules == ("every edit",)
            runner.forget_rule("every edit")
    assert [asked.call.arguments["text"] for asked in approver.asked] == ["a", "c"]
    await runner.close()


async def test_reader_that_goes_away_cancels_the_step(tmp_path: Path) -> None:
    runner = make_runner(tmp_path, [calls(("echo", {"text": "a"})), says("never")], RecordingTool())
    runner.say("go")
    events = runner.run()
    async for event in events:
        if isinstance(event, ToolStarted):
            break
    await events.aclose()
    assert not runner.running
    assert isinstance(runner.entries[-1].event, SessionEnded)
    await runner.close()


async def test_closing_ends_everything_in_reverse_order(tmp_path: Path) -> None:
    runner = make_runner(tmp_path, [])
    closed: list[str] = []
    runner.on_close(lambda: closed.append("workers"))
    runner.on_close(lambda: closed.append("watcher"))
    await runner.close()
    await runner.close()
    assert closed == ["watcher", "workers"]
