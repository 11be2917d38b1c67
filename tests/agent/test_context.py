"""What the model sees of a session."""

from typing import Any

from cuda_tui.agent.context import messages_from, with_unique_ids
from cuda_tui.events import Approval, Durable, ReplyReceived, SettingsChanged, ToolFinished, UserSpoke
from cuda_tui.messages import AssistantReply, ToolCall, ToolReply, ToolResult, UserText
from tests.agent.helpers import started


def reply(*ids: str, **more: Any) -> ReplyReceived:
    calls = tuple(ToolCall(id=name, name="echo", arguments={}) for name in ids)
    return ReplyReceived(turn=1, reply=AssistantReply(tool_calls=calls, **more))


def finished(name: str, content: str) -> ToolFinished:
    return ToolFinished(call_id=name, name="echo", result=ToolResult(content=content))


def test_results_follow_their_reply_in_the_order_of_the_calls() -> None:
    events: list[Durable] = [
        UserSpoke(text="go"),
        reply("1", "2"),
        finished("2", "b"),
        UserSpoke(text="wait"),
        finished("1", "a"),
    ]
    _, _, first, second, last = messages_from(events, model="m")
    assert isinstance(first, ToolReply)
    assert isinstance(second, ToolReply)
    assert (first.result.content, second.result.content) == ("a", "b")
    assert last == UserText(text="wait")


def test_missing_result_reads_interrupted() -> None:
    events: list[Durable] = [UserSpoke(text="go"), reply("1", "2"), finished("1", "a"), reply("3")]
    messages = messages_from(events, model="m")
    contents = [message.result.content for message in messages if isinstance(message, ToolReply)]
    assert contents[0] == "a"
    assert all("interrupted, state unknown" in content for content in contents[1:])
    assert len(contents) == 3


def test_result_belongs_to_its_own_reply_where_ids_come_again() -> None:
    events: list[Durable] = [reply("1"), finished("1", "old"), reply("1"), finished("1", "new")]
    contents = [m.result.content for m in messages_from(events, model="m") if isinstance(m, ToolReply)]
    assert contents == ["old", "new"]


def test_opaque_blocks_go_back_only_to_the_model_that_sent_them() -> None:
    block = {"type": "thinking", "signature": "s"}
    events = [started(model="a:x"), reply("1", opaque=(block,)), finished("1", "r")]
    switched = [*events, SettingsChanged(model="b:y", approval=Approval.AUTO)]

    def blocks(history: Any, model: str) -> Any:
        return next(m.opaque for m in messages_from(history, model=model) if isinstance(m, AssistantReply))

    assert blocks(events, "a:x") == (block,)
    assert blocks(switched, "b:y") == ()
    assert blocks(switched, "a:x") == (block,)


def test_missing_and_doubled_ids_are_replaced() -> None:
    made = AssistantReply(tool_calls=tuple(ToolCall(id=i, name="echo", arguments={}) for i in ("", "x", "x", "y")))
    ids = [call.id for call in with_unique_ids(made, turn=4).tool_calls]
    assert ids == ["call_4_0", "x", "call_4_2", "y"]
    assert len(set(ids)) == 4
