"""A provider that answers from a script: for demonstrations, tests and recordings. It talks to nobody.

A script is a JSON list of replies; each is an AssistantReply as the session log writes it, and may carry `error`
(a failed attempt) instead:

    [{"text": "I read the model.", "tool_calls": [{"id": "1", "name": "read", "arguments": {"path": "model.py"}}]},
     {"error": "overloaded", "retryable": true},
     {"text": "done"}]
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import msgspec

from cuda_tui.agent.protocols import Chunk, Request
from cuda_tui.errors import ProviderError, UsageError
from cuda_tui.events import CallStreamed, TextStreamed, ThinkingStreamed
from cuda_tui.messages import AssistantReply, StopReason, ToolCall, Usage
from cuda_tui.records import Json, Record, encode


class ScriptedReply(Record):
    """One answer of the script. A call's id may be empty; the stop reason follows from the calls unless given."""

    text: str = ""
    thinking: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    stop: StopReason | None = None
    error: str = ""
    retryable: bool = False
    retry_after_s: float | None = None


class ScriptedProvider:
    """Answers each request with the next reply of its script, in pieces, and keeps the requests it got.

    `delay_s` is the pause between two pieces of a streamed text. An exhausted script is a ProviderError.
    """

    def __init__(
        self, replies: Iterable[ScriptedReply], *, name: str = "scripted", delay_s: float = 0.0, piece: int = 24
    ) -> None:
        self._replies = list(replies)
        self._name = name
        self._delay_s = delay_s
        self._piece = piece
        self._next = 0
        self.requests: list[Request] = []

    @classmethod
    def from_file(cls, path: Path, *, delay_s: float = 0.0) -> "ScriptedProvider":
        """Read a script. Raises UsageError where the file is missing or not a script."""
        try:
            replies = msgspec.json.decode(path.read_bytes(), type=list[ScriptedReply])
        except OSError as error:
            raise UsageError(f"cannot read the script {path}: {error.strerror}") from error
        except msgspec.DecodeError as error:
            raise UsageError(f"{path} is not a script: {error}", hint="it must be a JSON list of replies") from error
        return cls(replies, name=f"scripted:{path}", delay_s=delay_s)

    @property
    def name(self) -> str:
        return self._name

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        """The next reply of the script, in pieces."""
        self.requests.append(request)
        number, self._next = self._next, self._next + 1
        if number >= len(self._replies):
            raise ProviderError(f"the script is over after {number} replies", hint="add replies to it")
        scripted = self._replies[number]
        for thought in _pieces(scripted.thinking, self._piece):
            yield ThinkingStreamed(text=thought)
            await asyncio.sleep(self._delay_s)
        for text in _pieces(scripted.text, self._piece):
            yield TextStreamed(text=text)
            await asyncio.sleep(self._delay_s)
        for index, call in enumerate(scripted.tool_calls):
            arguments: Json = call.arguments
            for fragment in _pieces(encode(arguments).decode(), self._piece):
                yield CallStreamed(index=index, name=call.name, fragment=fragment)
                await asyncio.sleep(self._delay_s)
        if scripted.error:
            raise ProviderError(scripted.error, retryable=scripted.retryable, retry_after_s=scripted.retry_after_s)
        yield _reply(scripted)


def _reply(scripted: ScriptedReply) -> AssistantReply:
    stop = scripted.stop or (StopReason.TOOL_CALLS if scripted.tool_calls else StopReason.END)
    return AssistantReply(
        text=scripted.text,
        thinking=scripted.thinking,
        tool_calls=scripted.tool_calls,
        usage=scripted.usage,
        stop=stop,
    )


def _pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]
