"""Where a fault happened: one more run of the candidate alone, on the very inputs it failed on.

A failed memory access is looked for with memcheck, where that works. Else, and for a failed assert and a hang, launches
are made blocking: an assert then prints its own place, and a call that raises or never returns its line of Python.
"""

import re
from pathlib import Path
from typing import Any

from cuda_tui.evaluation.profile.names import shown
from cuda_tui.evaluation.profile.sanitizer import Sanitizer, short_path
from cuda_tui.evaluation.profile.solo import Calls, Side
from cuda_tui.evaluation.report import Code
from cuda_tui.records import Record

MEMCHECK_LIMIT_S = 20.0
BLOCKING_LIMIT_S = 10.0  # of which torch and the CUDA context take about 3
BLOCKING = {"CUDA_LAUNCH_BLOCKING": "1", "TORCH_SHOW_CPP_STACKTRACES": "0"}

_ASSERTION = re.compile(
    r"^(?P<file>\S.*?):(?P<line>\d+): (?P<function>.+?): block: \[[\d,]+\], thread: \[[\d,]+\] "
    r"Assertion `(?P<what>.*)` failed",
    re.MULTILINE,
)
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+) in ')


class FaultPlace(Record):
    """Where a fault happened, and how that is known: "memcheck", "the assert's own words" or "blocking launches"."""

    evidence: str
    kind: str
    kernel: str = ""
    file: str = ""
    line: int | None = None

    @property
    def sentence(self) -> str:
        """One clause for a verdict: "in bad (kernels/x.cu:12): Invalid __global__ write of size 4 bytes"."""
        place = f"{self.file}:{self.line}" if self.file else ""
        where = (
            f"in {self.kernel} ({place})" if self.kernel and place else f"in {self.kernel}" if self.kernel else place
        )
        where = f"at {where}" if where and not self.kernel else where
        return f"{where or 'in an unknown place'}: {self.kind} (by {self.evidence})"


def find(sanitizer: Sanitizer, side: Side, code: Code, *, asserted: bool = False) -> FaultPlace | None:
    """The place of a MEM_FAULT (`asserted`: of a device-side assert) or HANG of a side; None where nothing names it.

    At most 20 s with memcheck and 10 s with blocking launches. Raises Cancelled.
    """
    if code is Code.MEM_FAULT and not asserted:
        found = sanitizer.check(side, "memcheck", limit_s=MEMCHECK_LIMIT_S)
        if found.findings:
            first = found.findings[0]
            return FaultPlace(
                evidence="memcheck", kind=first.kind, kernel=first.kernel, file=first.file, line=first.line
            )
    ran = sanitizer.solo.run(side, how=Calls(warm=0, calls=1, limit_s=BLOCKING_LIMIT_S, variables=BLOCKING))
    if place := of_assertion(ran.output):
        return place
    if ran.error:
        return _of_exception(ran.error)
    return of_stacks(ran.output) if ran.timed_out else None


def of_assertion(output: str) -> FaultPlace | None:
    """What the first device-side assert that failed printed of itself."""
    found = _ASSERTION.search(output)
    if found is None:
        return None
    return FaultPlace(
        evidence="the assert's own words",
        kind=f"assert({found['what'][:120]})",
        kernel=shown(found["function"]),
        file=short_path(found["file"]),
        line=int(found["line"]),
    )


def of_stacks(output: str) -> FaultPlace | None:
    """The innermost line of the candidate's own Python in the stacks that are dumped when time is up."""
    frames = [(Path(match["file"]), int(match["line"])) for match in _FRAME.finditer(output)]
    own = next(((file, line) for file, line in frames if file.name == "model_new.py"), None)
    if own is None:
        return None
    return FaultPlace(evidence="blocking launches", kind="the call that does not return", file=own[0].name, line=own[1])


def _of_exception(error: dict[str, Any]) -> FaultPlace:
    """The innermost line of Python that an exception under blocking launches came from."""
    message = str(error.get("message") or error.get("type") or "it failed")
    line = error.get("line")
    return FaultPlace(
        evidence="blocking launches",
        kind=message.splitlines()[0][:200],
        file=Path(str(error.get("file") or "")).name,
        line=line if isinstance(line, int) else None,
    )
