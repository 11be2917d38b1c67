"""From an endpoint and the name of its wire format to a provider. SDKs are imported on first use, not here."""

from typing import Literal

from cuda_tui.agent.protocols import Provider
from cuda_tui.providers.wire import Endpoint


def make_provider(endpoint: Endpoint, *, wire: Literal["messages", "responses", "chat"]) -> Provider:
    """A provider that speaks `wire`."""
    if wire == "messages":
        from cuda_tui.providers.anthropic_messages import AnthropicMessages

        return AnthropicMessages(endpoint)
    if wire == "responses":
        from cuda_tui.providers.openai_responses import OpenAIResponses

        return OpenAIResponses(endpoint)
    from cuda_tui.providers.openai_chat import OpenAIChat

    return OpenAIChat(endpoint)
