"""The turn loop, with a scripted model and no real time."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from cuda_tui.agent.clock import FakeClock, SystemClock
from cuda_tui.agent.loop import step_message
from cuda_tui.agent.protocols import FINISH, Budgets, Proposal
from cuda_tui.evaluation.report import Code, Measured, NotMeasured, Ratio, Report, Timing, Verdict
from cuda_tui.events import (
    Approval,
    ApprovalAsked,
    ApprovalGiven,
    BudgetReached,
    CandidateEvaluated,
    Decision,
    Outcome,
    ProblemMet,
    ReplyReceived,
    Restored,
    RetryScheduled,
    SessionEnded,
    StepCommitted,
    StreamWithdrawn,
    TextStreamed,
    ToolFinished,
    ToolStarted,
    UserSpoke,
)
from cuda_tui.messages import AssistantReply, Effect, ReportDetails, StopReason, ToolCall, ToolReply, ToolResult, Usage
from cuda_tui.providers.scripted import ScriptedReply
from cuda_tui.session.log import read_log
from cuda_tui.session.store import Session
from tests.agent.helpers import (
    HangingTool,
    ListApprover,
    MemoryCheckpoints,
    PickyProvider,
    RecordingTool,
    calls,
    collect,
    details_of,
    make_loop,
    of,
    refuse,
    says,
)


def timing(name: str, us: float) -> Timing:
    return Timing(name=name, process_medians_us=(us,), calls=1, slices=1)


def report(ratio: float | None) -> Report:
    """PASSED and `ratio` times faster than eager; None is rejected."""
    if ratio is None:
        return Report(
            verdict=Verdict.REJECTED, code=Code.BUILD, message="no", performance=NotMeasured(reason="not built")
        )
    measured = Measured(
        candidate=timing("candidate", 100 / ratio),
        baselines=(timing("eager", 100),),
        ratios=(Ratio(baseline="eager", value=ratio, low=ratio - 0.02, high=ratio + 0.02),),
        method="",
        device="",
    )
    return Report(verdict=Verdict.PASSED, message="ok", performance=measured)


def ended(events: list[Any]) -> SessionEnded:
    assert isinstance(events[-1], SessionEnded)
    return events[-1]


def results(events: list[Any]) -> list[str]:
    return [event.result.content for event in of(events, ToolFinished)]


async def test_loop_runs_calls_until_the_model_has_nothing_more_to_do(tmp_path: Path) -> None:
    echo = RecordingTool()
    loop = make_loop(
        tmp_path, [calls(("echo", {"text": "a"})), calls(("echo", {"text": "b"})), says("All done.")], echo
    )
    events = await collect(loop)
    assert echo.ran == [{"text": "a"}, {"text": "b"}]
    assert ended(events).outcome is Outcome.DONE
    assert ended(events).message == "All done."
    assert "".join(event.text for event in of(events, TextStreamed)) == "All done."


async def test_durable_events_are_in_the_log_when_they_are_seen(tmp_path: Path) -> None:
    loop = make_loop(tmp_path, [calls(("echo", {"text": "a"})), says("ok")], RecordingTool())
    async for event in loop.run():
        if isinstance(event, ToolFinished | ReplyReceived | SessionEnded):
            assert event in [entry.event for entry in read_log(loop.session.path).entries]


async def test_results_reach_the_model_paired_and_in_order(tmp_path: Path) -> None:
    loop = make_loop(tmp_path, [calls(("echo", {"text": "a"}), ("echo", {"text": "b"})), says("ok")], RecordingTool())
    await collect(loop)
    assert isinstance(loop.provider, PickyProvider)
    replies = [message for message in loop.provider.requests[-1].messages if isinstance(message, ToolReply)]
    assert [reply.result.content for reply in replies] == ["ran a", "ran b"]


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (ToolCall(id="1", name="fly", arguments={}), "there is no tool 'fly'"),
        (ToolCall(id="1", name="echo", arguments={}), "'text' is missing"),
        (ToolCall(id="1", name="echo", arguments={"text": 3}), "expected string, got int"),
        (ToolCall(id="1", name="echo", arguments={"text": "a", "loud": True}), "there is no 'loud'"),
        (ToolCall(id="1", name="echo", arguments={}, problem="Expecting ','"), "could not be read"),
    ],
)
async def test_call_that_cannot_run_is_answered_with_what_is_wrong(
    tmp_path: Path, call: ToolCall, complaint: str
) -> None:
    echo = RecordingTool()
    loop = make_loop(tmp_path, [ScriptedReply(tool_calls=(call,)), says("ok")], echo)
    events = await collect(loop)
    (finished,) = of(events, ToolFinished)
    assert complaint in finished.result.content
    assert finished.result.is_error
    assert not echo.ran
    assert ended(events).outcome is Outcome.DONE


async def test_arguments_that_cannot_work_are_an_error_for_the_model(tmp_path: Path) -> None:
    loop = make_loop(tmp_path, [calls(("echo", {"text": "a"})), says("ok")], RecordingTool(proposal=refuse))
    events = await collect(loop)
    assert results(events) == ["there is no such file\nlist the files"]


async def test_fault_of_a_tool_is_told_and_does_not_end_the_session(tmp_path: Path) -> None:
    def fail(arguments: dict[str, Any]) -> ToolResult:
        raise ZeroDivisionError("ours")

    loop = make_loop(tmp_path, [calls(("echo", {"text": "a"})), says("ok")], RecordingTool(answer=fail))
    events = await collect(loop)
    assert "ZeroDivisionError" in of(events, ProblemMet)[0].message
    assert "says nothing about your code" in results(events)[0]
    assert ended(events).outcome is Outcome.DONE


async def test_rejected_call_does_not_run_and_its_reason_reaches_the_model(tmp_path: Path) -> None:
    write = RecordingTool(name="write", effect=Effect.WRITE)
    loop = make_loop(tmp_path, [calls(("write", {"text": "a"})), says("ok")], write, approval=Approval.STEP)
    loop.approver = ListApprover(
        [lambda a: ApprovalGiven(call_id=a.call.id, decision=Decision.REJECTED, reason="too wide")]
    )
    events = await collect(loop)
    assert not write.ran
    assert "too wide" in results(events)[0]
    assert not of(events, ToolStarted)


async def test_edited_arguments_are_what_runs_and_the_model_is_told(tmp_path: Path) -> None:
    write = RecordingTool(name="write", effect=Effect.WRITE)
    loop = make_loop(tmp_path, [calls(("write", {"text": "a"})), says("ok")], write, approval=Approval.STEP)
    loop.approver = ListApprover(
        [lambda a: ApprovalGiven(call_id=a.call.id, decision=Decision.APPROVED, edited={"text": "b"})]
    )
    events = await collect(loop)
    assert write.ran == [{"text": "b"}]
    assert of(events, ToolStarted)[0].call.arguments == {"text": "b"}
    assert "edited the arguments" in results(events)[0]


async def test_approve_all_covers_what_was_granted_and_nothing_else(tmp_path: Path) -> None:
    shell = RecordingTool(
        name="shell",
        effect=Effect.EXECUTE,
        proposal=lambda arguments: Proposal(command=arguments["text"], grants=tuple(arguments["text"].split(" && "))),
    )
    script = [calls(("shell", {"text": text})) for text in ("a && b", "b", "a && c")]
    loop = make_loop(tmp_path, [*script, says("ok")], shell, approval=Approval.EDITS)
    approver = ListApprover(
        [
            lambda a: ApprovalGiven(call_id=a.call.id, decision=Decision.APPROVED_ALL),
            lambda a: ApprovalGiven(call_id=a.call.id, decision=Decision.REJECTED),
        ]
    )
    loop.approver = approver
    await collect(loop)
    assert [asked.command for asked in approver.asked] == ["a && b", "a && c"]
    assert loop.policy.rules == ("a", "b")
    assert len(shell.ran) == 2


async def test_file_changed_between_preview_and_yes_voids_the_yes(tmp_path: Path) -> None:
    diffs = ["diff 1", "diff 2", "diff 2"]
    write = RecordingTool(name="write", effect=Effect.WRITE, proposal=lambda arguments: Proposal(diff=diffs.pop(0)))
    loop = make_loop(tmp_path, [calls(("write", {"text": "a"})), says("ok")], write, approval=Approval.STEP)
    approver = ListApprover([lambda a: ApprovalGiven(call_id=a.call.id, decision=Decision.APPROVED)] * 2)
    loop.approver = approver
    await collect(loop)
    assert [asked.diff for asked in approver.asked] == ["diff 1", "diff 2"]
    assert len(write.ran) == 1


async def test_nobody_there_means_nothing_that_needs_a_yes_runs(tmp_path: Path) -> None:
    write = RecordingTool(name="write", effect=Effect.WRITE)
    loop = make_loop(tmp_path, [calls(("write", {"text": "a"})), says("ok")], write, approval=Approval.STEP)
    await collect(loop)
    assert not write.ran


async def test_retryable_failure_is_retried_in_the_open(tmp_path: Path) -> None:
    clock = FakeClock()
    failed = ScriptedReply(text="half an ans", error="overloaded", retryable=True, retry_after_s=7)
    loop = make_loop(tmp_path, [failed, says("ok")], clock=clock)
    events = await collect(loop)
    assert [event.wait_s for event in of(events, RetryScheduled)] == [7]
    assert 7 in clock.waits
    assert of(events, StreamWithdrawn)
    assert [event.reply.text for event in of(events, ReplyReceived)] == ["ok"]


async def test_retries_are_capped_and_grow(tmp_path: Path) -> None:
    failed = ScriptedReply(error="overloaded", retryable=True)
    loop = make_loop(tmp_path, [failed] * 20)
    events = await collect(loop)
    waits = [event.wait_s for event in of(events, RetryScheduled)]
    assert len(waits) == loop.retry.attempts - 1
    assert waits[-1] > waits[0]
    assert ended(events).outcome is Outcome.FAILED


async def test_refused_key_is_not_retried(tmp_path: Path) -> None:
    loop = make_loop(tmp_path, [ScriptedReply(error="401: bad key"), says("never")])
    events = await collect(loop)
    assert not of(events, RetryScheduled)
    assert "401" in ended(events).message


async def test_retry_after_beyond_the_limit_is_not_waited_for(tmp_path: Path) -> None:
    loop = make_loop(tmp_path, [ScriptedReply(error="429", retryable=True, retry_after_s=3600), says("never")])
    events = await collect(loop)
    assert not of(events, RetryScheduled)


async def test_empty_reply_is_a_failed_attempt(tmp_path: Path) -> None:
    loop = make_loop(tmp_path, [ScriptedReply(), says("ok")])
    events = await collect(loop)
    assert len(of(events, RetryScheduled)) == 1
    assert ended(events).outcome is Outcome.DONE


async def test_reply_cut_off_inside_a_call_is_discarded_and_asked_again_with_more_room(tmp_path: Path) -> None:
    echo = RecordingTool()
    cut = ScriptedReply(
        tool_calls=(ToolCall(id="1", name="echo", arguments={"text": "ha"}),), stop=StopReason.MAX_TOKENS
    )
    loop = make_loop(tmp_path, [cut, says("ok")], echo)
    events = await collect(loop)
    assert not echo.ran
    assert isinstance(loop.provider, PickyProvider)
    first, second = (request.max_tokens for request in loop.provider.requests)
    assert second == 2 * first
    assert ended(events).outcome is Outcome.DONE


async def test_refusal_ends_the_session_as_failed(tmp_path: Path) -> None:
    loop = make_loop(tmp_path, [ScriptedReply(text="I can't.", stop=StopReason.REFUSED)])
    assert ended(await collect(loop)).outcome is Outcome.FAILED


async def test_budget_warns_at_80_percent_and_stops_at_all(tmp_path: Path) -> None:
    script = [calls(("echo", {"text": str(number)})) for number in range(9)]
    loop = make_loop(tmp_path, script, RecordingTool(), budgets=Budgets(turns=5))
    events = await collect(loop)
    assert [(event.used, event.exhausted) for event in of(events, BudgetReached)] == [(4, False), (5, True)]
    assert ended(events).outcome is Outcome.BUDGET
    assert len(of(events, ReplyReceived)) == 5


async def test_tokens_count_towards_their_budget(tmp_path: Path) -> None:
    reply = calls(("echo", {"text": "a"}))
    heavy = ScriptedReply(tool_calls=reply.tool_calls, usage=Usage(input_tokens=90, output_tokens=20))
    loop = make_loop(tmp_path, [heavy, says("never")], RecordingTool(), budgets=Budgets(tokens=100))
    assert ended(await collect(loop)).outcome is Outcome.BUDGET


@pytest.mark.slow
async def test_cancel_closes_the_open_call_within_two_seconds(tmp_path: Path) -> None:
    hanging = HangingTool(name="hang")
    loop = make_loop(tmp_path, [calls(("hang", {"text": "a"}), ("hang", {"text": "b"}))], hanging, clock=SystemClock())
    seen: list[Any] = []
    begun = 0.0
    async for event in loop.run():
        seen.append(event)
        if isinstance(event, ToolStarted):
            await hanging.begun.wait()
            begun = time.monotonic()
            loop.control.cancel.set()
    assert time.monotonic() - begun < 2.0
    assert ended(seen).outcome is Outcome.CANCELLED
    assert len(of(seen, ToolFinished)) == 2
    assert all(event.result.is_error for event in of(seen, ToolFinished))


@pytest.mark.slow
async def test_after_a_cancel_the_next_request_has_no_unpaired_call(tmp_path: Path) -> None:
    hanging = HangingTool(name="hang")
    loop = make_loop(tmp_path, [calls(("hang", {"text": "a"})), says("ok")], hanging)
    async for event in loop.run():
        if isinstance(event, ToolStarted):
            loop.control.cancel.set()
    loop.control.queued.append("continue")
    assert ended(await collect(loop)).outcome is Outcome.DONE


async def test_cancel_while_waiting_for_a_yes_ends_the_stretch(tmp_path: Path) -> None:
    class Silent:
        async def decide(self, asked: ApprovalAsked) -> ApprovalGiven:
            await asyncio.Event().wait()
            raise AssertionError("unreachable")

    write = RecordingTool(name="write", effect=Effect.WRITE)
    loop = make_loop(tmp_path, [calls(("write", {"text": "a"}))], write, approval=Approval.STEP, approver=Silent())
    events = []
    async for event in loop.run():
        events.append(event)
        if isinstance(event, ApprovalAsked):
            loop.control.cancel.set()
    assert ended(events).outcome is Outcome.CANCELLED
    (finished,) = of(events, ToolFinished)
    assert "nothing happened" in finished.result.content


async def test_session_killed_with_an_open_call_resumes_without_an_unpaired_call(tmp_path: Path) -> None:
    loop = make_loop(tmp_path, [], RecordingTool())
    call = ToolCall(id="c1", name="echo", arguments={"text": "a"})
    loop.session.append(UserSpoke(text="go"))
    loop.session.append(ReplyReceived(turn=1, reply=AssistantReply(tool_calls=(call,), stop=StopReason.TOOL_CALLS)))
    loop.session.append(ToolStarted(call=call, effect=Effect.READ))
    path = loop.session.path
    loop.session.close()  # the log of a killed process: the call was never finished

    with Session.resume(path) as session:
        loop.session = session
        loop.provider = PickyProvider([says("ok")])
        loop.control.queued[:] = ["continue"]
        events = await collect(loop)
    assert ended(events).outcome is Outcome.DONE
    replies = [message for message in loop.provider.requests[0].messages if isinstance(message, ToolReply)]
    assert "interrupted, state unknown" in replies[0].result.content


async def test_same_call_over_and_over_is_told_then_stopped_in_auto_mode(tmp_path: Path) -> None:
    echo = RecordingTool()
    loop = make_loop(tmp_path, [calls(("echo", {"text": "a"}))] * 9, echo)
    events = await collect(loop)
    assert len(echo.ran) == 4
    assert "3 times running" in results(events)[2]
    assert "5 times running" in results(events)[4]
    assert ended(events).outcome is Outcome.FAILED


async def test_same_call_three_times_running_asks_the_person(tmp_path: Path) -> None:
    loop = make_loop(
        tmp_path, [calls(("echo", {"text": "a"}))] * 3 + [says("ok")], RecordingTool(), approval=Approval.STEP
    )
    approver = ListApprover([lambda a: ApprovalGiven(call_id=a.call.id, decision=Decision.APPROVED)])
    loop.approver = approver
    await collect(loop)
    assert len(approver.asked) == 1
    assert "3 times running" in approver.asked[0].evidence


async def test_step_that_changed_files_is_one_commit(tmp_path: Path) -> None:
    checkpoints = MemoryCheckpoints()

    def change(arguments: dict[str, Any]) -> ToolResult:
        checkpoints.dirty = True
        return ToolResult(content="written")

    write = RecordingTool(name="write", effect=Effect.WRITE, answer=change)
    step = calls(("write", {"text": "a"}), ("write", {"text": "b"}), text="Fuse the norm.\nMore words.")
    loop = make_loop(tmp_path, [step, says("ok")], write, checkpoints=checkpoints)
    events = await collect(loop)
    assert [event.message for event in of(events, StepCommitted)] == ["Fuse the norm."]


def test_commit_message_has_a_short_subject_and_the_whole_text() -> None:
    long = "Fuse " + "the norm with its neighbours " * 6
    subject, blank, *body = step_message(AssistantReply(text=long)).split("\n")
    assert len(subject) <= 72
    assert blank == ""
    assert " ".join(body).split() == long.split()
    call = ToolCall(id="1", name="write", arguments={"path": "kernels/a.cpp"})
    assert step_message(AssistantReply(tool_calls=(call,))) == "Change kernels/a.cpp"


async def test_end_names_the_best_candidate_and_brings_its_files_back(tmp_path: Path) -> None:
    checkpoints = MemoryCheckpoints()
    ratios = [1.2, 1.5, None]

    def measure(arguments: dict[str, Any]) -> ToolResult:
        return ToolResult(content="measured", details=ReportDetails(report=report(ratios.pop(0))))

    def change(arguments: dict[str, Any]) -> ToolResult:
        checkpoints.dirty = True
        return ToolResult(content="written")

    write = RecordingTool(name="write", effect=Effect.WRITE, answer=change)
    tool = RecordingTool(name="measure", answer=measure)
    script = [calls(("write", {"text": str(n)}), ("measure", {"text": str(n)})) for n in range(3)]
    loop = make_loop(
        tmp_path, [*script, calls((FINISH, {"text": "x"}))], write, tool, _finish(), checkpoints=checkpoints
    )
    events = await collect(loop)
    assert [(event.number, event.commit) for event in of(events, CandidateEvaluated)] == [
        (1, "c1"),
        (2, "c2"),
        (3, "c3"),
    ]
    assert (ended(events).best_candidate, ended(events).best_commit) == (2, "c2")
    assert [event.to for event in of(events, Restored)] == ["c2"]


def _finish() -> RecordingTool:
    return RecordingTool(name=FINISH)


async def test_inconclusive_candidate_is_never_the_best(tmp_path: Path) -> None:
    tool = RecordingTool(name="measure", answer=details_of(ReportDetails(report=report(1.005))))
    loop = make_loop(tmp_path, [calls(("measure", {"text": "x"})), says("ok")], tool)
    assert ended(await collect(loop)).best_candidate is None


async def test_text_typed_meanwhile_is_sent_before_the_next_request(tmp_path: Path) -> None:
    loop = make_loop(tmp_path, [calls(("echo", {"text": "a"})), says("ok"), says("more")], RecordingTool())
    async for event in loop.run():
        if isinstance(event, ToolStarted):
            loop.control.queued.append("prefer fp16")
    assert isinstance(loop.provider, PickyProvider)
    assert loop.provider.requests[1].messages[-1].text == "prefer fp16"  # type: ignore[union-attr]  # that is the test


async def test_secrets_are_masked_in_streamed_and_stored_events(tmp_path: Path) -> None:
    loop = make_loop(tmp_path, [says("the key is canary-123")], mask=lambda text: text.replace("canary-123", "***"))
    events = await collect(loop)
    assert "canary-123" not in "".join(event.text for event in of(events, TextStreamed))
