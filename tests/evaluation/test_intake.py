"""From what the person named to a workspace, and one clear message for everything that can be missing."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cuda_tui.errors import UsageError
from cuda_tui.evaluation import intake
from cuda_tui.evaluation.intake import Wanted, imports_alone, known_as, open_target, parse_target, rename_class
from cuda_tui.evaluation.runtime import Interpreter
from cuda_tui.evaluation.worker.loading import describe_file, import_file
from cuda_tui.workspace.task import Task
from cuda_tui.workspace.workspace import Workspace

pytestmark = pytest.mark.slow

Open = Callable[..., Workspace]
HEAD = "import torch\n\n\n"
NET = "class Net(torch.nn.Module):\n    def forward(self, x):\n        return x * 2\n"
INPUTS = "\n\ndef get_inputs():\n    return [torch.randn(4, 8)]\n"


@pytest.fixture
def opened(tmp_path: Path, interpreter: Interpreter) -> Open:
    """opened(target) -> Workspace."""

    def call(target: object, **arguments: object) -> Workspace:
        return open_target(
            str(target),
            interpreter=interpreter,
            workspaces=tmp_path / "workspaces",
            **arguments,  # type: ignore[arg-type]
        )

    return call


def file(folder: Path, text: str, name: str = "net.py") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_class_and_inputs_that_were_named_become_the_task(opened: Open, tmp_path: Path) -> None:
    text = HEAD + NET + NET.replace("Net", "Other") + "\n\nbatch = {'x': torch.ones(2, 2)}\n"
    workspace = opened(f"{file(tmp_path, text)}:Other", wanted=Wanted(inputs="batch"))
    assert (workspace.task.class_name, workspace.task.inputs) == ("Other", "batch")
    assert (workspace.root / "model.py").read_text() == text
    assert "class ModelNew(torch.nn.Module)" in (workspace.root / "model_new.py").read_text()


def test_file_in_a_package_imports_its_neighbours_and_data_from_anywhere(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "my proj"
    file(project, "", "pkg/__init__.py")
    file(project, "W = 3\n", "pkg/layers.py")
    file(project, '{"d": 8}', "cfg/m.json")
    net = (
        "import json, torch\nfrom .layers import W\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass C:\n    d: int = W\n"
        "class Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.l = torch.nn.Linear(json.load(open('cfg/m.json'))['d'], 4)\n"
        "    def forward(self, x):\n        return self.l(x)\n"
    )
    path = file(project, net + INPUTS, "pkg/net.py")
    monkeypatch.chdir(tmp_path)
    workspace = opened(f"{path}:Net")
    assert workspace.task.project_root == str(project)
    assert "from pkg.net import Net" in (workspace.root / "model.py").read_text()


def chosen(folder: Path, text: str, class_name: str | None = None, inputs: str | None = None) -> None:
    """What `open_target` decides once the file has been imported, which is done here in this process."""
    path = file(folder, text)
    facts = describe_file(import_file(str(path), "intake_sample", []))
    name = intake.choose_class(facts, class_name, path)
    intake.choose_inputs(facts, inputs, path)
    intake._choose_init(facts, name, path, "get_inputs")


WITH_ARGUMENTS = NET.replace(
    "    def forward", "    def __init__(self, width, *, depth, kind='a'):\n        pass\n\n    def forward"
)


@pytest.mark.parametrize(
    ("text", "named", "message"),
    [
        ("import os\n", {}, "net.py defines no nn.Module"),
        (HEAD + NET + NET.replace("Net", "Two") + INPUTS, {}, "defines several modules: Net, Two"),
        (HEAD + NET + INPUTS, {"class_name": "Nett"}, "no nn.Module named Nett"),
        (HEAD + NET, {}, "does not say what its inputs look like"),
        (HEAD + NET + INPUTS, {"inputs": "batch"}, "no inputs function or value named batch"),
        (HEAD + WITH_ARGUMENTS + INPUTS, {}, "Net in net.py needs constructor arguments: width, depth"),
    ],
)
def test_what_is_missing_in_a_file_is_said_with_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, named: dict[str, str], message: str
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(UsageError, match=message) as caught:
        chosen(tmp_path, text, **named)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "target", "message"),
    [
        (None, "missing.py", "No such file: .*missing.py"),
        (None, "missing.py:Net", "No such file: .*missing.py"),
        (HEAD + "def f(:\n", "net.py", r"net.py.*(:4|invalid syntax)"),
        (HEAD + "import no_such_package\n" + NET + INPUTS, "net.py", r"No module named 'no_such_package'.*net.py:4"),
        (HEAD + NET + INPUTS, "net.txt", "net.txt is not a Python file"),
        (None, ".", "neither a workspace nor a folder with a model.py"),
    ],
)
def test_what_cannot_be_opened_is_said_in_one_message(
    opened: Open, tmp_path: Path, text: str | None, target: str, message: str
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    if text is not None:
        file(folder, text, target.partition(":")[0])
    with pytest.raises(UsageError, match=message) as caught:
        opened(folder / target)
    assert caught.value.hint
    assert "Traceback" not in str(caught.value)
    assert not list((tmp_path / "workspaces").glob("*")), "nothing is left behind"


def test_home_folder_is_no_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UsageError, match="home folder"):
        Workspace.create(tmp_path, task=Task(name="x"), model_source=b"")


def test_model_in_the_home_folder_is_read_without_the_keys_beside_it(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    file(home, "canary-123", ".ssh/id_ed25519")
    spy = f"import os\nassert not os.path.exists({str(home / '.ssh')!r}), 'keys can be read'\n"
    path = file(home, spy + HEAD + NET + INPUTS)
    monkeypatch.setenv("HOME", str(home))
    assert opened(path).task.class_name == "Net"


def test_folder_on_a_read_only_place_is_named(opened: Open, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="/proc"):
        opened(file(tmp_path, HEAD + NET + INPUTS), workspace=Path("/proc/workspace"))


def test_colon_in_a_file_name_is_part_of_the_name(tmp_path: Path) -> None:
    path = file(tmp_path, "", "a:b.py")
    assert parse_target(str(path)).path == str(path)
    assert parse_target(f"{path}:Net").class_name == "Net"


def test_class_is_renamed_where_it_is_used_and_not_in_text() -> None:
    source = (
        'class Net(M):\n    """Net."""\n\n    def f(self):\n        super(Net, self).f()\n        return "Net", Nets\n'
    )
    renamed = rename_class(source, "Net")
    assert renamed.count("ModelNew") == 2
    assert '"""Net."""' in renamed
    assert '"Net", Nets' in renamed


@pytest.mark.parametrize(
    ("text", "alone"),
    [
        ("import torch\n", True),
        ("from .a import b\n", False),
        ("import beside\n", False),
        ("from beside.x import y\n", False),
    ],
)
def test_file_that_needs_its_neighbours_is_recognised(tmp_path: Path, text: str, alone: bool) -> None:
    file(tmp_path, "", "beside.py")
    path = file(tmp_path, text)
    assert imports_alone(path, tmp_path) is alone


def test_file_that_is_called_like_every_other_goes_by_its_folder() -> None:
    assert known_as(Path("/home/me/swiglu/model.py")) == "swiglu"
    assert known_as(Path("/home/me/swiglu/net.py")) == "net"
    assert known_as(Path("/model.py")) == "model"


def test_new_folders_are_numbered(tmp_path: Path) -> None:
    file(tmp_path / "net", "x")
    assert intake.new_folder(tmp_path, "net").name == "net-2"
    assert intake.new_folder(tmp_path, "a b/c").name == "a-b-c"


def test_inputs_with_a_suffix_go_with_the_constructor_arguments_of_that_suffix(opened: Open, tmp_path: Path) -> None:
    model = (
        "class Net(torch.nn.Module):\n    def __init__(self, n):\n        super().__init__()\n        self.n = n\n\n"
    )
    model += "    def forward(self, x):\n        return x * self.n\n"
    text = HEAD + model + INPUTS + "\n\ndef get_init_inputs():\n    return [1]\n"
    text += INPUTS.replace("get_inputs", "get_inputs_large") + "\n\ndef get_init_inputs_large():\n    return [2]\n"
    path = file(tmp_path, text)
    assert opened(path, wanted=Wanted(inputs="get_inputs_large")).task.init == "get_init_inputs_large"
    assert opened(path, wanted=Wanted(inputs="get_inputs")).task.init == "get_init_inputs"
