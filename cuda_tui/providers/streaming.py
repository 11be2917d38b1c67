"""What every wire format does in the same way: connect, ask, shed refused fields, turn raw events into chunks."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from typing import Any, Protocol

from cuda_tui.agent.protocols import Chunk, Request
from cuda_tui.errors import ProviderError
from cuda_tui.messages import AssistantReply
from cuda_tui.providers.wire import Endpoint, OptionalFields, Options, WireEvent, plain_events, provider_errors


class ReplyBuilder(Protocol):
    """Accumulates one reply from the wire's events."""

    def take(self, event: WireEvent) -> Iterable[Chunk]:
        """Add one event; what of it can be shown."""
        ...

    def complete(self) -> AssistantReply:
        """The whole reply. Raises ProviderError where the stream broke off."""
        ...


class StreamingProvider(ABC):
    """A provider over one wire format. `options` are the fields that a server may refuse: left out from then on."""

    def __init__(self, endpoint: Endpoint, options: Options) -> None:
        self._endpoint = endpoint
        self._optional = OptionalFields(options)

    @property
    def name(self) -> str:
        return self._endpoint.name

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        """Deltas, then the complete reply."""
        client = await asyncio.to_thread(self._connect)
        with provider_errors(self._endpoint):
            async with client:
                stream = await self._open(client, request)
                reply = self._new_reply()
                async with aclosing(plain_events(stream)) as events:
                    async for event in events:
                        for chunk in reply.take(event):
                            yield chunk
            yield reply.complete()

    async def _open(self, client: Any, request: Request) -> Any:
        while True:
            body = self._body(request) | {"stream": True, "extra_body": self._optional.fields | self._endpoint.extra}
            try:
                with provider_errors(self._endpoint):
                    return await self._create(client, body)
            except ProviderError as error:
                if not self._optional.learn(error):
                    raise

    @abstractmethod
    def _connect(self) -> Any:
        """The SDK's client, for one request. Importing an SDK takes seconds, so this runs in a thread."""

    @abstractmethod
    def _new_reply(self) -> ReplyBuilder:
        """What the events of one answer are gathered in."""

    @abstractmethod
    def _body(self, request: Request) -> dict[str, Any]:
        """The request's fields, less the optional ones."""

    @abstractmethod
    async def _create(self, client: Any, body: dict[str, Any]) -> Any:
        """Send the request; the SDK's stream."""
