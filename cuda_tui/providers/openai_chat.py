"""Chat Completions, streamed: the format of Ollama, vLLM, llama.cpp, OpenRouter and most other servers."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from cuda_tui.agent.protocols import Chunk, Request
from cuda_tui.errors import ProviderError
from cuda_tui.events import CallStreamed, TextStreamed, ThinkingStreamed
from cuda_tui.messages import AssistantReply, Message, StopReason, ToolReply, ToolSpec, Usage, UserText
from cuda_tui.providers.openai_client import connect
from cuda_tui.providers.streaming import StreamingProvider
from cuda_tui.providers.wire import Endpoint, WireEvent, tool_call

_STOPS = {
    "stop": StopReason.END,
    "tool_calls": StopReason.TOOL_CALLS,
    "function_call": StopReason.TOOL_CALLS,
    "length": StopReason.MAX_TOKENS,
    "content_filter": StopReason.REFUSED,
}
_REASONING = ("reasoning_content", "reasoning")  # servers name the field differently; it goes back under its name


class OpenAIChat(StreamingProvider):
    """A provider over Chat Completions. A field that the server refuses is left out from then on."""

    def __init__(self, endpoint: Endpoint) -> None:
        options: dict[str, Any] = {"stream_options": {"include_usage": True}}
        if endpoint.effort:
            options["reasoning_effort"] = endpoint.effort
        if endpoint.max_tokens:
            options["max_tokens"] = endpoint.max_tokens
        super().__init__(endpoint, options)

    def _connect(self) -> Any:
        return connect(self._endpoint)

    def _new_reply(self) -> "_Reply":
        return _Reply()

    async def _create(self, client: Any, body: dict[str, Any]) -> Any:
        return await client.chat.completions.create(**body)

    def _body(self, request: Request) -> dict[str, Any]:
        return {
            "model": self._endpoint.model,
            "messages": [{"role": "system", "content": request.system}, *messages_param(request.messages)],
            "tools": [tool_param(spec) for spec in request.tools],
        }


def tool_param(spec: ToolSpec) -> dict[str, Any]:
    """A tool as the API takes it."""
    function = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    return {"type": "function", "function": function}


def messages_param(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """The conversation as the API takes it."""
    return [_message(message) for message in messages]


def _message(message: Message) -> dict[str, Any]:
    match message:
        case UserText(text=text):
            return {"role": "user", "content": text}
        case ToolReply(call_id=call_id, result=result):
            return {"role": "tool", "tool_call_id": call_id, "content": result.content}
        case AssistantReply():
            return _assistant(message)


def _assistant(reply: AssistantReply) -> dict[str, Any]:
    """A reply, with what the server wants back under the names it used."""
    kept = reply.opaque[0] if reply.opaque else {}
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
        }
        | kept.get("calls", {}).get(call.id, {})
        for call in reply.tool_calls
    ]
    message: dict[str, Any] = {"role": "assistant", "content": reply.text, **kept.get("message", {})}
    return {**message, "tool_calls": calls} if calls else message


@dataclass
class _Call:
    index: int
    identity: str = ""
    name: str = ""
    raw: str = ""
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass
class _Reply:
    """Text and calls as they grow."""

    text: str = ""
    thinking: str = ""
    reasoning_field: str = ""
    calls: list[_Call] = field(default_factory=list)
    finish: str | None = None
    usage: Usage = field(default_factory=Usage)

    def take(self, chunk: WireEvent) -> Iterable[Chunk]:
        """Add one chunk; what of it can be shown."""
        if chunk.get("error"):
            raise ProviderError(f"the server failed in mid-stream: {chunk['error']}", retryable=True)
        if chunk.get("usage"):
            self.usage = _usage(chunk["usage"])
        shown: list[Chunk] = []
        for choice in chunk.get("choices") or ():
            self.finish = choice.get("finish_reason") or self.finish
            shown += self._grow(choice.get("delta") or {})
        return shown

    def _grow(self, delta: WireEvent) -> Iterable[Chunk]:
        for name in _REASONING:
            if isinstance(delta.get(name), str):
                self.reasoning_field = self.reasoning_field or name
                self.thinking += delta[name] if name == self.reasoning_field else ""
                if delta[name] and name == self.reasoning_field:
                    yield ThinkingStreamed(text=delta[name])
        text = delta.get("content") or delta.get("refusal")
        if isinstance(text, str) and text:
            self.text += text
            yield TextStreamed(text=text)
        for part in delta.get("tool_calls") or ():
            call = self._call_of(part)
            fragment = (part.get("function") or {}).get("arguments") or ""
            call.raw += fragment
            yield CallStreamed(index=self.calls.index(call), name=call.name, fragment=fragment)

    def _call_of(self, part: WireEvent) -> _Call:
        """The call that a piece belongs to. Some servers give every parallel call index 0: a new id, or a name where
        one stands already, begins a new call."""
        index, identity = part.get("index") or 0, part.get("id") or ""
        name = (part.get("function") or {}).get("name") or ""
        call = next((call for call in reversed(self.calls) if call.index == index), None)
        begins = call is None or (identity and call.identity and identity != call.identity)
        if call is None or begins or (name and not identity and call.raw):
            call = _Call(index=index)
            self.calls.append(call)
        call.identity = call.identity or identity
        call.name = call.name or name
        call.extra |= {"extra_content": part["extra_content"]} if part.get("extra_content") else {}
        return call

    def complete(self) -> AssistantReply:
        """The reply. Raises ProviderError where the stream ended without a finish reason."""
        if self.finish is None:
            raise ProviderError("the stream ended early, without a finish reason", retryable=True)
        stop = _STOPS.get(self.finish, StopReason.END)
        if self.calls and stop is StopReason.END:
            stop = StopReason.TOOL_CALLS
        elif not self.calls and stop is StopReason.TOOL_CALLS:
            stop = StopReason.END
        kept: dict[str, Any] = {}
        if self.reasoning_field:
            kept["message"] = {self.reasoning_field: self.thinking}
        if any(call.extra for call in self.calls):
            kept["calls"] = {call.identity: call.extra for call in self.calls if call.extra}
        return AssistantReply(
            text=self.text,
            thinking=self.thinking,
            tool_calls=tuple(tool_call(call.identity, call.name, call.raw) for call in self.calls),
            usage=self.usage,
            stop=stop,
            opaque=(kept,) if kept else (),
        )


def _usage(usage: WireEvent) -> Usage:
    details = usage.get("prompt_tokens_details") or {}
    cached = details.get("cached_tokens")
    total = usage.get("prompt_tokens")
    return Usage(
        input_tokens=total - (cached or 0) if isinstance(total, int) else None,
        output_tokens=usage.get("completion_tokens"),
        cache_read_tokens=cached,
    )
