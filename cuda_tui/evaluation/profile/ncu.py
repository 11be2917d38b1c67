"""Nsight Compute: whether its counters may be read here, and the counters of one launch of a few kernels."""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from cuda_tui.evaluation.profile import programs
from cuda_tui.evaluation.profile.solo import Calls, Ran, Side, Solo
from cuda_tui.evaluation.report import Counters, Occupancy, Stall

PROBE_LIMIT_S = 60.0
PROFILE_LIMIT_S = 120.0
LAUNCHES = 12  # replayed at most; several launches of one kernel come first come first served
SECTIONS = ("SpeedOfLight", "MemoryWorkloadAnalysis", "Occupancy", "WarpStateStats", "LaunchStats")
EXTRA = (
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "gpu__time_duration.sum",
)
SECTOR_BYTES = 32
STALLS_SHOWN = 3

State: TypeAlias = Literal["ok", "missing", "forbidden", "unsupported", "nothing", "late", "other"]


@dataclass(frozen=True, kw_only=True)
class Access:
    """Whether counters can be read, and the sentence for who asks."""

    state: State
    message: str = ""

    @property
    def ok(self) -> bool:
        """Whether they can."""
        return self.state == "ok"


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One launch that ncu measured."""

    kernel: str  # demangled, with parameters
    counters: Counters
    occupancy: Occupancy | None


class Ncu:
    """ncu for one evaluator. The probe runs once; an answer other than "ok" stands for the whole session."""

    def __init__(self, solo: Solo, *, probe_limit_s: float = PROBE_LIMIT_S) -> None:
        self._solo = solo
        self._probe_limit_s = probe_limit_s
        self._access: Access | None = None

    def access(self) -> Access:
        """Probed on a tiny kernel the first time, within a limit of time; from memory after that."""
        if self._access is None:
            self._access = self._probe()
        return self._access

    def _probe(self) -> Access:
        runtime = self._solo.runtime
        self._program = programs.find("ncu", env=runtime.environment, python=runtime.python)
        if self._program is None:
            return Access(state="missing", message=programs.absent("ncu"))
        options = ["--metrics", "gpu__time_duration.sum", "--launch-count", "1"]
        ran = self._run(self._solo.probe(), options, limit_s=self._probe_limit_s)
        return ran if isinstance(ran, Access) else judged(ran, limit_s=self._probe_limit_s)

    def profile(self, side: Side, kernels: Sequence[str]) -> tuple[tuple[Launch, ...], str]:
        """The first launch of each of these kernels (names as `names.base` has them), and why there is none if so."""
        access = self.access()
        if not access.ok or not kernels:
            return (), access.message
        pattern = "regex:^(" + "|".join(re.escape(name) for name in kernels) + ")$"
        options = [word for section in SECTIONS for word in ("--section", section)]
        options += ["--metrics", ",".join(EXTRA), "--kernel-name", pattern, "--launch-count", str(LAUNCHES)]
        ran = self._run(side, options, limit_s=PROFILE_LIMIT_S)
        if isinstance(ran, Access):
            return (), ran.message
        launches = parse(ran.log or ran.output)
        return launches, "" if launches else judged(ran, limit_s=PROFILE_LIMIT_S).message

    def _run(self, side: Side, options: Sequence[str], *, limit_s: float) -> Ran | Access:
        assert self._program is not None
        program = self._program

        def command(log: Path) -> list[str]:
            # Clocks are the machine's own: locking them would touch what others use, and slows what is measured.
            fixed = ["--clock-control", "none", "--profile-from-start", "off", "--replay-mode", "kernel"]
            form = ["--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log)]
            return [program, *fixed, *form, *options]

        try:
            return self._solo.run(side, tool=command, how=Calls(limit_s=limit_s, grace_s=0.0))
        except OSError as error:
            return Access(state="other", message=f"ncu does not start: {error}")


def judged(ran: Ran, *, limit_s: float) -> Access:
    """What a run of ncu says about counters on this machine."""
    text = ran.text
    if parse(ran.log or ran.output):
        return Access(state="ok")
    if "ERR_NVGPUCTRPERM" in text:
        said = "hardware counters are not permitted (ERR_NVGPUCTRPERM): a setting of the host's driver"
        return Access(state="forbidden", message=f"{said}; being root in here does not help")
    if ran.timed_out:
        return Access(state="late", message=f"ncu did not end in {limit_s:.0f} s and was stopped")
    if re.search(r"LibraryNotLoaded|not supported|Unsupported GPU", text, re.IGNORECASE):
        words = ran.first_words("LibraryNotLoaded", "upported")
        return Access(state="unsupported", message=f"hardware counters are not supported here: {words}")
    if "No kernels were profiled" in text:
        return Access(state="nothing", message="ncu attached and saw no kernel to profile")
    return Access(state="other", message=f"ncu failed: {ran.first_words('==ERROR==')}")


# ---- the raw page as CSV: a line of names, a line of units, then a line for each launch

_SCALE = {
    "byte": 1.0, "kbyte": 1e3, "mbyte": 1e6, "gbyte": 1e9, "tbyte": 1e12,
    "ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9,
}  # fmt: skip
_STALL = re.compile(r"smsp__average_warps?_(?:latency_)?issue_stalled_(\w+?)(?:_per_issue_active)?\.ratio$")


def parse(text: str) -> tuple[Launch, ...]:
    """The first launch of each kernel; an empty tuple where the text is no such page."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    rows = list(csv.reader(io.StringIO("\n".join(lines))))
    head = next((number for number, row in enumerate(rows) if "Kernel Name" in row), None)
    if head is None or len(rows) < head + 3:
        return ()
    names, units = rows[head], rows[head + 1]
    found: dict[str, Launch] = {}
    for row in rows[head + 2 :]:
        if len(row) == len(names):
            cells = dict(zip(names, row, strict=True))
            metrics = {name: _number(cell, unit) for name, cell, unit in zip(names, row, units, strict=True)}
            launch = _launch(cells, {name: value for name, value in metrics.items() if value is not None})
            if launch is not None:
                found.setdefault(launch.kernel, launch)
    return tuple(found.values())


def _number(cell: str, unit: str) -> float | None:
    """A value in bytes, nanoseconds or as it stands; None where it is no number ("n/a")."""
    try:
        value = float(cell.replace(",", ""))
    except ValueError:
        return None
    return value * _SCALE.get(unit.lower(), 1.0)


def _launch(cells: dict[str, str], metrics: dict[str, float]) -> Launch | None:
    duration = metrics.get("gpu__time_duration.sum")
    if duration is None:
        return None
    counters = Counters(
        time_us=duration / 1e3,
        memory_share=_share(metrics, "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"),
        compute_share=_share(metrics, "sm__throughput.avg.pct_of_peak_sustained_elapsed"),
        dram_share=_share(metrics, "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"),
        dram_read_bytes=_count(metrics, EXTRA[0]),
        dram_write_bytes=_count(metrics, EXTRA[1]),
        stored_bytes=_count(metrics, EXTRA[4], unit=SECTOR_BYTES),
        l1_hit=_share(metrics, "l1tex__t_sector_hit_rate.pct"),
        l2_hit=_share(metrics, "lts__t_sector_hit_rate.pct"),
        sectors_per_load=metrics.get(EXTRA[2]),
        sectors_per_store=metrics.get(EXTRA[3]),
        stalls=_stalls(metrics),
        launch=f"{cells.get('Grid Size', '')} x {cells.get('Block Size', '')}",
    )
    return Launch(kernel=cells["Kernel Name"], counters=counters, occupancy=_occupancy(metrics))


def _share(metrics: dict[str, float], name: str) -> float | None:
    value = metrics.get(name)
    return value / 100 if value is not None else None


def _count(metrics: dict[str, float], name: str, *, unit: int = 1) -> int | None:
    value = metrics.get(name)
    return int(value) * unit if value is not None else None


def _stalls(metrics: dict[str, float]) -> tuple[Stall, ...]:
    found = {}
    for name, value in metrics.items():
        if (match := _STALL.match(name)) and match[1] != "selected" and not match[1].endswith("_not_issued"):
            found[match[1].replace("_", " ")] = value
    total = sum(found.values())
    if total <= 0:
        return ()
    largest = sorted(found.items(), key=lambda item: -item[1])[:STALLS_SHOWN]
    return tuple(Stall(reason=reason, share=value / total) for reason, value in largest if value > 0)


_LIMITS = {
    "registers": "launch__occupancy_limit_registers",
    "shared memory": "launch__occupancy_limit_shared_mem",
    "blocks": "launch__occupancy_limit_blocks",
    "block size": "launch__occupancy_limit_warps",
}


def _occupancy(metrics: dict[str, float]) -> Occupancy | None:
    theoretical = _share(metrics, "sm__maximum_warps_per_active_cycle_pct")
    limits = {name: metrics[metric] for name, metric in _LIMITS.items() if metric in metrics}
    if theoretical is None or not limits:
        return None
    blocks = min(limits.values())
    limiter = next(name for name, value in limits.items() if value == blocks)
    return Occupancy(
        theoretical=theoretical,
        limiter="" if theoretical >= 0.999 else limiter,
        blocks_per_sm=int(blocks),
        evidence="ncu",
        achieved=_share(metrics, "sm__warps_active.avg.pct_of_peak_sustained_active"),
        waves=metrics.get("launch__waves_per_multiprocessor"),
    )
