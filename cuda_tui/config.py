"""Settings: flags > environment > project TOML > user TOML > defaults. Read once, in cli, and passed down."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from cuda_tui.errors import UsageError
from cuda_tui.records import Record

PROJECT_FILE = "cuda-tui.toml"
USER_FILE = "config.toml"
Wire: TypeAlias = Literal["messages", "responses", "chat"]
ApprovalName: TypeAlias = Literal["step", "edits", "auto"]


class ProviderSettings(Record, forbid_unknown_fields=True):
    """How one provider is reached. `key_env` names the variable of its key; empty means that it needs none."""

    wire: Wire = "chat"
    base_url: str | None = None
    key_env: str = ""
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    extra: dict[str, Any] = msgspec.field(default_factory=dict)  # further fields of each request
    effort: str | None = None
    max_tokens: int | None = None


PROVIDERS: dict[str, ProviderSettings] = {
    "anthropic": ProviderSettings(wire="messages", base_url="https://api.anthropic.com", key_env="ANTHROPIC_API_KEY"),
    "openai": ProviderSettings(wire="responses", base_url="https://api.openai.com/v1", key_env="OPENAI_API_KEY"),
    "openrouter": ProviderSettings(base_url="https://openrouter.ai/api/v1", key_env="OPENROUTER_API_KEY"),
    "ollama": ProviderSettings(base_url="http://127.0.0.1:11434/v1"),
    "vllm": ProviderSettings(base_url="http://127.0.0.1:8000/v1"),
    "llamacpp": ProviderSettings(base_url="http://127.0.0.1:8080/v1"),
}
BASE_URL_VARIABLES = {"openai": "OPENAI_BASE_URL", "anthropic": "ANTHROPIC_BASE_URL"}


class Settings(Record, forbid_unknown_fields=True):
    """Everything that can be set. None leaves the choice to the program."""

    model: str = "autopilot"
    approve: ApprovalName = "step"
    device: str | None = None
    python: str | None = None
    workspace: str | None = None  # only as a flag: one workspace belongs to one model
    turns: int = 200
    tokens: int | None = None
    minutes: float | None = None
    theme: str | None = None
    providers: dict[str, ProviderSettings] = msgspec.field(default_factory=dict)

    def provider(self, name: str) -> ProviderSettings:
        """A provider's settings. Raises UsageError for an unknown name."""
        found = self.providers.get(name, PROVIDERS.get(name))
        if found is None:
            known = ", ".join(sorted({*PROVIDERS, *self.providers, "autopilot", "scripted"}))
            raise UsageError(
                f"there is no provider {name!r}; known are {known}",
                hint=f"describe it in {USER_FILE} as [providers.{name}] with base_url and key_env",
            )
        return found


_VARIABLES: dict[str, type[str] | type[int] | type[float]] = {
    "model": str,
    "approve": str,
    "device": str,
    "python": str,
    "turns": int,
    "tokens": int,
    "minutes": float,
    "theme": str,
}


def load_settings(flags: Mapping[str, Any], *, environ: Mapping[str, str], project: Path, user: Path) -> Settings:
    """The settings in force. `project` and `user` are TOML files that may be missing; a flag of None was not given.

    Raises UsageError naming the file and the key that cannot be used.
    """
    layers = [_from_file(user), _from_file(project), _from_environment(environ)]
    layers.append({name: value for name, value in flags.items() if value is not None})
    merged: dict[str, Any] = {}
    providers: dict[str, dict[str, Any]] = {}
    for layer in layers:
        for name, values in layer.get("providers", {}).items():
            providers.setdefault(name, {}).update(values)
        merged |= {name: value for name, value in layer.items() if name != "providers"}
    merged["providers"] = {name: _completed(name, values) for name, values in providers.items()}
    try:
        return checked(msgspec.convert(merged, Settings))
    except msgspec.ValidationError as error:
        raise UsageError(
            f"a setting cannot be used: {error}", hint="look at the flags and CUDA_TUI_ variables"
        ) from None


def checked(settings: Settings) -> Settings:
    """The same settings. Raises UsageError where a value is of the right type and still means nothing."""
    if settings.device is not None and not re.fullmatch(r"cpu|cuda(:\d+)?", settings.device):
        raise UsageError(f"there is no device {settings.device!r}", hint="say cpu, cuda, or cuda:N for the Nth GPU")
    for name in ("turns", "tokens", "minutes"):
        value = getattr(settings, name)
        if value is not None and not value > 0:
            raise UsageError(f"{name} is {value:g}, and nothing can be done within that", hint="say a number above 0")
    return settings


def _completed(name: str, values: dict[str, Any]) -> dict[str, Any]:
    """A provider's values on top of the built-in ones. Another address of a known vendor speaks Chat unless said."""
    built_in = PROVIDERS.get(name)
    base: dict[str, Any] = msgspec.to_builtins(built_in) if built_in else {}
    moved = built_in is not None and values.get("base_url", built_in.base_url) != built_in.base_url
    if moved and name == "openai":
        base["wire"] = "chat"
    return base | values


def _from_file(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint="mend or remove it") from None
    try:
        msgspec.convert({**values, "providers": _checked_providers(values)}, Settings)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {error}", hint="mend or remove that line") from None
    return values


def _checked_providers(values: dict[str, Any]) -> dict[str, Any]:
    providers = values.get("providers", {})
    return {name: _completed(name, entry) for name, entry in providers.items()} if isinstance(providers, dict) else {}


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, kind in _VARIABLES.items():
        raw = environ.get(f"CUDA_TUI_{name.upper()}")
        if raw:
            try:
                values[name] = kind(raw)
            except ValueError:
                raise UsageError(f"CUDA_TUI_{name.upper()}={raw!r} is not a number", hint="unset or mend it") from None
    urls = {name: environ[variable] for name, variable in BASE_URL_VARIABLES.items() if environ.get(variable)}
    if urls:
        values["providers"] = {name: {"base_url": url} for name, url in urls.items()}
    return values
