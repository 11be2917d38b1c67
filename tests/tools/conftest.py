"""A real workspace, made once and copied for each test."""

import shutil
from pathlib import Path

import pytest

from cuda_tui.workspace.task import Task
from cuda_tui.workspace.workspace import Workspace


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("template") / "ws"
    Workspace.create(root, task=Task(name="t"), model_source=b"class Model: pass\n")
    return root


@pytest.fixture
def workspace(template: Path, tmp_path: Path) -> Workspace:
    """A workspace with one commit."""
    shutil.copytree(template, tmp_path / "ws")
    return Workspace.open(tmp_path / "ws")
