"""What the model sees of a session: one pure function from events to messages."""

from collections.abc import Iterable, Sequence

import msgspec

from cuda_tui.events import (
    Durable,
    ReplyReceived,
    SessionResumed,
    SessionStarted,
    SettingsChanged,
    ToolFinished,
    UserSpoke,
)
from cuda_tui.messages import AssistantReply, Message, ToolReply, ToolResult, UserText
from cuda_tui.session.log import INTERRUPTED


def messages_from(events: Sequence[Durable], *, model: str) -> tuple[Message, ...]:
    """The conversation as `model` may receive it.

    Every call is followed by its result, in the order of the calls; a missing one reads "interrupted, state unknown".
    What the person said meanwhile comes after the results. Opaque blocks go back only to the model that sent them.
    """
    messages: list[Message] = []
    open_reply: AssistantReply | None = None
    results: dict[str, ToolReply] = {}
    said: list[UserText] = []
    speaker = ""

    def close() -> None:
        if open_reply is not None:
            messages.extend(_paired(open_reply, results))
        messages.extend(said)
        results.clear()
        said.clear()

    for event in events:
        match event:
            case SessionStarted(model=name) | SessionResumed(model=name) | SettingsChanged(model=name):
                speaker = name
            case UserSpoke(text=text):
                said.append(UserText(text=text))
            case ReplyReceived(reply=reply):
                close()
                open_reply = reply if speaker == model else msgspec.structs.replace(reply, opaque=())
                messages.append(open_reply)
            case ToolFinished(call_id=call_id, name=name, result=result):
                results.setdefault(call_id, ToolReply(call_id=call_id, name=name, result=result))
            case _:
                pass
    close()
    return tuple(messages)


def _paired(reply: AssistantReply, results: dict[str, ToolReply]) -> Iterable[ToolReply]:
    for call in reply.tool_calls:
        missing = ToolReply(call_id=call.id, name=call.name, result=ToolResult(content=INTERRUPTED, is_error=True))
        yield results.get(call.id, missing)


def with_unique_ids(reply: AssistantReply, *, turn: int) -> AssistantReply:
    """The reply with an id for every call: missing and doubled ones (some servers send them) are replaced."""
    seen: set[str] = set()
    calls = []
    for index, call in enumerate(reply.tool_calls):
        if not call.id or call.id in seen:
            call = msgspec.structs.replace(call, id=f"call_{turn}_{index}")
        seen.add(call.id)
        calls.append(call)
    if tuple(calls) == reply.tool_calls:
        return reply
    return msgspec.structs.replace(reply, tool_calls=tuple(calls), opaque=())
