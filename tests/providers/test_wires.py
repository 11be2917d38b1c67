"""The three wire formats against a real local server, through the agent's own loop."""

from pathlib import Path
from typing import Any

import pytest

from cuda_tui.agent.asking import RetryRules
from cuda_tui.agent.clock import SystemClock
from cuda_tui.agent.protocols import Request
from cuda_tui.errors import ProviderError
from cuda_tui.events import (
    CallStreamed,
    Outcome,
    ReplyReceived,
    RetryScheduled,
    SessionEnded,
    StreamWithdrawn,
    TextStreamed,
    ToolFinished,
)
from cuda_tui.messages import AssistantReply, UserText
from tests.agent.helpers import RecordingTool, collect, make_loop, of
from tests.providers.conftest import WIRES, Server

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("wire", WIRES)]
REQUEST = Request(system="You are a test.", messages=(UserText(text="go"),), tools=(RecordingTool().spec,))


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "reply", "text": f"Now {name}.", "tool_calls": [{"name": name, "arguments": arguments}]}


async def test_three_step_tool_loop_streams_and_ends(server: Server, wire: Any, tmp_path: Path) -> None:
    server.script(
        call("echo", text="one"),
        call("echo", text="two"),
        call("echo", text="drei ü"),
        {"type": "reply", "text": "Bye."},
    )
    echo = RecordingTool()
    loop = make_loop(tmp_path, [], echo)
    loop.provider = server.provider(wire)
    events = await collect(loop)
    assert echo.ran == [{"text": "one"}, {"text": "two"}, {"text": "drei ü"}]
    assert isinstance(events[-1], SessionEnded)
    assert events[-1].outcome is Outcome.DONE
    assert "Bye." in "".join(event.text for event in of(events, TextStreamed))
    assert of(events, CallStreamed)
    assert all(event.reply.usage.output_tokens for event in of(events, ReplyReceived))
    assert server.get("/_llmock/verdict")["passed"]


async def test_rate_limit_is_waited_out_as_the_server_asked(server: Server, wire: Any, tmp_path: Path) -> None:
    server.script({"type": "fail", "status": 429, "retry_after": 0.3, "times": 2}, {"type": "reply", "text": "Bye."})
    loop = make_loop(tmp_path, [], RecordingTool(), clock=SystemClock())
    loop.provider = server.provider(wire)
    events = await collect(loop)
    assert [event.wait_s for event in of(events, RetryScheduled)] == [pytest.approx(0.3, abs=0.8)] * 2
    assert events[-1].outcome is Outcome.DONE  # type: ignore[union-attr]  # the last event ends the session
    assert not [finding for finding in server.get("/_llmock/verdict")["findings"] if finding["severity"] == "error"]


@pytest.mark.parametrize("kind", ["disconnect", "truncate", "malformed"])
async def test_broken_stream_is_withdrawn_and_tried_again(server: Server, wire: Any, tmp_path: Path, kind: str) -> None:
    server.script(
        {"type": "stream_fault", "kind": kind, "after_chunks": 4}, call("echo", text="a"), call("echo", text="b"),
        {"type": "reply", "text": "Bye."},
    )  # fmt: skip
    echo = RecordingTool()
    loop = make_loop(tmp_path, [], echo)
    loop.provider = server.provider(wire)
    events = await collect(loop)
    assert of(events, StreamWithdrawn)
    assert len(of(events, RetryScheduled)) == 1
    assert echo.ran == [{"text": "b"}]  # the broken reply used up the first call of the script
    assert events[-1].outcome is Outcome.DONE  # type: ignore[union-attr]  # as above
    assert server.get("/_llmock/verdict")["passed"]


async def test_malformed_arguments_are_answered_with_an_error_and_never_run(
    server: Server, wire: Any, tmp_path: Path
) -> None:
    server.script(
        {"type": "tool_fault", "kind": "malformed_arguments"}, call("echo", text="a"), {"type": "reply", "text": "Bye."}
    )
    echo = RecordingTool()
    loop = make_loop(tmp_path, [], echo)
    loop.provider = server.provider(wire)
    events = await collect(loop)
    finished = of(events, ToolFinished)
    assert "could not be read" in finished[0].result.content
    assert not echo.ran
    assert events[-1].outcome is Outcome.DONE  # type: ignore[union-attr]  # as above


@pytest.mark.parametrize(
    ("status", "retryable", "hint"),
    [(401, False, "LOCAL_KEY"), (402, False, "credit"), (403, False, "may not"), (404, False, "no model"),
     (408, True, ""), (500, True, ""), (503, True, ""), (529, True, "")],
)  # fmt: skip
async def test_status_says_whether_to_try_again_and_what_to_do(
    server: Server, wire: Any, status: int, retryable: bool, hint: str
) -> None:
    server.script({"type": "fail", "status": status})
    with pytest.raises(ProviderError) as caught:
        await read(server, wire)
    assert caught.value.retryable is retryable
    assert hint in caught.value.hint
    assert str(status) in caught.value.message
    assert "kkkk" not in str(caught.value)


async def read(server: Server, wire: Any) -> list[Any]:
    return [chunk async for chunk in server.provider(wire).stream(REQUEST)]


async def test_reply_comes_last_and_once(server: Server, wire: Any) -> None:
    server.script({"type": "reply", "text": "Hello there."})
    chunks = await read(server, wire)
    assert [isinstance(chunk, AssistantReply) for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1].text == "Hello there."


async def test_stall_ends_the_attempt(server: Server, wire: Any, tmp_path: Path) -> None:
    server.script(
        {"type": "stream_fault", "kind": "stall", "after_chunks": 2, "stall_seconds": 20},
        {"type": "reply", "text": "one two three four"},
    )
    loop = make_loop(tmp_path, [], RecordingTool(), retry=RetryRules(idle_s=0.5, attempts=2))
    loop.provider = server.provider(wire)
    events = await collect(loop)
    assert "nothing arrived" in of(events, RetryScheduled)[0].reason


async def test_nobody_listening_is_an_error_that_names_the_address(wire: Any) -> None:
    with pytest.raises(ProviderError, match="local:") as caught:
        await read(Server("http://127.0.0.1:9"), wire)
    assert caught.value.retryable
    assert "127.0.0.1:9" in caught.value.hint
