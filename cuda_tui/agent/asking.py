"""Getting one reply from the provider: streamed, retried in the open, and stopped at once when the person says so."""

import asyncio
import random
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from cuda_tui.agent.clock import Clock, SystemClock
from cuda_tui.agent.protocols import Emit, Provider, Request
from cuda_tui.errors import Cancelled, ProviderError
from cuda_tui.events import RetryScheduled, StreamWithdrawn
from cuda_tui.messages import AssistantReply, StopReason

Jitter: TypeAlias = Callable[[], float]


@dataclass(frozen=True, kw_only=True)
class RetryRules:
    """How often and how long. A longer Retry-After than `longest_wait_s` is not waited for."""

    attempts: int = 6
    first_wait_s: float = 1.0
    longest_backoff_s: float = 60.0
    longest_wait_s: float = 600.0
    idle_s: float = 300.0  # silence after which an attempt has failed
    truncations: int = 2  # times the token limit is doubled after a reply was cut off


@dataclass(kw_only=True)
class Asker:
    """Asks a provider. `jitter` returns numbers in [0, 1)."""

    emit: Emit
    cancel: asyncio.Event
    clock: Clock = field(default_factory=SystemClock)
    rules: RetryRules = field(default_factory=RetryRules)
    jitter: Jitter = random.random

    async def ask(self, provider: Provider, request: Request) -> AssistantReply:
        """One complete reply. Raises ProviderError for good failures, Cancelled within two seconds."""
        failures = truncations = 0
        while True:
            try:
                reply = await self._attempt(provider, request)
            except ProviderError as error:
                self.emit(StreamWithdrawn(reason=error.message))
                failures += 1
                await self._pause(error, failures)
                continue
            if reply.stop is not StopReason.MAX_TOKENS:
                return reply
            truncations += 1
            request = self._with_more_room(request, truncations)

    def _with_more_room(self, request: Request, truncations: int) -> Request:
        """The same request with twice the room. A cut reply is withdrawn whole: half a call must never run."""
        limit = request.max_tokens
        self.emit(StreamWithdrawn(reason=f"cut off at {limit} tokens"))
        if truncations > self.rules.truncations:
            raise ProviderError(
                f"the reply was cut off at {limit} tokens, {truncations} times running",
                hint="ask for a smaller step, or choose a model with a longer output",
            )
        return msgspec.structs.replace(request, max_tokens=limit * 2)

    async def _pause(self, error: ProviderError, failures: int) -> None:
        wait_s = self._wait_s(error, failures)
        if not error.retryable or failures >= self.rules.attempts or wait_s > self.rules.longest_wait_s:
            raise error
        self.emit(RetryScheduled(reason=error.message, attempt=failures, wait_s=wait_s))
        if await self.clock.wait(self.cancel, wait_s):
            raise Cancelled("stopped while waiting for the provider")

    def _wait_s(self, error: ProviderError, failures: int) -> float:
        if error.retry_after_s is not None:
            return error.retry_after_s
        backoff = min(self.rules.longest_backoff_s, self.rules.first_wait_s * 2.0 ** (failures - 1))
        return backoff * (0.5 + self.jitter() / 2)

    async def _attempt(self, provider: Provider, request: Request) -> AssistantReply:
        reading = asyncio.create_task(self._read(provider, request))
        stopping = asyncio.create_task(self.cancel.wait())
        try:
            await asyncio.wait({reading, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                return reading.result()
            self.emit(StreamWithdrawn(reason="stopped by the person"))
            raise Cancelled("stopped while the model was answering")
        finally:
            await _dispose(reading, stopping)

    async def _read(self, provider: Provider, request: Request) -> AssistantReply:
        reply: AssistantReply | None = None
        now = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(self.rules.idle_s) as limit, aclosing(_generator(provider, request)) as chunks:
                async for chunk in chunks:
                    limit.reschedule(now() + self.rules.idle_s)
                    if isinstance(chunk, AssistantReply):
                        reply = chunk
                    else:
                        self.emit(chunk)
        except TimeoutError as error:
            raise ProviderError(f"nothing arrived for {self.rules.idle_s:g} s", retryable=True) from error
        if reply is None:
            raise ProviderError("the reply ended early, without a stop reason", retryable=True)
        if not reply.text.strip() and not reply.tool_calls and reply.stop is StopReason.END:
            raise ProviderError("the reply was empty", retryable=True)
        return reply


def _generator(provider: Provider, request: Request) -> Any:
    return provider.stream(request)


async def _dispose(*tasks: asyncio.Task[Any], patience_s: float = 1.0) -> None:
    """Cancel tasks and wait for them a little; one that will not end is left behind."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=patience_s)
