"""OpenAI's Responses API, streamed and stateless: nothing is stored there, encrypted reasoning goes back verbatim."""

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


class OpenAIResponses(StreamingProvider):
    """A provider over the Responses API."""

    def __init__(self, endpoint: Endpoint) -> None:
        options: dict[str, Any] = {"include": ["reasoning.encrypted_content"]}
        if endpoint.effort:
            options["reasoning"] = {"effort": endpoint.effort, "summary": "auto"}
        super().__init__(endpoint, options)

    def _connect(self) -> Any:
        return connect(self._endpoint)

    def _new_reply(self) -> "_Reply":
        return _Reply()

    async def _create(self, client: Any, body: dict[str, Any]) -> Any:
        return await client.responses.create(**body)

    def _body(self, request: Request) -> dict[str, Any]:
        return {
            "model": self._endpoint.model,
            "instructions": request.system,
            "input": [item for message in request.messages for item in input_items(message)],
            "tools": [tool_param(spec) for spec in request.tools],
            "max_output_tokens": max(self._endpoint.max_tokens or 0, request.max_tokens),
            "store": False,
        }


def tool_param(spec: ToolSpec) -> dict[str, Any]:
    """A tool as the API takes it; `strict` is off, since our schemas have optional properties."""
    return {
        "type": "function",
        "name": spec.name,
        "description": spec.description,
        "parameters": spec.parameters,
        "strict": False,
    }


def input_items(message: Message) -> list[dict[str, Any]]:
    """One message as the items that the API takes."""
    match message:
        case UserText(text=text):
            return [{"role": "user", "content": text}]
        case ToolReply(call_id=call_id, result=result):
            return [{"type": "function_call_output", "call_id": call_id, "output": result.content}]
        case AssistantReply():
            return list(message.opaque) or _rebuilt(message)


def _rebuilt(reply: AssistantReply) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = [{"role": "assistant", "content": reply.text}] if reply.text else []
    for call in reply.tool_calls:
        arguments = json.dumps(call.arguments, ensure_ascii=False)
        items.append({"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments})
    return items


@dataclass
class _Reply:
    """Finished items in order; a call is final when its item is done, which every server sends."""

    items: dict[int, WireEvent] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    final: WireEvent | None = None

    def take(self, event: WireEvent) -> Iterable[Chunk]:
        """Add one event; what of it can be shown."""
        match event:
            case {"type": "response.output_text.delta" | "response.refusal.delta", "delta": str(text)}:
                return (TextStreamed(text=text),)
            case {
                "type": "response.reasoning_summary_text.delta" | "response.reasoning_text.delta",
                "delta": str(text),
            }:
                return (ThinkingStreamed(text=text),)
            case {"type": "response.output_item.added", "output_index": int(index), "item": item}:
                self.names[index] = str(item.get("name") or "")
            case {"type": "response.function_call_arguments.delta", "output_index": int(index), "delta": str(fragment)}:
                return (CallStreamed(index=index, name=self.names.get(index, ""), fragment=fragment),)
            case {"type": "response.output_item.done", "output_index": int(index), "item": item}:
                self.items[index] = item
            case {"type": "response.completed" | "response.incomplete" | "response.failed", "response": response}:
                self.final = response
            case {"type": "error"}:
                raise ProviderError(f"the server failed in mid-stream: {event.get('message')}", retryable=True)
            case _:
                pass
        return ()

    def complete(self) -> AssistantReply:
        """The reply. Raises ProviderError where the response failed, or the stream ended before it was over."""
        if self.final is None:
            raise ProviderError("the stream ended early, before the response was completed", retryable=True)
        if self.final.get("status") == "failed":
            raise _failure(self.final.get("error") or {})
        items = [self.items[index] for index in sorted(self.items)]
        calls = tuple(
            tool_call(str(item.get("call_id") or ""), str(item.get("name") or ""), str(item.get("arguments") or ""))
            for item in items
            if item.get("type") == "function_call"
        )
        return AssistantReply(
            text="".join(_texts(items, "message", "content")),
            thinking="\n".join(_texts(items, "reasoning", "summary")),
            tool_calls=calls,
            usage=_usage(self.final.get("usage") or {}),
            stop=self._stop(items, has_calls=bool(calls)),
            opaque=tuple({name: value for name, value in item.items() if value is not None} for item in items),
        )

    def _stop(self, items: list[WireEvent], *, has_calls: bool) -> StopReason:
        assert self.final is not None
        reason = (self.final.get("incomplete_details") or {}).get("reason")
        if self.final.get("status") == "incomplete":
            return StopReason.REFUSED if reason == "content_filter" else StopReason.MAX_TOKENS
        refused = any(part.get("type") == "refusal" for item in items for part in item.get("content") or ())
        if refused:
            return StopReason.REFUSED
        return StopReason.TOOL_CALLS if has_calls else StopReason.END


def _failure(error: WireEvent) -> ProviderError:
    code = str(error.get("code") or "")
    retryable = code in {"server_error", "rate_limit_exceeded", "vector_store_timeout", ""}
    return ProviderError(
        f"the response failed: {error.get('message') or code or 'no reason given'}", retryable=retryable
    )


def _texts(items: list[WireEvent], kind: str, part: str) -> Iterable[str]:
    for item in items:
        if item.get("type") == kind:
            for piece in item.get(part) or ():
                yield str(piece.get("text") or piece.get("refusal") or "")


def _usage(usage: WireEvent) -> Usage:
    cached = (usage.get("input_tokens_details") or {}).get("cached_tokens")
    total = usage.get("input_tokens")
    return Usage(
        input_tokens=total - (cached or 0) if isinstance(total, int) else None,
        output_tokens=usage.get("output_tokens"),
        cache_read_tokens=cached,
    )
