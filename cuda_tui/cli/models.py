"""From a model's name to its provider: "autopilot", "scripted:FILE" or "PROVIDER:MODEL"."""

from pathlib import Path

from cuda_tui.agent.protocols import Provider
from cuda_tui.cli.surroundings import Surroundings
from cuda_tui.errors import ProviderError, UsageError


def provider_for(around: Surroundings, name: str) -> Provider:
    """The provider behind "autopilot", "scripted:FILE" or "PROVIDER:MODEL". Raises UsageError and ProviderError."""
    if name == "autopilot":
        from cuda_tui.autopilot.provider import Autopilot

        return Autopilot()
    kind, _, model = name.partition(":")
    if not model:
        raise UsageError(f"{name!r} is no model", hint='write "autopilot" or PROVIDER:MODEL, as in ollama:NAME')
    if kind == "scripted":
        from cuda_tui.providers.scripted import ScriptedProvider

        return ScriptedProvider.from_file(Path(model))
    return _wire_provider(around, kind, model)


def _wire_provider(around: Surroundings, kind: str, model: str) -> Provider:
    from cuda_tui.providers.factory import make_provider
    from cuda_tui.providers.wire import Endpoint

    settings = around.settings.provider(kind)
    found = around.key(settings.key_env)
    if settings.key_env and found is None:
        raise ProviderError(
            f"no key for {kind}: {settings.key_env} is not set",
            hint=f"set {settings.key_env}, or use --model autopilot, which needs none",
        )
    endpoint = Endpoint(
        provider=kind,
        model=model,
        key=found.value if found else None,
        key_name=settings.key_env,
        base_url=settings.base_url,
        headers=settings.headers,
        extra=settings.extra,
        effort=settings.effort,
        max_tokens=settings.max_tokens,
    )
    return make_provider(endpoint, wire=settings.wire)
