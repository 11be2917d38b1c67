"""Keys are found, never shown, and masked (field case A-11)."""

from pathlib import Path

import pytest

from cuda_tui.errors import UsageError
from cuda_tui.secrets import Found, Masker, find_key, known_providers, secret_values


def no_keyring(variable: str) -> str | None:
    return None


def test_environment_comes_before_keyring_before_file(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text('OPENAI_API_KEY = "from-file"')
    file.chmod(0o600)

    def find(environ: dict[str, str], stored: str | None) -> Found | None:
        return find_key("OPENAI_API_KEY", environ=environ, keys_file=file, ask_keyring=lambda name: stored)

    by_environment, by_keyring, by_file = find({"OPENAI_API_KEY": "e"}, "k"), find({}, "k"), find({}, None)
    assert by_environment is not None
    assert by_keyring is not None
    assert by_file is not None
    assert (by_environment.value, by_keyring.value, by_file.value) == ("e", "k", "from-file")


def test_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text('OPENAI_API_KEY = "x"')
    file.chmod(0o644)
    with pytest.raises(UsageError, match="can be read by others"):
        find_key("OPENAI_API_KEY", environ={}, keys_file=file, ask_keyring=no_keyring)


def test_value_is_in_no_text_form() -> None:
    found = Found(value="canary-123", place="here")
    assert "canary" not in f"{found!r} {found}"


def test_known_providers_say_where_and_never_what(tmp_path: Path) -> None:
    phrases = known_providers({"OPENAI_API_KEY": "canary-123"}, tmp_path / "keys.toml")
    (phrase,) = [phrase for phrase in phrases if "OPENAI" in phrase]
    assert phrase == "OPENAI_API_KEY (environment variable OPENAI_API_KEY)"


def test_secrets_are_masked_by_value_the_longest_first() -> None:
    environ = {"A_TOKEN": "abcdefgh", "B_KEY": "abcdefgh-long", "PASSWORD_FILE": "/run/secrets/x", "PATH": "/usr/bin"}
    mask = Masker(secret_values(environ))
    mask.add("from-keyring")
    assert mask("x abcdefgh-long y abcdefgh z from-keyring /run/secrets/x") == (
        "x [secret] y [secret] z [secret] /run/secrets/x"
    )


def test_short_values_are_not_masked() -> None:
    assert secret_values({"KEY": "1"}) == ()
