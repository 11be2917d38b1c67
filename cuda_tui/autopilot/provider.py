"""The autopilot as a provider: no model behind it, only rules. It answers with text and tool calls like any other."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable

from cuda_tui.agent.protocols import Chunk, Request
from cuda_tui.autopilot.design import Design
from cuda_tui.autopilot.strategy import Step, Strategy
from cuda_tui.events import CallStreamed, TextStreamed
from cuda_tui.messages import AssistantReply, Message, StopReason, ToolCall, ToolReply, UserText
from cuda_tui.session.log import INTERRUPTED

PIECE = 48  # characters of text streamed at a time
OWN = "autopilot"  # how the ids of its calls begin, "autopilot-STEP-CALL"


class Autopilot:
    """Fuses, writes, measures. Each reply is found by playing the conversation through the rules; the only thing it
    remembers is the analysis of the model, so as not to repeat it."""

    def __init__(self) -> None:
        self._designs: dict[str, Design] = {}

    @property
    def name(self) -> str:
        return OWN

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        """The next reply, in pieces."""
        reply = await asyncio.to_thread(next_reply, request.messages, self._designs)
        for start in range(0, len(reply.text), PIECE):
            yield TextStreamed(text=reply.text[start : start + PIECE])
        for index, call in enumerate(reply.tool_calls):
            yield CallStreamed(index=index, name=call.name, fragment=json.dumps(call.arguments))
        yield reply


def next_reply(messages: Iterable[Message], designs: dict[str, Design] | None = None) -> AssistantReply:
    """What the rules say after this conversation."""
    messages = tuple(messages)
    replies = _own_results(messages)
    steps = Strategy(designs).steps()
    step: Step | None = next(steps)
    number = 0
    while step is not None and number in replies:
        try:
            if not _cut_short(replies[number]):  # else the same step once more: whatever it did can be done twice
                step = steps.send(replies[number])
        except StopIteration:
            step = None
        number += 1
    if step is None:
        return AssistantReply(text=_after_the_end(messages), stop=StopReason.END)
    calls = tuple(
        ToolCall(id=f"{OWN}-{number}-{index}", name=call.name, arguments=call.arguments)
        for index, call in enumerate(step.calls)
    )
    return AssistantReply(text=step.text, tool_calls=calls, stop=StopReason.TOOL_CALLS)


def _own_results(messages: Iterable[Message]) -> dict[int, list[ToolReply]]:
    """Results of our own calls, by step, in the order of the calls."""
    found: dict[int, list[ToolReply]] = {}
    for message in messages:
        if isinstance(message, ToolReply) and message.call_id.startswith(f"{OWN}-"):
            found.setdefault(int(message.call_id.split("-")[1]), []).append(message)
    return found


def _cut_short(replies: list[ToolReply]) -> bool:
    """Whether the session stopped while one of these calls was open."""
    return any(reply.result.content == INTERRUPTED for reply in replies)


def _after_the_end(messages: Iterable[Message]) -> str:
    said = [message for message in messages if isinstance(message, UserText)]
    text = "I have done what my rules can do with this model."
    if len(said) > 1:
        text += " I follow fixed rules and cannot take instructions; choose a language model (--model) to go further."
    return text
