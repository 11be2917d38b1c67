"""Which setting wins, and what a bad one says."""

from pathlib import Path
from typing import Any

import pytest

from cuda_tui.config import Settings, load_settings
from cuda_tui.errors import UsageError


def load(folder: Path, flags: dict[str, Any] | None = None, **environ: str) -> Settings:
    return load_settings(flags or {}, environ=environ, project=folder / "cuda-tui.toml", user=folder / "config.toml")


def test_nothing_set_gives_the_defaults(tmp_path: Path) -> None:
    settings = load(tmp_path)
    assert (settings.model, settings.approve, settings.device) == ("autopilot", "step", None)


def test_flags_win_over_environment_over_project_over_user(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('model = "user:x"\nturns = 1\ndevice = "cpu"\nminutes = 4')
    (tmp_path / "cuda-tui.toml").write_text('model = "project:x"\nturns = 2\ndevice = "cuda"')
    settings = load(tmp_path, {"model": "flag:x", "turns": None}, CUDA_TUI_MODEL="env:x", CUDA_TUI_TURNS="3")
    assert (settings.model, settings.turns, settings.device, settings.minutes) == ("flag:x", 3, "cuda", 4)


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ('modle = "x"', "modle"),
        ('approve = "always"', "approve"),
        ("turns = 'many'", "turns"),
        ("= 1", "cannot be read"),
        ("[providers.x]\nbase = 'y'", "base"),
    ],
)
def test_bad_setting_is_named_with_its_file(tmp_path: Path, text: str, fact: str) -> None:
    (tmp_path / "cuda-tui.toml").write_text(text)
    with pytest.raises(UsageError, match=fact) as caught:
        load(tmp_path)
    assert "cuda-tui.toml" in caught.value.message


def test_bad_variable_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="CUDA_TUI_TURNS='many'"):
        load(tmp_path, CUDA_TUI_TURNS="many")


def test_another_address_for_openai_speaks_chat_unless_said_otherwise(tmp_path: Path) -> None:
    assert load(tmp_path).provider("openai").wire == "responses"
    moved = load(tmp_path, OPENAI_BASE_URL="http://127.0.0.1:1/v1").provider("openai")
    assert (moved.wire, moved.base_url, moved.key_env) == ("chat", "http://127.0.0.1:1/v1", "OPENAI_API_KEY")
    (tmp_path / "config.toml").write_text('[providers.openai]\nbase_url = "http://x/v1"\nwire = "responses"')
    assert load(tmp_path).provider("openai").wire == "responses"


def test_own_provider_is_described_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[providers.mine]\nbase_url = "http://x/v1"\nheaders = { a = "b" }')
    assert load(tmp_path).provider("mine").headers == {"a": "b"}
    with pytest.raises(UsageError, match="no provider 'other'"):
        load(tmp_path).provider("other")


@pytest.mark.parametrize(
    ("flags", "fact"),
    [
        ({"device": "tpu"}, "there is no device 'tpu'"),
        ({"device": "cuda:x"}, "there is no device 'cuda:x'"),
        ({"turns": 0}, "turns is 0"),
        ({"minutes": -1.5}, "minutes is -1.5"),
        ({"minutes": float("nan")}, "minutes is nan"),
    ],
)
def test_value_that_means_nothing_is_named(tmp_path: Path, flags: dict[str, Any], fact: str) -> None:
    with pytest.raises(UsageError, match=fact):
        load(tmp_path, flags)
