"""Claude's Messages API, streamed. Raw deltas are accumulated here, since the SDK drops broken arguments in silence."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from cuda_tui.agent.protocols import Chunk, Request
from cuda_tui.errors import ProviderError
from cuda_tui.events import CallStreamed, TextStreamed, ThinkingStreamed
from cuda_tui.messages import AssistantReply, Message, StopReason, ToolCall, ToolReply, ToolSpec, Usage, UserText
from cuda_tui.providers.streaming import StreamingProvider
from cuda_tui.providers.wire import (
    CONNECT_S,
    SILENCE_S,
    Endpoint,
    WireEvent,
    parse_arguments,
    safe_id,
    tool_call,
)

_STOPS = {
    "end_turn": StopReason.END,
    "stop_sequence": StopReason.END,
    "tool_use": StopReason.TOOL_CALLS,
    "max_tokens": StopReason.MAX_TOKENS,
    "refusal": StopReason.REFUSED,
}


class AnthropicMessages(StreamingProvider):
    """A provider over the Messages API. The history is append-only and goes back word for word."""

    def __init__(self, endpoint: Endpoint) -> None:
        options: dict[str, Any] = {"thinking": {"type": "adaptive"}, "cache_control": {"type": "ephemeral"}}
        if endpoint.effort:
            options["output_config"] = {"effort": endpoint.effort}
        super().__init__(endpoint, options)

    def _connect(self) -> Any:
        return _connect(self._endpoint)

    def _new_reply(self) -> "_Reply":
        return _Reply()

    async def _create(self, client: Any, body: dict[str, Any]) -> Any:
        return await client.messages.create(**body)

    def _body(self, request: Request) -> dict[str, Any]:
        return {
            "model": self._endpoint.model,
            "max_tokens": max(self._endpoint.max_tokens or 0, request.max_tokens),
            "system": request.system,
            "messages": messages_param(request.messages),
            "tools": [tool_param(spec) for spec in request.tools],
        }


def _connect(endpoint: Endpoint) -> Any:
    """A client for one request that never retries by itself. Importing the SDK takes seconds: call this in a thread."""
    import anthropic
    import httpx2

    return anthropic.AsyncAnthropic(
        api_key=endpoint.key or "none",
        base_url=endpoint.base_url,
        default_headers=endpoint.headers,
        max_retries=0,
        timeout=httpx2.Timeout(SILENCE_S, connect=CONNECT_S),
    )


def tool_param(spec: ToolSpec) -> dict[str, Any]:
    """A tool as the API takes it."""
    return {"name": spec.name, "description": spec.description, "input_schema": spec.parameters}


def messages_param(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """The conversation as the API takes it: one user message holds all results of one reply.

    Blank texts are left out, since the API refuses them.
    """
    turns: list[dict[str, Any]] = []
    for message in messages:
        role, blocks = _turn(message)
        if not blocks:
            continue
        if turns and turns[-1]["role"] == role == "user":
            turns[-1]["content"].extend(blocks)
        else:
            turns.append({"role": role, "content": blocks})
    return turns


def _turn(message: Message) -> tuple[str, list[dict[str, Any]]]:
    match message:
        case UserText(text=text):
            return "user", [{"type": "text", "text": text}] if text.strip() else []
        case ToolReply(call_id=call_id, result=result):
            block = {"type": "tool_result", "tool_use_id": safe_id(call_id), "content": result.content or "(nothing)"}
            return "user", [block | ({"is_error": True} if result.is_error else {})]
        case AssistantReply():
            return "assistant", list(message.opaque) or _rebuilt(message)


def _rebuilt(reply: AssistantReply) -> list[dict[str, Any]]:
    """A reply of another provider, or of an earlier version, as plain blocks."""
    blocks: list[dict[str, Any]] = [{"type": "text", "text": reply.text}] if reply.text.strip() else []
    for call in reply.tool_calls:
        blocks.append(
            {"type": "tool_use", "id": safe_id(call.id), "name": call.name or "none", "input": call.arguments}
        )
    return blocks


@dataclass
class _Reply:
    """Blocks by index as they grow; a call's arguments stay raw text until the reply is complete."""

    blocks: dict[int, WireEvent] = field(default_factory=dict)
    raw: dict[int, str] = field(default_factory=dict)
    usage: dict[str, Any] = field(default_factory=dict)
    stop: str | None = None
    refusal: str = ""

    def take(self, event: WireEvent) -> Iterable[Chunk]:
        """Add one event; what of it can be shown."""
        match event:
            case {"type": "message_start", "message": message}:
                self._count(message.get("usage"))
            case {"type": "content_block_start", "index": index, "content_block": block}:
                self.blocks[index] = dict(block)
                self.raw[index] = ""
            case {"type": "content_block_delta", "index": index, "delta": delta}:
                return self._grow(index, delta)
            case {"type": "message_delta", "delta": delta}:
                self.stop = delta.get("stop_reason") or self.stop
                self.refusal = str((delta.get("stop_details") or {}).get("explanation") or "")
                self._count(event.get("usage"))
            case _:
                pass
        return ()

    def _count(self, usage: dict[str, Any] | None) -> None:
        self.usage |= {name: value for name, value in (usage or {}).items() if value is not None}

    def _grow(self, index: int, delta: WireEvent) -> Iterable[Chunk]:
        block = self.blocks.setdefault(index, {"type": "text", "text": ""})
        match delta:
            case {"type": "text_delta", "text": text}:
                block["text"] = block.get("text", "") + text
                return (TextStreamed(text=text),)
            case {"type": "thinking_delta", "thinking": thinking}:
                block["thinking"] = block.get("thinking", "") + thinking
                return (ThinkingStreamed(text=thinking),)
            case {"type": "signature_delta", "signature": signature}:
                block["signature"] = block.get("signature", "") + signature
            case {"type": "input_json_delta", "partial_json": fragment}:
                self.raw[index] = self.raw.get(index, "") + fragment
                return (CallStreamed(index=index, name=str(block.get("name", "")), fragment=fragment),)
            case _:
                pass
        return ()

    def complete(self) -> AssistantReply:
        """The reply. Raises ProviderError where the stream ended without a stop reason."""
        if self.stop is None:
            raise ProviderError("the stream ended early, without a stop reason", retryable=True)
        if self.stop == "model_context_window_exceeded":
            raise ProviderError(
                "the conversation no longer fits the model", hint="start a new session, or a larger model"
            )
        if self.stop == "pause_turn":
            raise ProviderError("the server paused the turn", retryable=True)
        ordered = [self.blocks[index] for index in sorted(self.blocks)]
        calls = tuple(self._call(index) for index in sorted(self.blocks) if self.blocks[index]["type"] == "tool_use")
        stop = _STOPS.get(self.stop, StopReason.END)
        if stop is StopReason.END and calls:
            stop = StopReason.TOOL_CALLS
        text = "".join(block.get("text", "") for block in ordered if block["type"] == "text")
        return AssistantReply(
            text=text or (self.refusal if stop is StopReason.REFUSED else ""),
            thinking="".join(block.get("thinking", "") for block in ordered if block["type"] == "thinking"),
            tool_calls=calls,
            usage=self._usage(),
            stop=stop,
            opaque=tuple(self._verbatim(index) for index in sorted(self.blocks) if not self._blank(index)),
        )

    def _call(self, index: int) -> ToolCall:
        block = self.blocks[index]
        raw = self.raw.get(index, "")
        if not raw and block.get("input"):
            return ToolCall(id=block["id"], name=block["name"], arguments=dict(block["input"]))
        return tool_call(str(block.get("id") or ""), str(block.get("name") or ""), raw)

    def _verbatim(self, index: int) -> WireEvent:
        block = {name: value for name, value in self.blocks[index].items() if value is not None}
        if block["type"] == "tool_use" and self.raw.get(index):
            block["input"], _ = parse_arguments(self.raw[index])
        return block

    def _blank(self, index: int) -> bool:
        block = self.blocks[index]
        return block["type"] == "text" and not str(block.get("text", "")).strip()

    def _usage(self) -> Usage:
        return Usage(
            input_tokens=self.usage.get("input_tokens"),
            output_tokens=self.usage.get("output_tokens"),
            cache_read_tokens=self.usage.get("cache_read_input_tokens"),
            cache_write_tokens=self.usage.get("cache_creation_input_tokens"),
        )
