"""Slash commands and editing."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from cuda_tui.errors import UsageError
from cuda_tui.events import Approval
from cuda_tui.messages import ToolCall
from cuda_tui.tui.commands import SlashCommand, approval_of, parse_command
from cuda_tui.tui.editing import edit_call


def test_command_and_argument_are_parted() -> None:
    assert parse_command("/approve auto ") == SlashCommand(name="approve", argument="auto")
    assert parse_command("  /help") == SlashCommand(name="help")


@pytest.mark.parametrize(
    "talk", ["make it faster", "/usr/include/x.h is missing", "line 1\n/quit\nline 3", "/quit\nplease"]
)
def test_talk_is_no_command(talk: str) -> None:
    assert parse_command(talk) is None


@pytest.mark.parametrize(("wrong", "word"), [("/undo", "no command"), ("/approve", "needs an argument")])
def test_wrong_command_names_the_next_step(wrong: str, word: str) -> None:
    with pytest.raises(UsageError, match=word) as raised:
        parse_command(wrong)
    assert raised.value.hint


def test_approval_mode_is_known_by_name() -> None:
    assert approval_of("edits") is Approval.EDITS
    with pytest.raises(UsageError, match="yolo"):
        approval_of("yolo")


def editor_that(change: str | None, status: int = 0) -> "Editor":
    """An editor that replaces the whole text."""
    return Editor(change, status)


class Editor:
    """Stands for the person's editor."""

    def __init__(self, change: str | None, status: int) -> None:
        self._change, self._status = change, status
        self.seen = ""
        self.name = ""

    def __call__(self, command: Sequence[str]) -> int:
        path = Path(command[-1])
        self.name, self.seen = path.name, path.read_text(encoding="utf-8")
        if self._change is not None:
            path.write_text(self._change, encoding="utf-8")
        return self._status


def test_file_content_is_edited_as_the_file_it_is() -> None:
    call = ToolCall(id="1", name="write_file", arguments={"path": "kernels/a.cu", "content": "old"})
    editor = editor_that("new")
    assert edit_call(call, editor=["vi"], run=editor) == {"path": "kernels/a.cu", "content": "new"}
    assert (editor.name, editor.seen) == ("proposal.cu", "old")


def test_unchanged_proposal_is_no_answer() -> None:
    call = ToolCall(id="1", name="shell", arguments={"command": "ls"})
    assert edit_call(call, editor=["vi"], run=editor_that(None)) is None


def test_other_arguments_are_edited_as_json() -> None:
    call = ToolCall(id="1", name="restore", arguments={"commit": "abc"})
    assert edit_call(call, editor=["vi"], run=editor_that('{"commit": "def"}')) == {"commit": "def"}
    with pytest.raises(UsageError, match="not JSON"):
        edit_call(call, editor=["vi"], run=editor_that("{"))
    with pytest.raises(UsageError, match="not a JSON object"):
        edit_call(call, editor=["vi"], run=editor_that("[1]"))


def test_editor_that_fails_changes_nothing() -> None:
    call = ToolCall(id="1", name="shell", arguments={"command": "ls"})
    with pytest.raises(UsageError, match="ended with 1"):
        edit_call(call, editor=["vi"], run=editor_that("rm", status=1))
