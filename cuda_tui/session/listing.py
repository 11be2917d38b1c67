"""The list of past sessions. A damaged one is listed too, and says what is wrong with it."""

from pathlib import Path

from cuda_tui.errors import UsageError
from cuda_tui.events import CandidateEvaluated, Entry, Outcome, SessionEnded, SessionStarted
from cuda_tui.records import Record
from cuda_tui.session.best import best_candidate, headline
from cuda_tui.session.log import Log, parse_line, read_log

_WANTED = (b'"session_started"', b'"candidate_evaluated"', b'"session_ended"')


class Summary(Record):
    """One session as a list shows it. `problem` is empty for a sound log."""

    id: str
    path: str
    title: str = ""
    workspace: str = ""
    model: str = ""
    device: str = ""
    started_at: float | None = None  # seconds since the epoch
    modified_at: float = 0.0
    outcome: Outcome | None = None  # None: it was not ended; interrupted, or still running
    message: str = ""
    candidates: int = 0
    best_ratio: float | None = None  # headline ratio of the best faster candidate
    problem: str = ""


def list_sessions(folder: Path) -> tuple[Summary, ...]:
    """All sessions in `folder`, newest first. Logs that cannot be read are listed with their problem."""
    if not folder.is_dir():
        return ()
    found = [summarise(path) for path in folder.glob("*.jsonl")]
    return tuple(sorted(found, key=lambda summary: summary.started_at or summary.modified_at, reverse=True))


def find_session(folder: Path, name: str | None) -> Path:
    """The log of a session by its id, a unique beginning of it, or a path; None is the newest.

    Raises UsageError where there is none, or more than one.
    """
    if name is None:
        sessions = list_sessions(folder)
        if not sessions:
            raise UsageError(f"there is no session in {folder}", hint="start one with `cuda-tui optimize FILE`")
        return Path(sessions[0].path)
    if name.endswith(".jsonl") or "/" in name:
        path = Path(name)
        if path.is_file():
            return path
        raise UsageError(f"there is no session log {name}", hint="`cuda-tui sessions` lists the sessions")
    matches = [path for path in folder.glob("*.jsonl") if path.stem.startswith(name)]
    exact = [path for path in matches if path.stem == name]
    if len(exact or matches) != 1:
        fact = "no session" if not matches else f"{len(matches)} sessions"
        raise UsageError(f"{fact} in {folder} begin with {name!r}", hint="`cuda-tui sessions` lists the sessions")
    return (exact or matches)[0]


def summarise(path: Path) -> Summary:
    """One log's summary. Only the few lines that it needs are decoded in full."""
    try:
        modified = path.stat().st_mtime
        content = path.read_bytes()
    except OSError as error:
        return Summary(id=path.stem, path=str(path), problem=f"cannot be read: {error.strerror}")
    lines = content.split(b"\n")
    parsed = [parse_line(line.lstrip(b"\0")) for line in lines if any(kind in line for kind in _WANTED)]
    entries = tuple(record for record in parsed if isinstance(record, Entry))
    return _summary(path, entries, modified_at=modified, problem=_damage(lines, entries))


def _damage(lines: list[bytes], entries: tuple[Entry, ...]) -> str:
    if not any(isinstance(entry.event, SessionStarted) for entry in entries):
        return "its first event cannot be read"
    if lines[-1] and isinstance(parse_line(lines[-1]), str):
        return f"its end is torn ({len(lines[-1])} bytes); what is before it can be resumed"
    return ""


def _summary(path: Path, entries: tuple[Entry, ...], *, modified_at: float, problem: str) -> Summary:
    started = next((entry for entry in entries if isinstance(entry.event, SessionStarted)), None)
    opening = started.event if started is not None and isinstance(started.event, SessionStarted) else None
    evaluated = [entry.event for entry in entries if isinstance(entry.event, CandidateEvaluated)]
    ended = next((entry.event for entry in reversed(entries) if isinstance(entry.event, SessionEnded)), None)
    best = best_candidate(evaluated)
    return Summary(
        id=path.stem,
        path=str(path),
        title=opening.title if opening else "",
        workspace=opening.workspace if opening else "",
        model=opening.model if opening else "",
        device=opening.device if opening else "",
        started_at=started.at if started else None,
        modified_at=modified_at,
        outcome=ended.outcome if ended else None,
        message=ended.message if ended else "",
        candidates=len(evaluated),
        best_ratio=headline(best) if best else None,
        problem=problem,
    )


def log_of(folder: Path, name: str | None) -> tuple[Path, Log]:
    """Find and read a session's log."""
    path = find_session(folder, name)
    return path, read_log(path)
