"""How talk, approvals and tool calls change the state."""

from msgspec.structs import replace

from cuda_tui.events import (
    ApprovalAsked,
    ApprovalGiven,
    CallStreamed,
    Decision,
    ReplyReceived,
    SessionResumed,
    StepCommitted,
    ToolFinished,
    ToolStarted,
)
from cuda_tui.messages import ToolCall, Usage
from cuda_tui.state.model import (
    Block,
    CallDraft,
    NoticeBlock,
    ReplyBlock,
    State,
    Stream,
    Tokens,
    ToolBlock,
    ToolStatus,
    UserBlock,
)

OPEN = frozenset({ToolStatus.ASKED, ToolStatus.APPROVED, ToolStatus.RUNNING})


def added(state: State, block: Block) -> State:
    """The state with one more block at the end of the transcript."""
    return replace(state, blocks=(*state.blocks, block))


def noticed(state: State, notice: NoticeBlock) -> State:
    """The state with a notice."""
    return added(state, notice)


def user_spoke(state: State, text: str) -> State:
    """The person spoke; a finished session is under way again."""
    return added(replace(state, ended=None), UserBlock(text=text))


def reply_received(state: State, event: ReplyReceived) -> State:
    """The reply supersedes what was streamed of it."""
    reply = event.reply
    state = replace(
        state, stream=Stream(), turn=event.turn, retry="", tokens=_counted(state.tokens, reply.usage), ended=None
    )
    if not (reply.text or reply.thinking):
        return state
    return added(state, ReplyBlock(turn=event.turn, text=reply.text, thinking=reply.thinking, seconds=event.seconds))


def _counted(tokens: Tokens, usage: Usage) -> Tokens:
    if usage.input_tokens is None and usage.output_tokens is None:
        return tokens
    return Tokens(
        input=tokens.input + (usage.input_tokens or 0),
        output=tokens.output + (usage.output_tokens or 0),
        cache_read=tokens.cache_read + (usage.cache_read_tokens or 0),
        known=True,
    )


def call_streamed(state: State, event: CallStreamed) -> State:
    """A piece of a call's arguments; pieces of one index belong together."""
    calls = state.stream.calls
    if calls and calls[-1].index == event.index:
        last = calls[-1]
        draft = replace(last, name=last.name or event.name, arguments=last.arguments + event.fragment)
        calls = (*calls[:-1], draft)
    else:
        calls = (*calls, CallDraft(index=event.index, name=event.name, arguments=event.fragment))
    return replace(state, stream=replace(state.stream, calls=calls), retry="")


def _position(state: State, call_id: str) -> int | None:
    for index in range(len(state.blocks) - 1, -1, -1):
        block = state.blocks[index]
        if isinstance(block, ToolBlock) and block.call.id == call_id:
            return index
    return None


def _put(state: State, index: int, block: Block) -> State:
    return replace(state, blocks=(*state.blocks[:index], block, *state.blocks[index + 1 :]))


def approval_asked(state: State, event: ApprovalAsked) -> State:
    """A call waits for the person."""
    block = ToolBlock(
        call=event.call,
        effect=event.effect,
        status=ToolStatus.ASKED,
        diff=event.diff,
        command=event.command,
        evidence=event.evidence,
    )
    state = replace(state, pending=event)
    index = _position(state, event.call.id)
    return added(state, block) if index is None else _put(state, index, block)


def approval_given(state: State, event: ApprovalGiven) -> State:
    """The person answered. A rejected call still ends with a result of its own."""
    state = replace(state, pending=None)
    index = _position(state, event.call_id)
    if index is None:
        return state
    block = state.blocks[index]
    assert isinstance(block, ToolBlock)
    rejected = event.decision is Decision.REJECTED
    call = block.call
    if event.edited is not None:
        call = ToolCall(id=call.id, name=call.name, arguments=dict(event.edited))
    block = replace(
        block,
        call=call,
        status=ToolStatus.REJECTED if rejected else ToolStatus.APPROVED,
        decision=event.decision,
        reason=event.reason,
        edited=event.edited is not None,
    )
    return _put(state, index, block)


def tool_started(state: State, event: ToolStarted) -> State:
    """A call runs; its evaluation's stages start afresh."""
    state = replace(state, stages=(), trials=(), slices=())
    index = _position(state, event.call.id)
    if index is None:
        block = ToolBlock(call=event.call, effect=event.effect, status=ToolStatus.RUNNING, started_at=state.now)
        return added(state, block)
    earlier = state.blocks[index]
    assert isinstance(earlier, ToolBlock)
    return _put(state, index, replace(earlier, call=event.call, status=ToolStatus.RUNNING, started_at=state.now))


def tool_finished(state: State, event: ToolFinished) -> State:
    """A call ended. Whatever it left open (a stage, a question) has ended with it."""
    stages = tuple(stage for stage in state.stages if stage.seconds is not None)
    state = replace(state, stages=stages)
    if state.pending is not None and state.pending.call.id == event.call_id:
        state = replace(state, pending=None)
    index = _position(state, event.call_id)
    if index is None:
        return state
    block = state.blocks[index]
    assert isinstance(block, ToolBlock)
    status = block.status
    if status is not ToolStatus.REJECTED:
        status = ToolStatus.FAILED if event.result.is_error else ToolStatus.DONE
    return _put(state, index, replace(block, status=status, result=event.result, seconds=event.seconds))


def interrupted(state: State) -> State:
    """Calls that are still open have been interrupted."""
    if not any(isinstance(block, ToolBlock) and block.status in OPEN for block in state.blocks):
        return replace(state, stages=())
    blocks = tuple(
        replace(block, status=ToolStatus.INTERRUPTED)
        if isinstance(block, ToolBlock) and block.status in OPEN
        else block
        for block in state.blocks
    )
    return replace(state, blocks=blocks, stages=(), pending=None)


def resumed(state: State, event: SessionResumed) -> State:
    """The session goes on in a new process."""
    state = interrupted(replace(state, model=event.model, approval=event.approval, ended=None, stream=Stream()))
    text = f"Resumed with {event.model}, approval {event.approval.value}"
    if event.dropped_lines:
        text += f"; {event.dropped_lines} unreadable lines of the log were skipped"
    return noticed(state, NoticeBlock(kind="session", text=text))


def step_committed(state: State, event: StepCommitted) -> State:
    """An accepted step became a commit."""
    state = replace(state, commit=event.commit, diff=event.diff_from_start or state.diff)
    return noticed(state, NoticeBlock(kind="commit", text=f"{event.commit[:8]} {event.message}"))
