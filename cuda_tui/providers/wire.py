"""What the wire formats share: settings, strict arguments, errors, and options that a server may refuse."""

import contextlib
import json
import re
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, TypeAlias

import msgspec

from cuda_tui.errors import ProviderError
from cuda_tui.messages import ToolCall
from cuda_tui.records import Record

RETRYABLE = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 529})
CONNECT_S = 20.0
SILENCE_S = 300.0  # a model may think this long before its first token

WireEvent: TypeAlias = dict[str, Any]
Options: TypeAlias = dict[str, Any]


class Endpoint(Record):
    """Where a model is served and how to talk to it. `key` never leaves the process that talks to the model."""

    provider: str  # as in "PROVIDER:MODEL"
    model: str
    key: str | None = None
    key_name: str = ""  # the variable that holds the key, for hints
    base_url: str | None = None
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    extra: dict[str, Any] = msgspec.field(default_factory=dict)  # further fields of the request's body
    effort: str | None = None  # how much the model should think, in the provider's own words
    max_tokens: int | None = None  # of one reply; None leaves it to us or to the server

    @property
    def name(self) -> str:
        """`provider:model`."""
        return f"{self.provider}:{self.model}"


class OptionalFields:
    """Fields of a request that not every server takes: sent until one of them is refused, then left out for good."""

    def __init__(self, options: Options) -> None:
        self._options = dict(options)

    @property
    def fields(self) -> Options:
        """Those still sent."""
        return dict(self._options)

    def learn(self, error: ProviderError) -> bool:
        """Drop the fields that a refusal names; whether there was one, so that asking again makes sense."""
        refused = [name for name in self._options if name in error.message]
        for name in refused:
            del self._options[name]
        return bool(refused)


def parse_arguments(raw: str) -> tuple[dict[str, Any], str]:
    """A call's arguments from the raw text that arrived, and why they cannot be used, if so. Nothing is repaired."""
    if not raw.strip():
        return {}, ""
    try:
        value = json.loads(raw)
    except ValueError as error:
        return {}, f"not valid JSON ({error}): {_shown(raw)}"
    if not isinstance(value, dict):
        return {}, f"not a JSON object: {_shown(raw)}"
    return value, ""


def tool_call(identity: str, name: str, raw: str) -> ToolCall:
    """A call from its raw parts."""
    arguments, problem = parse_arguments(raw)
    return ToolCall(id=identity, name=name, arguments=arguments, problem=problem)


def _shown(raw: str) -> str:
    return raw if len(raw) <= 200 else raw[:100] + " ... " + raw[-80:]


def safe_id(identity: str) -> str:
    """An id that every provider takes: letters, digits, "_" and "-"."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", identity) or "call"


@contextlib.contextmanager
def provider_errors(endpoint: Endpoint) -> Iterator[None]:
    """Turn whatever an SDK or its HTTP library raises into ProviderError.

    Besides the SDKs' own errors that is: raw httpx2 errors, and ValueError from a corrupt chunk.
    """
    try:
        yield
    except ProviderError:
        raise
    except Exception as error:
        raise error_from(error, endpoint) from error


def error_from(error: Exception, endpoint: Endpoint, *, now: Callable[[], float] = time.time) -> ProviderError:
    """The ProviderError that stands for an SDK's or HTTP library's exception."""
    status = getattr(error, "status_code", None)
    if isinstance(status, int) and status >= 400:
        return _status_error(error, status, endpoint, now)
    if _certificate_refused(error):
        return ProviderError(
            f"{endpoint.name}: the server's certificate was rejected", hint="check base_url and the system's clock"
        )
    if isinstance(error, ValueError):
        return ProviderError(f"{endpoint.name}: a piece of the stream was corrupt: {error}", retryable=True)
    text = str(error) or type(error).__name__
    cause = error.__cause__ or error.__context__
    detail = f" ({cause})" if cause is not None and str(cause) and str(cause) not in text else ""
    return ProviderError(
        f"{endpoint.name}: {text}{detail}", hint=f"is {endpoint.base_url or 'the network'} reachable?", retryable=True
    )


def _status_error(error: Exception, status: int, endpoint: Endpoint, now: Callable[[], float]) -> ProviderError:
    response = getattr(error, "response", None)
    headers: Mapping[str, str] = getattr(response, "headers", {})
    text = _body_text(error)
    quota = status == 402 or "insufficient_quota" in text
    return ProviderError(
        f"{endpoint.name} answered {status}: {text}",
        hint=_hint(402 if quota else status, endpoint),
        retryable=status in RETRYABLE and not quota,
        retry_after_s=retry_after(headers.get("retry-after"), now=now()),
    )


def _body_text(error: Exception) -> str:
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else body
    message = inner.get("message") if isinstance(inner, dict) else inner
    code = str(inner.get("code") or "") if isinstance(inner, dict) else ""
    text = str(message or error)
    return f"{text} [{code}]" if code and code not in text else text


def _hint(status: int, endpoint: Endpoint) -> str:
    key = endpoint.key_name or "the API key"
    match status:
        case 401:
            return f"the key was refused: check {key}"
        case 402:
            return "the account has no credit or quota left"
        case 403:
            return f"{key} may not use this model"
        case 404:
            return f"there is no model {endpoint.model!r} at this address, or base_url is wrong"
        case 429:
            return "the rate limit is reached"
        case _:
            return ""


def retry_after(value: str | None, *, now: float) -> float | None:
    """Seconds to wait from a Retry-After header: a number, or a date."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except ValueError:
        return None


def _certificate_refused(error: BaseException | None) -> bool:
    seen = 0
    while error is not None and seen < 8:
        if isinstance(error, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in str(error):
            return True
        error, seen = error.__cause__ or error.__context__, seen + 1
    return False


async def plain_events(stream: Any) -> AsyncGenerator[WireEvent, None]:
    """An SDK's raw stream as plain dictionaries, closed at the end on every path."""
    try:
        async for event in stream:
            yield event.to_dict(mode="json")
    finally:
        await stream.close()
