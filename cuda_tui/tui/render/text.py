"""Foreign text made safe to show. Nothing here knows markup: the result is plain text, and no character is lost."""

import re

_ANSI = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor, erase
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: titles, links, clipboard
    r"|\x1b[PX^_][^\x1b]*\x1b\\"  # DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]"  # two-character escapes
)
# Controls, bidirectional marks, invisible joiners, separators that end a line for some, and lone surrogates.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2064\u2066-\u2069\ufeff\ud800-\udfff]"
)


def visible(text: str) -> str:
    r"""Every character that a terminal would act on, or that a reader cannot see, written as its escape (`\x1b`)."""
    return _HIDDEN.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code == 13:
        return r"\r"
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def strip_ansi(text: str) -> str:
    """Without colour and cursor sequences."""
    return _ANSI.sub("", text) if "\x1b" in text else text


def plain(text: str) -> str:
    """Tool output as it is shown: no colours, what overwrote itself shown as it ended, the rest visible."""
    text = strip_ansi(text.replace("\r\n", "\n"))
    if "\r" in text:
        text = "\n".join(line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.split("\n"))
    return visible(text)


def shortened(text: str, width: int) -> str:
    """One line of at most `width` characters, with an ellipsis where something is left out."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: max(0, width - 1)] + "…"
