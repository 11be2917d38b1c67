"""What is readable: the system, one interpreter, the folders named; never a home folder, a key or a credential."""

import os
import sys
from pathlib import Path

import pytest

from cuda_tui.errors import UsageError
from cuda_tui.sandbox import access
from cuda_tui.sandbox.access import credential_files, environment, interpreter_paths, readable, system_access


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    for name in (".ssh/id_ed25519", ".config/gh/hosts.yml", ".bash_history", "net.py", "project/model.py"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("secret")
    monkeypatch.setenv("HOME", str(folder))
    return folder


def test_home_folder_itself_is_never_readable(home: Path) -> None:
    for named in (home, home.parent, Path("/")):
        found = system_access(sys.executable, read=[named])
        for path in found.read:
            assert not home.is_relative_to(Path(path)), f"{path} holds the home folder"
            assert not path.startswith(f"{home}/."), f"{path} is where programs keep keys"


def test_visible_files_of_the_home_folder_stay_readable(home: Path) -> None:
    assert readable(home)[0] == [str(home / "net.py"), str(home / "project")]


def test_folder_inside_home_is_readable(home: Path) -> None:
    assert str(home / "project") in system_access(sys.executable, read=[home / "project"]).read


def test_interpreter_in_the_home_folder_does_not_open_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(home))
    interpreter_paths.cache_clear()
    try:
        assert str(home) not in interpreter_paths(sys.executable)
    finally:
        interpreter_paths.cache_clear()


def test_interpreter_that_does_not_run_is_named() -> None:
    with pytest.raises(UsageError, match="/no/such/python does not run"):
        interpreter_paths("/no/such/python")


def test_program_that_is_no_interpreter_is_named() -> None:
    with pytest.raises(UsageError, match="/bin/true does not run"):
        interpreter_paths("/bin/true")


def test_interpreter_is_asked_without_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nenv > {tmp_path}/seen\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("PROVIDER_API_KEY", "canary-123")
    interpreter_paths(str(python))
    assert "canary-123" not in (tmp_path / "seen").read_text()


CREDENTIALS = (
    ".env",
    ".env.local",
    ".netrc",
    "deploy/server.pem",
    "a b/id_rsa",
    ".aws/credentials",
    ".aws/sso/cache/token.json",
    ".docker/config.json",
    ".git/config",
    "deep/er/.git-credentials",
)
HARMLESS = ("model.py", "id_rsa.pub", ".env.example", "docs/keys.md", ".git/HEAD", "config.json")


def test_credential_files_are_found_by_name_and_place(tmp_path: Path) -> None:
    for name in (*CREDENTIALS, *HARMLESS):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    assert sorted(credential_files(tmp_path)) == sorted(str(tmp_path / name) for name in CREDENTIALS)


def test_shallow_credential_is_found_in_a_project_too_large_to_scan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "SCAN_LIMIT", 10)
    for number in range(30):
        (tmp_path / "a_data" / str(number)).mkdir(parents=True)
    (tmp_path / "z_config").mkdir()
    (tmp_path / "z_config" / ".env").write_text("x")
    (tmp_path / ".env").write_text("x")
    assert str(tmp_path / ".env") in credential_files(tmp_path)


def test_environment_is_an_allow_list() -> None:
    base = {"PATH": "/usr/bin", "LANG": "C", "PROVIDER_API_KEY": "canary-123", "AWS_SECRET_ACCESS_KEY": "canary-123"}
    found = environment(base | {"LD_PRELOAD": "/x.so", "PYTHONSTARTUP": "/x.py"}, python="/opt/venv/bin/python")
    assert "canary-123" not in found.values()
    assert not {"LD_PRELOAD", "PYTHONSTARTUP"} & set(found)
    assert found["PATH"] == "/opt/venv/bin:/usr/bin"
    assert found["LANG"] == "C"
    assert found["HOME"] == "/tmp"


def test_stub_libraries_of_the_toolkit_are_dropped() -> None:
    base = {"LD_LIBRARY_PATH": "/cuda/lib64:/cuda/lib64/stubs:/cuda/stubs/"}
    assert environment(base, python=sys.executable)["LD_LIBRARY_PATH"] == "/cuda/lib64"


def test_path_without_the_interpreter_gets_it_first() -> None:
    assert environment({}, python="/v/bin/python")["PATH"].split(os.pathsep)[0] == "/v/bin"
