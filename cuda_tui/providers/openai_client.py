"""The OpenAI SDK's client, as both of its wire formats use it."""

from typing import Any

from cuda_tui.providers.wire import CONNECT_S, SILENCE_S, Endpoint


def connect(endpoint: Endpoint) -> Any:
    """A client for one request that never retries by itself. The import is slow: call this in a thread."""
    import httpx2
    import openai

    return openai.AsyncOpenAI(
        api_key=endpoint.key or "none",  # local servers take any; the SDK wants one
        base_url=endpoint.base_url,
        default_headers=endpoint.headers,
        max_retries=0,
        timeout=httpx2.Timeout(SILENCE_S, connect=CONNECT_S),
    )
