"""The session log survives what kills a process (field case A-01)."""

import os
from pathlib import Path

import msgspec
import pytest

from cuda_tui.errors import UsageError
from cuda_tui.events import (
    Approval,
    Entry,
    ReplyReceived,
    SessionStarted,
    ToolFinished,
    Unknown,
    UserSpoke,
)
from cuda_tui.messages import AssistantReply, ReadDetails, ToolCall, ToolResult
from cuda_tui.records import encode
from cuda_tui.session.listing import find_session, list_sessions
from cuda_tui.session.log import INTERRUPTED, read_log
from cuda_tui.session.store import INLINE_LIMIT, Session

STARTED = SessionStarted(
    session="s1",
    title="model.py:Model",
    workspace="ws",
    device="cpu",
    model="scripted",
    approval=Approval.AUTO,
    version="0",
)


def written(folder: Path, *texts: str) -> Path:
    with Session.create(folder, STARTED) as session:
        for text in texts:
            session.append(UserSpoke(text=text))
        return session.path


def texts(path: Path) -> list[str]:
    return [entry.event.text for entry in read_log(path).entries if isinstance(entry.event, UserSpoke)]


def test_log_reads_back_what_was_appended(tmp_path: Path) -> None:
    path = written(tmp_path, "a", "b")
    log = read_log(path)
    assert texts(path) == ["a", "b"]
    assert [entry.seq for entry in log.entries] == [0, 1, 2]
    assert not log.problems
    assert path.stat().st_mode & 0o077 == 0


def test_torn_last_record_is_moved_aside_and_a_new_message_survives_the_next_resume(tmp_path: Path) -> None:
    path = written(tmp_path, "a", "b")
    os.truncate(path, path.stat().st_size - 25)
    with Session.resume(path) as session:
        assert session.dropped_bytes > 0
        assert session.log.problems[0].line == 3
        session.append(UserSpoke(text="c"))
    assert texts(path) == ["a", "c"]
    assert any(file.name.startswith("torn-at-") for file in path.with_suffix("").iterdir())
    assert not read_log(path).problems


def test_nul_tail_is_moved_aside_and_every_whole_record_is_kept(tmp_path: Path) -> None:
    path = written(tmp_path, "a", "b")
    with path.open("ab") as file:
        file.write(b"\0" * 600)
    with Session.resume(path) as session:
        assert session.dropped_bytes == 600
        session.append(UserSpoke(text="c"))
    assert texts(path) == ["a", "b", "c"]


def test_foreign_line_is_reported_by_its_number_and_skipped(tmp_path: Path) -> None:
    path = written(tmp_path, "a")
    with path.open("ab") as file:
        file.write('{"role":"user","text":"a\u2028b"}\n'.encode())
    with Session.resume(path) as session:
        assert [problem.line for problem in session.log.problems] == [3]
        session.append(UserSpoke(text="c"))
    assert texts(path) == ["a", "c"]


def test_record_without_its_line_feed_is_kept(tmp_path: Path) -> None:
    path = written(tmp_path, "a", "b")
    os.truncate(path, path.stat().st_size - 1)
    with Session.resume(path) as session:
        assert session.dropped_bytes == 0
        session.append(UserSpoke(text="c"))
    assert texts(path) == ["a", "b", "c"]


@pytest.mark.parametrize("text", ["a\u2028b\u2029c", "lone \ud800 surrogate", "nul \0 inside", "line\nfeed\r"])
def test_any_text_is_one_line_of_the_log(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text, "next")
    assert path.read_bytes().count(b"\n") == 3
    assert len(texts(path)) == 2


def test_event_of_an_unknown_kind_is_kept_in_its_place(tmp_path: Path) -> None:
    path = written(tmp_path, "a")
    with path.open("ab") as file:
        file.write(b'{"seq":2,"at":1.0,"event":{"kind":"teleported","to":"moon"}}\n')
    log = read_log(path)
    assert isinstance(log.records[-1], Unknown)
    assert log.records[-1].kind == "teleported"
    assert not log.problems


def test_second_writer_is_refused(tmp_path: Path) -> None:
    with Session.create(tmp_path, STARTED) as session, pytest.raises(UsageError, match="another process"):
        Session.resume(session.path)


def test_call_left_open_is_closed_as_interrupted_on_resume(tmp_path: Path) -> None:
    call = ToolCall(id="c1", name="build", arguments={})
    with Session.create(tmp_path, STARTED) as session:
        session.append(ReplyReceived(turn=1, reply=AssistantReply(tool_calls=(call,))))
        path = session.path
    with Session.resume(path) as session:
        last = session.entries[-1].event
    assert isinstance(last, ToolFinished)
    assert last.call_id == "c1"
    assert last.result.content == INTERRUPTED
    with Session.resume(path) as session:
        assert len(session.entries) == 3  # closed once, not again


def test_known_secrets_are_masked_before_they_are_written(tmp_path: Path) -> None:
    with Session.create(tmp_path, STARTED, mask=lambda text: text.replace("canary-123", "***")) as session:
        result = ToolResult(content="key=canary-123", details=ReadDetails(path="x", text="y canary-123"))
        entry = session.append(ToolFinished(call_id="1", name="read", result=result))
        path = session.path
    assert b"canary-123" not in path.read_bytes()
    assert isinstance(entry.event, ToolFinished)
    assert entry.event.result.content == "key=***"


def test_large_output_goes_to_a_side_file_named_in_the_log(tmp_path: Path) -> None:
    big = "x" * (INLINE_LIMIT + 1) + "END"
    with Session.create(tmp_path, STARTED) as session:
        entry = session.append(ToolFinished(call_id="1", name="shell", result=ToolResult(content=big)))
        side = session.side_folder
    assert isinstance(entry.event, ToolFinished)
    content = entry.event.result.content
    assert len(content) < 10_000
    assert content.endswith("END")
    (name,) = [file.name for file in side.iterdir()]
    assert name in content
    assert (side / name).read_text() == big


def test_listing_shows_damaged_sessions_with_their_problem(tmp_path: Path) -> None:
    written(tmp_path, "a")
    (tmp_path / "junk.jsonl").write_bytes(b"\0\0\0garbage")
    (tmp_path / "empty.jsonl").write_bytes(b"")
    found = {summary.id: summary for summary in list_sessions(tmp_path)}
    assert set(found) == {"s1", "junk", "empty"}
    assert found["s1"].problem == ""
    assert found["junk"].problem
    assert found["empty"].problem


def test_listing_names_a_torn_end(tmp_path: Path) -> None:
    path = written(tmp_path, "a", "b")
    os.truncate(path, path.stat().st_size - 10)
    (summary,) = list_sessions(tmp_path)
    assert "torn" in summary.problem
    assert summary.title == "model.py:Model"


def test_session_is_found_by_the_beginning_of_its_name(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert find_session(tmp_path, "s") == path
    with pytest.raises(UsageError, match="no session"):
        find_session(tmp_path, "zz")


def test_unwritable_folder_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write a session log"):
        Session.create(tmp_path / "file" / "sessions", STARTED)


def test_entries_are_plain_json_lines(tmp_path: Path) -> None:
    path = written(tmp_path, "a")
    first = msgspec.json.decode(path.read_bytes().split(b"\n")[0], type=Entry)
    assert encode(first) == path.read_bytes().split(b"\n")[0]
