import os
import subprocess
from pathlib import Path

import pytest

from cuda_tui.errors import UsageError, WorkspaceError
from cuda_tui.workspace.adopt import adopt
from cuda_tui.workspace.task import Task
from cuda_tui.workspace.workspace import Workspace

MODEL = b"class Model: pass\n"

pytestmark = pytest.mark.slow  # each test starts git several times


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace.create(tmp_path / "space", task=Task(name="silu"), model_source=MODEL)


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout


def test_new_workspace_opens_again_with_the_same_task(workspace: Workspace) -> None:
    opened = Workspace.open(workspace.root)
    assert opened.task == workspace.task
    assert opened.head() == workspace.head()
    assert git(workspace.root, "status", "--porcelain") == ""


def test_task_file_keeps_its_comments(workspace: Workspace) -> None:
    text = (workspace.root / "task.toml").read_text()
    assert "# What is optimised" in text
    assert 'name = "silu"' in text


def test_task_without_init_function_survives_the_file(tmp_path: Path) -> None:
    task = Task(name="plain", init=None, architectures=("sm_90a",), link=("cublas",), project_root="/srv/project")
    Workspace.create(tmp_path / "space", task=task, model_source=MODEL)
    assert Workspace.open(tmp_path / "space").task == task


def test_unknown_key_in_the_task_is_named(workspace: Workspace) -> None:
    (workspace.root / "task.toml").write_text('name = "x"\nspeed = 3\n')
    with pytest.raises(WorkspaceError, match="speed"):
        Workspace.open(workspace.root)


def test_changed_and_missing_protected_files_are_reported_and_restored(workspace: Workspace) -> None:
    assert workspace.protected_problems() == []
    (workspace.root / "model.py").write_text("class Model: fast = True\n")
    (workspace.root / "kernels/cuda_tui.h").unlink()
    problems = workspace.protected_problems()
    assert "model.py was changed" in problems
    assert any("kernels/cuda_tui.h is missing" in problem for problem in problems)
    assert sorted(workspace.restore_protected()) == ["kernels/cuda_tui.h", "model.py"]
    assert workspace.protected_problems() == []
    assert (workspace.root / "model.py").read_bytes() == MODEL


def test_forged_hash_record_does_not_hide_a_change(workspace: Workspace) -> None:
    (workspace.root / "model.py").write_text("class Model: fast = True\n")
    from cuda_tui.workspace import protected

    protected.record(workspace.root, workspace.protected_names())
    assert any(problem.startswith("model.py") for problem in workspace.protected_problems())


@pytest.mark.parametrize("path", ["../outside.txt", "/etc/hostname", "kernels/../../outside.txt", "link/file"])
def test_path_that_leaves_the_workspace_is_refused(workspace: Workspace, tmp_path: Path, path: str) -> None:
    (workspace.root / "link").symlink_to(tmp_path)
    with pytest.raises(UsageError, match="outside"):
        workspace.write(path, "x")
    with pytest.raises(UsageError, match="outside"):
        workspace.read(path)


@pytest.mark.parametrize(
    "path", ["model.py", "kernels/../model.py", "task.toml", ".git/config", ".cuda-tui/protected.json"]
)
def test_protected_and_internal_files_cannot_be_written(workspace: Workspace, path: str) -> None:
    with pytest.raises(UsageError):
        workspace.write(path, "x")


def test_write_returns_the_diff_that_was_proposed(workspace: Workspace) -> None:
    proposed = workspace.propose("kernels/a.cpp", "int x;\n")
    assert workspace.write("kernels/a.cpp", "int x;\n") == proposed
    assert "+int x;" in proposed
    assert "kernels/a.cpp" in workspace.list_files()
    assert "+int x;" in workspace.diff_from_start()


def test_commit_without_change_is_none(workspace: Workspace) -> None:
    assert workspace.commit("nothing") is None
    workspace.write("kernels/a.cpp", "int x;\n")
    commit = workspace.commit("step")
    assert commit == workspace.head()
    assert commit is not None
    assert "+int x;" in workspace.diff_from_start()
    assert git(workspace.root, "status", "--porcelain") == ""


def test_commit_meets_no_hook_no_signature_and_a_missing_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text("[commit]\n gpgsign = true\n[gpg]\n program = /bin/false\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "none"))
    before = (home / ".gitconfig").read_text()
    workspace = Workspace.create(tmp_path / "space", task=Task(name="x"), model_source=MODEL)
    hook = workspace.root / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    workspace.write("kernels/a.cpp", "int x;\n")
    assert workspace.commit("step")
    assert git(workspace.root, "log", "-1", "--format=%an <%ae>").strip() == "cuda-tui <cuda-tui@localhost>"
    assert (home / ".gitconfig").read_text() == before


def test_identity_of_the_person_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".gitconfig").write_text("[user]\n name = Ada\n email = ada@example.org\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    workspace = Workspace.create(tmp_path / "space", task=Task(name="x"), model_source=MODEL)
    assert git(workspace.root, "log", "-1", "--format=%an <%ae>").strip() == "Ada <ada@example.org>"


def test_repository_around_the_workspace_is_never_touched(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "mine.py").write_text("x = 1\n")
    git(tmp_path, "add", "mine.py")
    before = git(tmp_path, "status", "--porcelain", "mine.py"), (tmp_path / ".git/index").read_bytes()
    workspace = Workspace.create(tmp_path / "space", task=Task(name="x"), model_source=MODEL)
    workspace.write("kernels/a.cpp", "int x;\n")
    workspace.commit("step")
    assert before == (git(tmp_path, "status", "--porcelain", "mine.py"), (tmp_path / ".git/index").read_bytes())


def test_restore_goes_back_and_can_be_undone(workspace: Workspace) -> None:
    start = workspace.head()
    workspace.write("kernels/a.cpp", "int x;\n")
    step = workspace.commit("step")
    workspace.write("kernels/a.cpp", "int y;\n")  # written, not committed
    assert start is not None
    assert step is not None
    back = workspace.restore(start)
    assert not (workspace.root / "kernels/a.cpp").exists()
    assert workspace.head() == back
    assert workspace.diff_from_start() == ""
    workspace.restore(f"{back}~1")
    assert workspace.read("kernels/a.cpp") == "int y;\n"
    workspace.restore(step)
    assert workspace.read("kernels/a.cpp") == "int x;\n"


def test_restore_stops_at_files_that_someone_else_changed(workspace: Workspace) -> None:
    start = workspace.head()
    assert start is not None
    workspace.write("kernels/a.cpp", "int x;\n")
    workspace.commit("step")
    (workspace.root / "kernels/a.cpp").write_text("int mine;\n")
    with pytest.raises(WorkspaceError, match=r"kernels/a\.cpp"):
        workspace.restore(start)
    assert workspace.read("kernels/a.cpp") == "int mine;\n"
    back = workspace.restore(start, include_others=True)
    workspace.restore(f"{back}~1")
    assert workspace.read("kernels/a.cpp") == "int mine;\n"


def test_large_new_files_stay_out_of_commits_and_copies(workspace: Workspace, tmp_path: Path) -> None:
    with open(workspace.root / "weights.bin", "wb") as file:
        file.truncate(50 << 20)
    workspace.write("kernels/a.cpp", "int x;\n")
    workspace.commit("step")
    assert "weights.bin" not in git(workspace.root, "ls-files")
    copied = workspace.snapshot_copy(tmp_path / "copy")
    assert copied.skipped == ("weights.bin",)
    assert (tmp_path / "copy/kernels/a.cpp").read_text() == "int x;\n"
    assert not (tmp_path / "copy/.git").exists()


def test_home_and_root_folders_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "people/me"))
    (tmp_path / "people/me").mkdir(parents=True)
    for folder in (Path("/"), tmp_path / "people/me", tmp_path / "people"):
        with pytest.raises(UsageError, match="home folder"):
            Workspace.create(folder, task=Task(name="x"), model_source=MODEL)


def test_folder_with_files_and_unusable_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").write_text("x")
    with pytest.raises(UsageError, match="not empty"):
        Workspace.create(tmp_path / "full", task=Task(name="x"), model_source=MODEL)
    with pytest.raises(UsageError, match="cannot be used"):
        Workspace.create(tmp_path / "full/file/below", task=Task(name="x"), model_source=MODEL)


@pytest.mark.skipif(os.geteuid() != 0, reason="changes a folder's owner")
def test_workspace_of_a_foreign_owner_still_commits(workspace: Workspace) -> None:
    for folder, _, files in os.walk(workspace.root):
        for name in [folder, *(os.path.join(folder, file) for file in files)]:
            os.lchown(name, 12345, 12345)
    workspace.write("kernels/a.cpp", "int x;\n")
    assert Workspace.open(workspace.root).commit("step")


def test_folder_of_the_fields_form_is_adopted_by_copy(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    (folder / "kernels").mkdir(parents=True)
    (folder / "model.py").write_text("class Model: pass\ndef get_init_inputs(): return []\n")
    (folder / "model_new.py").write_text("import cuda_extension\n")
    (folder / "binding.cpp").write_text("// binding\n")
    (folder / "binding_registry.h").write_text("#pragma once\n")
    (folder / "kernels/a.cu").write_text("// kernel\n")
    (folder / "kernels/a_binding.cpp").write_text("// binding of a\n")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    workspace = adopt(folder, root=tmp_path / "space")
    assert workspace.task.device == "cuda"
    assert workspace.task.init == "get_init_inputs"
    assert {"binding.cpp", "binding_registry.h", "kernels/a.cu", "kernels/a_binding.cpp"} <= set(workspace.list_files())
    assert workspace.read("model_new.py") == "import cuda_extension\n"
    assert workspace.protected_problems() == []
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
