"""`cuda-tui sessions`: what was done before, damaged sessions included."""

import time

from cuda_tui.cli.surroundings import Folders
from cuda_tui.records import encode
from cuda_tui.session.listing import Summary, list_sessions
from cuda_tui.tools.base import visible


def run(folders: Folders, *, as_json: bool) -> int:
    """Print the sessions, newest first: lines for a person, or one JSON object each."""
    found = list_sessions(folders.sessions)
    for summary in found:
        print(encode(summary).decode() if as_json else visible(line_of(summary)))
    if not found and not as_json:
        print(f"no sessions in {folders.sessions}; start one with `cuda-tui optimize FILE`")
    return 0


def line_of(summary: Summary) -> str:
    """One session in one line."""
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(summary.started_at or summary.modified_at))
    best = f"{summary.best_ratio:.2f}x" if summary.best_ratio is not None else "-"
    ended = summary.outcome.value if summary.outcome else "not ended"
    facts = f"{summary.id:<22} {when}  {summary.title or '?':<28} {summary.model:<24} {best:>7}  {ended}"
    return f"{facts}  DAMAGED: {summary.problem}" if summary.problem else facts
