"""Write the generated session's log: `python -m tests.sessions.make`. A test checks that the file is current."""

from pathlib import Path

from cuda_tui.records import encode
from tests.fixtures_session import session_entries

PATH = Path(__file__).with_name("rms_norm_swiglu.jsonl")


def content() -> bytes:
    """The log, one event a line."""
    return b"".join(encode(entry) + b"\n" for entry in session_entries())


if __name__ == "__main__":
    PATH.write_bytes(content())
