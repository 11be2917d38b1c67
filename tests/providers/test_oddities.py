"""What real servers send that their documentation does not mention."""

from typing import Any, Literal

import pytest

from cuda_tui.agent.protocols import Request
from cuda_tui.errors import ProviderError
from cuda_tui.messages import AssistantReply, Message, StopReason, ToolCall, ToolReply, ToolResult, UserText
from cuda_tui.providers.factory import make_provider
from cuda_tui.providers.wire import Endpoint, parse_arguments, retry_after, safe_id
from tests.agent.helpers import RecordingTool
from tests.providers.canned import Canned, chat, delta, events, refusal, serving

pytestmark = pytest.mark.slow
HISTORY: tuple[Message, ...] = (UserText(text="go"),)


async def ask(
    canned: Canned, wire: Literal["messages", "responses", "chat"], messages: tuple[Message, ...] = HISTORY
) -> AssistantReply:
    provider = make_provider(Endpoint(provider="p", model="m", base_url=canned.url), wire=wire)
    request = Request(system="s", messages=messages, tools=(RecordingTool().spec,))
    return [chunk async for chunk in provider.stream(request)][-1]  # type: ignore[return-value]  # a reply comes last


def part(name: str = "", arguments: str = "", identity: str | None = None, index: int = 0) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments} if name else {"arguments": arguments}
    return {"index": index, "function": function} | ({"id": identity, "type": "function"} if identity else {})


# ---- chat


async def test_parallel_calls_that_all_have_index_zero_are_told_apart_by_id() -> None:
    first, second = part("echo", '{"text":"a"}', "1"), part("echo", '{"text":"b"}', "2")
    with serving(chat(delta(tool_calls=[first]), delta(tool_calls=[second]), delta("tool_calls"))) as canned:
        reply = await ask(canned, "chat")
    assert [(call.id, call.arguments) for call in reply.tool_calls] == [("1", {"text": "a"}), ("2", {"text": "b"})]


async def test_parallel_calls_without_ids_are_told_apart_by_name() -> None:
    first, more, second = part("echo", '{"te'), part("", 'xt":"a"}'), part("echo", '{"text":"b"}')
    chunks = [delta(tool_calls=[piece]) for piece in (first, more, second)]
    with serving(chat(*chunks, delta("tool_calls"))) as canned:
        reply = await ask(canned, "chat")
    assert [call.arguments for call in reply.tool_calls] == [{"text": "a"}, {"text": "b"}]


async def test_usage_may_come_with_empty_choices_or_not_at_all() -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}}
    with serving(chat(delta(content="a"), delta("stop"), usage), chat(delta(content="a"), delta("stop"))) as canned:
        with_usage, without = await ask(canned, "chat"), await ask(canned, "chat")
    assert (with_usage.usage.input_tokens, with_usage.usage.output_tokens) == (9, 2)
    assert without.usage.input_tokens is None


@pytest.mark.parametrize(
    ("finish", "pieces", "stop"),
    [
        ("stop", {"tool_calls": [part("echo", "{}", "1")]}, StopReason.TOOL_CALLS),
        ("tool_calls", {"content": "just text"}, StopReason.END),
        ("length", {"content": "cut"}, StopReason.MAX_TOKENS),
        ("content_filter", {"content": "no"}, StopReason.REFUSED),
    ],
)
async def test_finish_reason_that_contradicts_the_calls_is_corrected(
    finish: str, pieces: dict[str, Any], stop: StopReason
) -> None:
    with serving(chat(delta(**pieces), delta(finish))) as canned:
        assert (await ask(canned, "chat")).stop is stop


async def test_line_separators_inside_a_chunk_do_not_cut_it() -> None:
    with serving(chat(delta(content="a\u2028b\u2029c\x85d"), delta("stop"))) as canned:
        assert (await ask(canned, "chat")).text == "a\u2028b\u2029c\x85d"


async def test_stream_without_a_finish_reason_is_a_failed_attempt() -> None:
    with serving(chat(delta(content="half"))) as canned, pytest.raises(ProviderError, match="ended early") as caught:
        await ask(canned, "chat")
    assert caught.value.retryable


async def test_error_inside_the_stream_is_a_failed_attempt() -> None:
    broken = chat(delta(content="a"), {"error": {"message": "upstream died", "code": 502}})
    with serving(broken) as canned, pytest.raises(ProviderError, match="upstream died") as caught:
        await ask(canned, "chat")
    assert caught.value.retryable


async def test_reasoning_goes_back_under_the_name_it_came_with() -> None:
    chunks = [delta(reasoning_content="hm"), delta(tool_calls=[part("echo", "{}", "1")]), delta("tool_calls")]
    with serving(chat(*chunks), chat(delta(content="ok"), delta("stop"))) as canned:
        reply = await ask(canned, "chat")
        done = ToolReply(call_id="1", name="echo", result=ToolResult(content="ran"))
        await ask(canned, "chat", (*HISTORY, reply, done))
    assistant = canned.bodies[1]["messages"][2]
    assert assistant["reasoning_content"] == "hm"
    assert canned.bodies[1]["messages"][3] == {"role": "tool", "tool_call_id": "1", "content": "ran"}


async def test_field_that_the_server_refuses_is_left_out_from_then_on() -> None:
    good = chat(delta(content="ok"), delta("stop"))
    with serving(refusal("Unrecognized request argument: stream_options"), good) as canned:
        assert (await ask(canned, "chat")).text == "ok"
    assert "stream_options" in canned.bodies[0]
    assert "stream_options" not in canned.bodies[1]


async def test_refusal_of_something_else_is_not_asked_again() -> None:
    with serving(refusal("this model does not support tools")) as canned, pytest.raises(ProviderError) as caught:
        await ask(canned, "chat")
    assert not caught.value.retryable
    assert len(canned.bodies) == 1


# ---- messages


def message_events(*blocks: list[dict[str, Any]], stop: str | None = "tool_use", **more: Any) -> tuple[int, str]:
    start = {
        "type": "message_start",
        "message": {"id": "m", "type": "message", "role": "assistant", "content": [], "model": "m",
                    "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 5, "output_tokens": 1}},
    }  # fmt: skip
    items: list[dict[str, Any]] = [start]
    for index, (first, *deltas) in enumerate(blocks):
        items.append({"type": "content_block_start", "index": index, "content_block": first})
        items += [{"type": "content_block_delta", "index": index, "delta": item} for item in deltas]
        items.append({"type": "content_block_stop", "index": index})
    if stop:
        ending = {"stop_reason": stop, "stop_sequence": None, **more}
        items.append({"type": "message_delta", "delta": ending, "usage": {"output_tokens": 7}})
    return events(*items, {"type": "message_stop"})


THINKING: list[dict[str, Any]] = [
    {"type": "thinking", "thinking": "", "signature": ""},
    {"type": "thinking_delta", "thinking": "hm"},
    {"type": "signature_delta", "signature": "sig="},
]
CALL: list[dict[str, Any]] = [
    {"type": "tool_use", "id": "toolu_1", "name": "echo", "input": {}},
    {"type": "input_json_delta", "partial_json": '{"te'},
    {"type": "input_json_delta", "partial_json": 'xt": "a"}'},
]


async def test_thinking_and_its_signature_go_back_word_for_word() -> None:
    with serving(message_events(THINKING, CALL), message_events([{"type": "text", "text": "ok"}])) as canned:
        reply = await ask(canned, "messages")
        done = ToolReply(call_id="toolu_1", name="echo", result=ToolResult(content="ran"))
        await ask(canned, "messages", (*HISTORY, reply, done, UserText(text="and?")))
    assert reply.thinking == "hm"
    assert reply.tool_calls[0].arguments == {"text": "a"}
    user, assistant, results = canned.bodies[1]["messages"]
    assert assistant["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "sig="},
        {"type": "tool_use", "id": "toolu_1", "name": "echo", "input": {"text": "a"}},
    ]
    assert [block["type"] for block in results["content"]] == ["tool_result", "text"]
    assert user["content"] == [{"type": "text", "text": "go"}]


async def test_cut_tool_arguments_are_a_problem_and_not_an_empty_call() -> None:
    with serving(message_events(CALL[:2])) as canned:
        (call,) = (await ask(canned, "messages")).tool_calls
    assert "not valid JSON" in call.problem


async def test_stream_without_a_stop_reason_is_a_failed_attempt_of_messages() -> None:
    with serving(message_events(CALL, stop=None)) as canned, pytest.raises(ProviderError, match="ended early"):
        await ask(canned, "messages")


async def test_refusal_and_overflow_are_told_apart() -> None:
    text: list[dict[str, Any]] = [{"type": "text", "text": "no"}]
    with serving(
        message_events(text, stop="refusal"), message_events(text, stop="model_context_window_exceeded")
    ) as canned:
        assert (await ask(canned, "messages")).stop is StopReason.REFUSED
        with pytest.raises(ProviderError, match="no longer fits") as caught:
            await ask(canned, "messages")
    assert not caught.value.retryable


async def test_reply_of_another_provider_is_rebuilt_with_ids_that_messages_takes() -> None:
    foreign = AssistantReply(text="  ", tool_calls=(ToolCall(id="call|7:x", name="echo", arguments={}),))
    done = ToolReply(call_id="call|7:x", name="echo", result=ToolResult(content="", is_error=True))
    with serving(message_events([{"type": "text", "text": "ok"}], stop="end_turn")) as canned:
        await ask(canned, "messages", (*HISTORY, foreign, done))
    _, assistant, results = canned.bodies[0]["messages"]
    assert assistant["content"] == [{"type": "tool_use", "id": "call_7_x", "name": "echo", "input": {}}]
    assert results["content"][0]["tool_use_id"] == "call_7_x"
    assert results["content"][0]["content"]


async def test_thinking_that_a_model_refuses_is_left_out() -> None:
    good = message_events([{"type": "text", "text": "ok"}], stop="end_turn")
    with serving(refusal("adaptive thinking is not supported on this model"), good) as canned:
        await ask(canned, "messages")
    assert "thinking" in canned.bodies[0]
    assert "thinking" not in canned.bodies[1]
    assert "temperature" not in canned.bodies[0]


# ---- responses


def response(status: str = "completed", **more: Any) -> dict[str, Any]:
    return {
        "type": "response.completed" if status == "completed" else f"response.{status}",
        "sequence_number": 9,
        "response": {"id": "r", "object": "response", "created_at": 1, "model": "m", "status": status, "output": [],
                     "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], **more},
    }  # fmt: skip


def item_done(index: int, **item: Any) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": index, "sequence_number": index, "item": item}


async def test_encrypted_reasoning_goes_back_and_nothing_is_stored() -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
    called = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "echo", "arguments": '{"text":"a"}'}
    first = events(item_done(0, **reasoning), item_done(1, **called), response())
    with serving(first, events(response())) as canned:
        reply = await ask(canned, "responses")
        done = ToolReply(call_id="c1", name="echo", result=ToolResult(content="ran"))
        await ask(canned, "responses", (*HISTORY, reply, done))
    assert reply.tool_calls == (ToolCall(id="c1", name="echo", arguments={"text": "a"}),)
    assert canned.bodies[0]["store"] is False
    assert "reasoning.encrypted_content" in canned.bodies[0]["include"]
    assert canned.bodies[1]["input"][1:] == [
        reasoning,
        called,
        {"type": "function_call_output", "call_id": "c1", "output": "ran"},
    ]


async def test_incomplete_and_failed_responses_are_told_apart() -> None:
    cut = events(response("incomplete", incomplete_details={"reason": "max_output_tokens"}))
    failed = events(response("failed", error={"code": "server_error", "message": "boom"}))
    with serving(cut, failed) as canned:
        assert (await ask(canned, "responses")).stop is StopReason.MAX_TOKENS
        with pytest.raises(ProviderError, match="boom") as caught:
            await ask(canned, "responses")
    assert caught.value.retryable


# ---- pieces


@pytest.mark.parametrize("raw", ["{", '{"a":1}{"b":2}', "[1]", '"text"', "null"])
def test_arguments_that_are_no_single_object_are_a_problem(raw: str) -> None:
    arguments, problem = parse_arguments(raw)
    assert arguments == {}
    assert problem


def test_retry_after_is_seconds_or_a_date() -> None:
    assert retry_after("2.5", now=0) == 2.5
    assert retry_after("Thu, 01 Jan 1970 00:01:00 GMT", now=10) == 50
    assert retry_after("soon", now=0) is None
    assert retry_after(None, now=0) is None


def test_ids_are_made_of_letters_digits_and_dashes() -> None:
    assert safe_id("call|7:x") == "call_7_x"
    assert safe_id("") == "call"
