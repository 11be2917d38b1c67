"""Keys: the environment first, then the system's keyring, then a file that only its owner may read. And masking.

A key never leaves the process that talks to the model: workers get an allow-listed environment, and known values are
masked before text reaches the log, the model or a commit.
"""

import os
import re
import threading
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import platformdirs

from cuda_tui.errors import UsageError
from cuda_tui.records import Record

SERVICE = "cuda-tui"
KEYS_FILE = "keys.toml"
SHORTEST = 8  # characters; masking a shorter value would hide ordinary text
KEYRING_S = 3.0  # a locked keyring may wait for a dialogue that nobody sees
VARIABLES = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY")
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|AUTH", re.IGNORECASE)


class Found(Record):
    """A key and where it was found. The value is never printed: it is left out of the text form."""

    value: str
    place: str

    def __repr__(self) -> str:
        return f"Found(place={self.place!r})"

    __str__ = __repr__


def find_key(
    variable: str,
    *,
    environ: Mapping[str, str],
    keys_file: Path,
    ask_keyring: Callable[[str], str | None] | None = None,
) -> Found | None:
    """The key that belongs to a variable's name. Raises UsageError where the file is readable by others."""
    if environ.get(variable):
        return Found(value=environ[variable], place=f"environment variable {variable}")
    stored = (ask_keyring or keyring_value)(variable)
    if stored:
        return Found(value=stored, place=f"the system's keyring, service {SERVICE}")
    value = _from_file(keys_file).get(variable)
    return Found(value=value, place=str(keys_file)) if value else None


def keyring_value(variable: str) -> str | None:
    """The keyring's value; None where there is none, no keyring, or no answer within three seconds."""
    answer: list[str | None] = []

    def ask() -> None:
        try:
            import keyring

            answer.append(keyring.get_password(SERVICE, variable))
        except Exception:  # each backend raises its own: no D-Bus, locked, no backend; all mean that there is no key
            answer.append(None)

    thread = threading.Thread(target=ask, daemon=True, name="keyring")
    thread.start()
    thread.join(KEYRING_S)
    return answer[0] if answer else None


def _from_file(path: Path) -> dict[str, str]:
    try:
        mode = path.stat().st_mode
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(
            f"{path} cannot be read: {error}", hint='it must hold lines like OPENAI_API_KEY = "..."'
        ) from None
    if mode & 0o077:
        raise UsageError(f"{path} can be read by others", hint=f"chmod 600 {path}")
    return {name: value for name, value in values.items() if isinstance(value, str)}


def known_providers(environ: Mapping[str, str] | None = None, keys_file: Path | None = None) -> tuple[str, ...]:
    """One phrase for each key that was found, with its place; never the value."""
    env = os.environ if environ is None else environ
    file = keys_file or platformdirs.user_config_path(SERVICE) / KEYS_FILE
    found = [(name, find_key(name, environ=env, keys_file=file)) for name in VARIABLES]
    return tuple(f"{name} ({key.place})" for name, key in found if key is not None)


def secret_values(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Values to mask: those of variables whose names say so. Paths are no secrets."""
    named = (value for name, value in environ.items() if _SECRET_NAME.search(name) and not value.startswith("/"))
    return tuple({value for value in named if len(value) >= SHORTEST})


class Masker:
    """Replaces known secret values in text."""

    def __init__(self, values: Iterable[str]) -> None:
        self._values = tuple(sorted(values, key=len, reverse=True))

    def add(self, value: str) -> None:
        """Mask one more value from now on."""
        if len(value) >= SHORTEST and value not in self._values:
            self._values = tuple(sorted((*self._values, value), key=len, reverse=True))

    def __call__(self, text: str) -> str:
        for value in self._values:
            if value in text:
                text = text.replace(value, "[secret]")
        return text
