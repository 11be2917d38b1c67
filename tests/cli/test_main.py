"""The command line as a person meets it: exit codes, one message, and nothing heavy for --help."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cuda_tui.cli import main as command_line
from cuda_tui.cli.main import main
from cuda_tui.errors import InfrastructureError
from tests.session.test_store import written

HEAVY = ("torch", "textual", "openai", "anthropic", "httpx2", "keyring", "bashlex")


@pytest.fixture(autouse=True)
def _private_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STATE", "DATA", "CONFIG", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "forbidden"),
    [
        ("main(['--help'])", HEAVY),
        ("main(['sessions'])", HEAVY),
        ("import cuda_tui.cli.screen", ("torch", "openai", "anthropic", "httpx2", "keyring", "bashlex")),
        ("import cuda_tui.cli.wiring", ("torch", "textual", "openai", "anthropic", "httpx2")),
        ("import cuda_tui.cli.evaluate", ("torch", "textual", "openai", "anthropic", "httpx2")),
    ],
)
def test_heavy_modules_are_not_loaded_before_they_are_needed(statement: str, forbidden: tuple[str, ...]) -> None:
    code = (
        "import sys\nfrom cuda_tui.cli.main import main\n"
        f"try:\n    {statement}\nexcept SystemExit: pass\n"
        f"loaded = [name for name in {forbidden!r} if name in sys.modules]\n"
        "sys.exit('loaded: ' + ', '.join(loaded) if loaded else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_usage_errors_end_with_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["optimize"])
    assert caught.value.code == 1
    assert "FILE" in capsys.readouterr().err


def test_headless_without_auto_approval_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", "model.py", "--headless"]) == 1
    assert "--approve auto" in capsys.readouterr().err


def test_missing_terminal_is_said_with_the_way_around_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 1
    assert "--headless --approve auto" in capsys.readouterr().err


def test_missing_file_is_one_clear_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", "nowhere.py", "--headless", "--approve", "auto"]) == 1
    error = capsys.readouterr().err
    assert "nowhere.py" in error
    assert "Traceback" not in error


def test_missing_key_names_its_variable(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    assert main(["optimize", "m.py", "--headless", "--approve", "auto", "--model", "anthropic:x"]) == 2
    assert "ANTHROPIC_API_KEY" in capsys.readouterr().err


@pytest.mark.parametrize("model", ["nonsense", "nobody:model"])
def test_unknown_model_is_a_usage_error(capsys: pytest.CaptureFixture[str], model: str) -> None:
    assert main(["optimize", "m.py", "--headless", "--approve", "auto", "--model", model]) == 1
    assert model.partition(":")[0] in capsys.readouterr().err


def test_error_of_ours_leaves_its_traceback_in_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(arguments: object) -> int:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(command_line, "_sessions", fail)
    assert main(["sessions"]) == 2
    error = capsys.readouterr().err
    assert "ZeroDivisionError: ours" in error
    assert "Traceback" not in error
    assert "Traceback" in (tmp_path / "state" / "cuda-tui" / "cuda-tui.log").read_text()


def test_own_errors_carry_their_exit_code(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(arguments: object) -> int:
        raise InfrastructureError("no compiler", hint="install one")

    monkeypatch.setattr(command_line, "_sessions", fail)
    assert main(["sessions"]) == 2
    assert capsys.readouterr().err == "cuda-tui: no compiler\n  install one\n"


def test_sessions_lists_damaged_ones_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "state" / "cuda-tui" / "sessions"
    path = written(folder, "a")
    os.truncate(path, path.stat().st_size - 5)
    assert main(["sessions"]) == 0
    assert "DAMAGED: its end is torn" in capsys.readouterr().out
    assert main(["sessions", "--json"]) == 0
    assert '"problem":"its end is torn' in capsys.readouterr().out


def test_resume_of_nothing_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resume", "--headless", "--approve", "auto"]) == 1
    assert "no session" in capsys.readouterr().err
