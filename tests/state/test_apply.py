"""State: what each event does to it."""

import time

import pytest

from cuda_tui.evaluation.report import Code
from cuda_tui.events import (
    AnyEvent,
    Approval,
    ApprovalAsked,
    ApprovalGiven,
    BudgetReached,
    CallStreamed,
    CandidateEvaluated,
    Decision,
    LineLogged,
    MachineSampled,
    Outcome,
    ProblemMet,
    ReplyReceived,
    Restored,
    RetryScheduled,
    SessionEnded,
    SessionResumed,
    SettingsChanged,
    SliceMeasured,
    StageEnded,
    StageStarted,
    StreamWithdrawn,
    TextStreamed,
    ThinkingStreamed,
    ToolFinished,
    ToolStarted,
    Unknown,
    UserSpoke,
)
from cuda_tui.messages import AssistantReply, Effect, ToolCall, ToolResult, Usage
from cuda_tui.state.apply import apply
from cuda_tui.state.model import (
    LOG_LINES,
    MACHINE_SAMPLES,
    NoticeBlock,
    ReplyBlock,
    State,
    ToolBlock,
    ToolStatus,
    UserBlock,
    VerdictBlock,
)
from tests import fixtures_session as fixtures


def after(*events: AnyEvent | Unknown, state: State | None = None) -> State:
    """The state after some events, one second apart."""
    state = state or State()
    for event in events:
        state = apply(state, event, at=state.now + 1.0)
    return state


def whole_session() -> State:
    """The state after the whole fixture."""
    state = State()
    for at, event in fixtures.session_events():
        state = apply(state, event, at=at)
    return state


def call(name: str = "build", identity: str = "c1") -> ToolCall:
    """A call."""
    return ToolCall(id=identity, name=name, arguments={"path": "kernels/a.cpp"})


def tool(state: State) -> ToolBlock:
    """The last tool block."""
    return next(block for block in reversed(state.blocks) if isinstance(block, ToolBlock))


def test_streamed_text_is_provisional_and_the_reply_supersedes_it() -> None:
    state = after(ThinkingStreamed(text="hm"), TextStreamed(text="I wi"), TextStreamed(text="ll"))
    assert (state.stream.thinking, state.stream.text, state.blocks) == ("hm", "I will", ())
    state = after(ReplyReceived(turn=1, reply=AssistantReply(text="I will")), state=state)
    assert state.stream.empty
    assert state.blocks == (ReplyBlock(turn=1, text="I will"),)


def test_withdrawn_stream_leaves_no_trace() -> None:
    before = after(UserSpoke(text="go"))
    state = after(
        TextStreamed(text="half"),
        CallStreamed(index=0, name="shell", fragment="{"),
        StreamWithdrawn(reason="reset"),
        state=before,
    )
    assert state.stream == before.stream
    assert state.blocks is before.blocks


def test_pieces_of_one_call_are_put_together_and_calls_kept_apart() -> None:
    state = after(
        CallStreamed(index=0, name="shell", fragment='{"com'),
        CallStreamed(index=0, name="", fragment='mand": "ls"}'),
        CallStreamed(index=1, name="build", fragment="{}"),
    )
    assert [(draft.name, draft.arguments) for draft in state.stream.calls] == [
        ("shell", '{"command": "ls"}'),
        ("build", "{}"),
    ]


def test_reply_without_text_adds_no_block_but_counts_its_tokens() -> None:
    usage = Usage(input_tokens=100, output_tokens=7, cache_read_tokens=40)
    state = after(ReplyReceived(turn=3, reply=AssistantReply(tool_calls=(call(),), usage=usage)))
    assert state.blocks == ()
    assert (state.tokens.input, state.tokens.output, state.tokens.cache_read) == (100, 7, 40)
    assert state.turn == 3


def test_tokens_stay_unknown_where_the_provider_does_not_count() -> None:
    assert not after(ReplyReceived(turn=1, reply=AssistantReply(text="x"))).tokens.known


def test_approved_call_goes_from_asked_to_done_in_one_block() -> None:
    asked = fixtures.asked(fixtures.write_call(1, "kernels/a.cpp", "x"), fixtures.KERNEL_DIFF)
    state = after(asked)
    assert state.pending == asked
    assert tool(state).status is ToolStatus.ASKED
    state = after(ApprovalGiven(call_id="call_1", decision=Decision.APPROVED), state=state)
    assert state.pending is None
    assert tool(state).status is ToolStatus.APPROVED
    state = after(ToolStarted(call=asked.call, effect=Effect.WRITE), state=state)
    assert state.running_tool is not None
    assert tool(state).started_at == state.now
    done = ToolFinished(call_id="call_1", name="write_file", result=ToolResult(content="ok"), seconds=0.5)
    state = after(done, state=state)
    assert len(state.blocks) == 1
    assert (tool(state).status, tool(state).seconds, tool(state).diff) == (ToolStatus.DONE, 0.5, fixtures.KERNEL_DIFF)


def test_rejected_call_keeps_the_reason_and_stays_rejected_after_its_result() -> None:
    asked = fixtures.shell_asked("rm -rf build")
    state = after(
        asked,
        ApprovalGiven(call_id="call_shell", decision=Decision.REJECTED, reason="keep it"),
        ToolFinished(call_id="call_shell", name="shell", result=ToolResult(content="rejected", is_error=True)),
    )
    assert tool(state).status is ToolStatus.REJECTED
    assert tool(state).reason == "keep it"


def test_edited_proposal_shows_the_arguments_that_ran() -> None:
    asked = fixtures.shell_asked("ls")
    state = after(asked, ApprovalGiven(call_id="call_shell", decision=Decision.APPROVED, edited={"command": "ls -l"}))
    assert tool(state).edited
    assert tool(state).call.arguments == {"command": "ls -l"}


def test_question_ends_with_its_call() -> None:
    asked = fixtures.shell_asked("ls")
    finished = ToolFinished(call_id="call_shell", name="shell", result=ToolResult(content="stopped", is_error=True))
    assert after(asked, finished).pending is None


def test_failed_call_is_marked() -> None:
    state = after(
        ToolStarted(call=call(), effect=Effect.READ),
        ToolFinished(call_id="c1", name="build", result=ToolResult(content="no", is_error=True)),
    )
    assert tool(state).status is ToolStatus.FAILED


def test_open_calls_are_interrupted_by_the_end_and_by_a_resume() -> None:
    begun = after(ToolStarted(call=call(), effect=Effect.READ), StageStarted(stage="build"))
    ended = after(SessionEnded(outcome=Outcome.CANCELLED, message="stopped"), state=begun)
    resumed = after(SessionResumed(model="m", approval=Approval.AUTO, version="1", dropped_lines=2), state=begun)
    for state in (ended, resumed):
        assert tool(state).status is ToolStatus.INTERRUPTED
        assert state.stages == ()
    assert resumed.ended is None
    assert isinstance(resumed.blocks[-1], NoticeBlock)
    assert "2 unreadable lines" in resumed.blocks[-1].text


def test_log_is_bounded_and_says_how_much_it_dropped() -> None:
    state = after(*(LineLogged(source="build", text=str(number)) for number in range(LOG_LINES + 20)))
    assert len(state.log) == LOG_LINES
    assert state.log_dropped == 20
    assert state.log[0].text == "20"


def test_machine_samples_are_bounded() -> None:
    state = after(*(MachineSampled(cpu_load=float(number)) for number in range(MACHINE_SAMPLES + 5)))
    assert len(state.machine) == MACHINE_SAMPLES
    assert state.machine[0].cpu_load == 5.0


def test_stage_runs_until_it_ends_and_the_latest_slice_of_each_side_counts() -> None:
    state = after(
        StageStarted(stage="build"),
        StageEnded(stage="build", seconds=2.0, summary="done"),
        StageStarted(stage="measure"),
        SliceMeasured(side="eager", process=1, processes=4, median_us=9.0),
        SliceMeasured(side="eager", process=2, processes=4, median_us=8.0),
    )
    assert state.running_stage is not None
    assert (state.running_stage.name, state.running_stage.started_at) == ("measure", 3.0)
    assert [(item.process, item.median_us) for item in state.slices] == [(2, 8.0)]
    assert state.stages[0].summary == "done"


def test_stage_that_was_never_announced_is_shown_as_ended() -> None:
    assert after(StageEnded(stage="policy", seconds=0.25)).stages[0].seconds == 0.25


def test_best_is_the_fastest_candidate_whose_interval_says_faster() -> None:
    state = whole_session()
    assert [item.number for item in state.candidates] == [1, 2, 3, 4, 5]
    assert state.best is not None
    assert state.best.number == 5
    slower = fixtures.passed_report(fixtures.measured(eager=9.0, compiled=0.9, median_us=10.0))
    vague = fixtures.passed_report(fixtures.measured(eager=9.0, compiled=3.0, median_us=10.0, width=0.9))
    for report in (slower, vague):
        assert after(CandidateEvaluated(number=1, report=report)).best is None


def test_rejected_candidate_stands_in_the_transcript_and_brings_its_build() -> None:
    state = after(CandidateEvaluated(number=1, report=fixtures.build_failure()))
    assert state.blocks == (VerdictBlock(number=1),)
    assert state.candidates[0].report.code is Code.BUILD
    assert state.build == fixtures.failed_build()
    assert state.builds == (fixtures.failed_build(),)


def test_later_profile_of_one_side_replaces_the_earlier() -> None:
    state = whole_session()
    assert {profile.subject for profile in state.profiles} == {"reference", "candidate"}


def test_retry_is_shown_until_the_next_text_arrives() -> None:
    state = after(RetryScheduled(reason="overloaded", attempt=1, wait_s=4.0))
    assert "attempt 2 in 4 s" in state.retry
    assert after(TextStreamed(text="a"), state=state).retry == ""


def test_unknown_event_is_shown_and_not_fatal() -> None:
    state = after(Unknown(kind="teleported", raw={"x": 1}))
    assert isinstance(state.blocks[0], NoticeBlock)
    assert "teleported" in state.blocks[0].text


def test_settings_restore_budget_and_problem_are_noticed() -> None:
    state = after(
        SettingsChanged(model="openai:x", approval=Approval.AUTO),
        Restored(to="aaaaaaaaaa", commit="bbbbbbbbbb", diff_from_start=""),
        BudgetReached(budget="tokens", used=80.0, limit=100.0, exhausted=False),
        ProblemMet(message="disk full", hint="free some"),
    )
    assert (state.model, state.approval, state.commit) == ("openai:x", Approval.AUTO, "bbbbbbbbbb")
    assert [block.kind for block in state.blocks if isinstance(block, NoticeBlock)] == [
        "settings",
        "restore",
        "budget",
        "problem",
    ]


def test_new_message_after_the_end_means_that_work_goes_on() -> None:
    state = after(SessionEnded(outcome=Outcome.DONE, message="done"), UserSpoke(text="more"))
    assert state.ended is None
    assert isinstance(state.blocks[-1], UserBlock)


def test_fields_keep_their_identity_while_nothing_in_them_changes() -> None:
    before = whole_session()
    after_text = apply(before, TextStreamed(text="x"), at=before.now)
    for name in ("blocks", "candidates", "log", "machine", "profiles", "builds", "stages"):
        assert getattr(after_text, name) is getattr(before, name)


def test_apply_leaves_the_earlier_state_alone() -> None:
    before = State()
    apply(before, UserSpoke(text="x"), at=1.0)
    assert before == State()


@pytest.mark.slow
def test_ten_thousand_events_cost_little() -> None:
    events: list[AnyEvent] = []
    for number in range(2_000):
        current = call(identity=f"c{number}")
        events.extend(
            [
                TextStreamed(text="word "),
                ReplyReceived(turn=number, reply=AssistantReply(text="word", tool_calls=(current,))),
                ToolStarted(call=current, effect=Effect.READ),
                LineLogged(source="build", text="line"),
                ToolFinished(call_id=current.id, name="build", result=ToolResult(content="ok")),
            ]
        )
    began = time.process_time()
    state = State()
    for event in events:
        state = apply(state, event)
    assert time.process_time() - began < 2.0  # seconds of processor time; about 0.5 where this was written
    assert state.events == 10_000


def test_pending_question_is_exactly_what_was_asked() -> None:
    asked: ApprovalAsked = fixtures.shell_asked("x" * 3000)
    pending = after(asked).pending
    assert pending is not None
    assert pending.command == "x" * 3000
