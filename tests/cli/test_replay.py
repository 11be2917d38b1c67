"""`cuda-tui replay`, up to the screen."""

import subprocess
import sys
from pathlib import Path

import pytest

from cuda_tui.cli.replay import parse_speed
from cuda_tui.cli.screen import speaks_utf8
from cuda_tui.errors import UsageError
from tests.sessions import make


def test_speed_is_one_that_the_player_has() -> None:
    assert [parse_speed(text) for text in ("0.5", "2x", "16", "max")] == [0.5, 2.0, 16.0, float("inf")]
    for wrong in ("3", "fast", "-1"):
        with pytest.raises(UsageError, match="no replay speed"):
            parse_speed(wrong)


def test_locale_decides_about_utf8() -> None:
    assert speaks_utf8({"LANG": "de_DE.UTF-8"})
    assert speaks_utf8({"LC_CTYPE": "C.utf8", "LANG": "C"})
    assert not speaks_utf8({"LC_ALL": "C", "LANG": "en_US.UTF-8"})
    assert not speaks_utf8({})


def test_recorded_session_is_what_the_generator_makes() -> None:
    assert make.PATH.read_bytes() == make.content(), "write it again: python -m tests.sessions.make"


@pytest.mark.slow
def test_replay_without_a_terminal_is_one_clear_message(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "cuda_tui.cli.main", "replay", str(make.PATH)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
    )
    assert ended.returncode == 1
    assert "needs a terminal" in ended.stderr
    assert "Traceback" not in ended.stderr
