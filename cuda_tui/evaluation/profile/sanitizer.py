"""compute-sanitizer: its tools on one side, and its first distinct findings."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from cuda_tui.evaluation.profile import programs
from cuda_tui.evaluation.profile.names import shown
from cuda_tui.evaluation.profile.solo import Calls, Ran, Side, Solo
from cuda_tui.records import Record

PRINTED = 100  # errors that the tool describes; it goes on counting
LIMIT_S = 240.0  # every access of every kernel is checked: 10 to 100 times slower
SHOWN = 5
CHECKS = ("memcheck", "racecheck", "initcheck", "synccheck")

Check: TypeAlias = Literal["memcheck", "racecheck", "initcheck", "synccheck"]


class Finding(Record):
    """One distinct error: what, in which kernel, on which line, and one thread that met it."""

    kind: str  # "Invalid __global__ write of size 4 bytes"
    kernel: str
    file: str = ""
    line: int | None = None
    thread: str = ""  # "thread (65,0,0) in block (0,0,0)"
    detail: str = ""
    times: int = 1

    @property
    def place(self) -> str:
        """`file:line` where the library was built with line information."""
        return f"{self.file}:{self.line}" if self.file else ""


class Checked(Record):
    """What one check found. `ran` is False where it could not be done, with the reason in `problem`."""

    check: str
    ran: bool
    findings: tuple[Finding, ...] = ()
    errors: int = 0  # as the tool counts them; it describes the first 100, and of those the distinct ones are kept
    problem: str = ""


@dataclass
class Sanitizer:
    """compute-sanitizer for one evaluator. A refusal by the machine stands for the whole session."""

    solo: Solo
    refused: str = ""

    def check(self, side: Side, check: Check, *, limit_s: float = LIMIT_S) -> Checked:
        """Run one check on a side. A tool that is missing or refuses the device is said so, not raised."""
        runtime = self.solo.runtime
        program = programs.find("compute-sanitizer", env=runtime.environment, python=runtime.python)
        if program is None or self.refused:
            return Checked(check=check, ran=False, problem=self.refused or programs.absent("compute-sanitizer"))

        def command(log: Path) -> list[str]:
            # It waits only 10 s for a program's first CUDA call, and torch may take longer until there.
            options = ["--tool", check, "--print-limit", str(PRINTED), "--launch-timeout", str(int(limit_s))]
            return [program, *options, "--show-backtrace", "no", "--log-file", str(log)]

        # torch's own allocator hands out parts of larger blocks, in which no access is out of bounds.
        variables = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        how = Calls(warm=0, calls=1, limit_s=limit_s, variables=variables)
        try:
            ran = self.solo.run(side, tool=command, how=how)
        except OSError as error:
            return Checked(check=check, ran=False, problem=f"compute-sanitizer does not start: {error}")
        found = judged(ran, check, limit_s=limit_s, sources=side.sources)
        if "not supported" in found.problem:
            self.refused = found.problem
        return found


def judged(ran: Ran, check: str, *, limit_s: float, sources: Sequence[str] = ()) -> Checked:
    """A run of the tool as a record; `sources` are the paths that its places can mean."""
    text = ran.log or ran.output
    found, errors = parse(text, sources)
    if found:
        return Checked(check=check, ran=True, findings=found, errors=errors or len(found))
    if re.search(r"[Dd]evice not supported|not supported on this device|unsupported device", ran.text):
        words = ran.first_words("upported")
        return Checked(check=check, ran=False, problem=f"compute-sanitizer is not supported here: {words}")
    if ran.timed_out:
        return Checked(check=check, ran=False, problem=f"{check} did not end in {limit_s:.0f} s and was stopped")
    if "SUMMARY" not in text:
        words = ran.first_words("Error", "error")
        return Checked(check=check, ran=False, problem=f"compute-sanitizer failed: {words}")
    if ran.error is not None:
        return Checked(check=check, ran=False, problem=f"the call itself failed: {ran.error.get('message', '')[:200]}")
    return Checked(check=check, ran=True)


# ---- its report: blocks of lines that begin with "=========", the first of a block without an indent

_PREFIX = "========="
_AT = re.compile(r"\bat (?P<kernel>.+?)\+0x[0-9a-f]+(?: in (?P<file>.+?):(?P<line>\d+))?(?:\s|$)")
_BY = re.compile(r"by (thread \(\d+,\d+,\d+\) in block \(\d+,\d+,\d+\))")
_RACE = re.compile(
    r"Race reported between (?P<first>\w+) access at (?P<kernel>.+?)\+0x[0-9a-f]+(?: in (?P<file>.+?):(?P<line>\d+))?$"
)
_SUMMARY = re.compile(r"SUMMARY: (\d+) (?:errors?|hazards?)")
_API = re.compile(r"Program hit .+ on CUDA API call to (\w+)")


def parse(text: str, sources: Sequence[str] = ()) -> tuple[tuple[Finding, ...], int]:
    """The distinct findings in the order of the report, and how many errors the tool counted."""
    blocks: list[list[str]] = []
    total = 0
    for line in text.splitlines():
        if not line.startswith(_PREFIX):
            continue
        body = line[len(_PREFIX) :]
        if match := _SUMMARY.search(body):
            total = max(total, int(match[1]))
        if body.startswith("     ") and blocks:
            blocks[-1].append(body.strip())
        elif body.strip():
            blocks.append([body.strip()])
    found = [finding for block in blocks if (finding := _finding(block, sources)) is not None]
    return _distinct(found), total


def _finding(block: list[str], sources: Sequence[str]) -> Finding | None:
    head = block[0]
    if match := _RACE.search(head):
        others = [_access(line, sources) for line in block[1:] if line.startswith("and ")]
        return Finding(
            kind=f"race: {match['first'].lower()} against {', '.join(others[:2]) or 'another access'}",
            kernel=shown(match["kernel"]),
            file=short_path(match["file"], sources),
            line=int(match["line"]) if match["line"] else None,
        )
    if match := _API.search(head):
        # What a library asks of the driver while it looks around is no error of the candidate's.
        return Finding(kind=head[:200], kernel="") if "Launch" in match[1] else None
    place = next((match for line in block[1:] if (match := _AT.search(line))), None)
    if place is None:
        return None
    thread = next((match[1] for line in block[1:] if (match := _BY.search(line))), "")
    kept = [line for line in block[1:] if not _AT.search(line) and not _BY.search(line)]
    return Finding(
        kind=head[:200],
        kernel=shown(place["kernel"]),
        file=short_path(place["file"], sources),
        line=int(place["line"]) if place["line"] else None,
        thread=thread,
        detail="; ".join(_plain(kept)[:2])[:200],
    )


_NEAREST = re.compile(
    r"and is (?P<count>[\d,]+) bytes? (?P<side>before|after) the nearest allocation at 0x[0-9a-f]+"
    r" of size (?P<size>[\d,]+ bytes?)"
)
_ADDRESS = re.compile(r"\s*(?:\b(?:at|to)\s+)?(?:\baddress\s+)?0x[0-9a-f]+", re.IGNORECASE)


def _plain(lines: Iterable[str]) -> list[str]:
    """What the tool says beside kind, place and thread, without addresses: they are others in the next run."""
    found = []
    for line in lines:
        if match := _NEAREST.search(line):
            found.append(f"{match['count']} bytes {match['side']} the nearest allocation, which has {match['size']}")
            continue
        words = _ADDRESS.sub("", line).strip().removeprefix("Access is ")
        if words and not words.startswith("Saved host"):
            found.append(words)
    return found


def _access(line: str, sources: Sequence[str]) -> str:
    kind = line.removeprefix("and ").split(" ")[0].lower()
    match = re.search(r" in (.+?):(\d+)", line)
    return f"{kind} at {short_path(match[1], sources)}:{match[2]}" if match else kind


def short_path(path: str | None, sources: Sequence[str] = ()) -> str:
    """Inside the workspace where it is one of its kernels; else the file's name.

    The tool may give no more than a name: that of exactly one of `sources` means that one.
    """
    if not path:
        return ""
    place = path.rfind("kernels/")
    if place >= 0:
        return path[place:]
    name = Path(path).name
    same = [source for source in sources if Path(source).name == name]
    return same[0] if len(same) == 1 else name


def _distinct(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    found: dict[tuple[Any, ...], list[Finding]] = {}
    for item in findings:
        found.setdefault((item.kind, item.kernel, item.file, item.line), []).append(item)
    return tuple(
        Finding(
            kind=group[0].kind, kernel=group[0].kernel, file=group[0].file, line=group[0].line,
            thread=group[0].thread, detail=group[0].detail, times=len(group),
        )
        for group in found.values()
    )  # fmt: skip
