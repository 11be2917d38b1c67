"""The profile tools of one GPU task: what is tried, what is said when it cannot be, and in which order it falls back.

ncu's counters, then torch.profiler (CUPTI), then what ptxas says, then the roofline of the trace: every row carries
the evidence that it rests on.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from cuda_tui.errors import ReferenceFault
from cuda_tui.evaluation import profiler
from cuda_tui.evaluation.candidate import Candidate, Rejected
from cuda_tui.evaluation.profile import sass
from cuda_tui.evaluation.profile.ceilings import device_ceilings
from cuda_tui.evaluation.profile.names import base
from cuda_tui.evaluation.profile.ncu import Ncu
from cuda_tui.evaluation.profile.roof import with_ceilings, with_roof
from cuda_tui.evaluation.profile.rows import SILENT, from_resources, with_counters
from cuda_tui.evaluation.profile.sanitizer import Check, Checked, FaultPlace, Sanitizer
from cuda_tui.evaluation.profile.solo import Side, Solo
from cuda_tui.evaluation.reference import Draw, Reference
from cuda_tui.evaluation.report import BuildReport, Profile
from cuda_tui.evaluation.runtime import Runtime
from cuda_tui.gpu import Nvml

HEAVIEST = 3  # kernels that ncu replays


class ProfileTools:
    """Profiles, checks and disassembles the two sides of one task. Holds what was learned of the machine's tools."""

    def __init__(
        self, runtime: Runtime, reference: Reference, model_file: Path, *, cancel: threading.Event | None = None
    ) -> None:
        self._runtime = runtime
        self._reference = reference
        self._model_file = model_file
        self._cancel = cancel
        self.solo = Solo(runtime, reference, cancel=cancel)
        self.ncu = Ncu(self.solo)
        self.sanitizer = Sanitizer(self.solo)
        self._told = False

    # ---- profiles on a GPU

    def profile_reference(self) -> Profile:
        """Kernels, time line, counters and roof of the user's model. Raises ReferenceFault."""
        found = self._reference.ask("profile", cancel=self._cancel)
        profile = profiler.to_profile(found, subject="reference", device=self._runtime.task.device)
        profile = self._counted(profile, lambda: self.solo.reference_side(self._model_file))
        return self._under_roof(profile, found)

    def profile_candidate(self, candidate: Candidate, build: BuildReport | None) -> Profile:
        """The same of a candidate. Raises Rejected where it does not run."""
        with self.draw() as draw:
            with candidate.process(cancel=self._cancel) as running:
                running.set_state(draw)
                found = running.profile(draw)
            profile = profiler.to_profile(found, subject="candidate", device=self._runtime.task.device, build=build)
            if SILENT in profile.notes and build is not None and build.resources:
                silent = profile.notes
                profile = msgspec.structs.replace(from_resources("candidate", build.resources), notes=silent)
            profile = self._counted(profile, lambda: self.solo.candidate_side(candidate, draw))
        return self._under_roof(profile, found)

    @contextlib.contextmanager
    def draw(self) -> Iterator[Draw]:
        """Inputs and state of their own, spent afterwards."""
        drawn = self._reference.draw(cancel=self._cancel)
        try:
            yield drawn
        finally:
            self._reference.spend(drawn)

    def _counted(self, profile: Profile, side: Callable[[], Side]) -> Profile:
        """With ncu's counters of the heaviest kernels, the candidate's own first; else with the reason, once."""
        timed = [row for row in profile.rows if row.block]
        heaviest = sorted(timed, key=lambda row: (not row.authored, -row.total_us))[:HEAVIEST]
        names = tuple(dict.fromkeys(base(row.name) for row in heaviest))
        launches, problem = self.ncu.profile(side(), names) if names else ((), "")
        if launches:
            return with_counters(profile, launches)
        if not problem or self._told:
            return profile
        self._told = True
        text = (
            f"no counters: {problem}. Times are torch.profiler's, occupancy is calculated; asking again changes nothing"
        )
        return msgspec.structs.replace(profile, notes=(*profile.notes, text))

    def _under_roof(self, profile: Profile, found: dict[str, Any]) -> Profile:
        device = found.get("device")
        if not device:
            return profile
        rates = device_ceilings(
            self._runtime.cache,
            device,
            driver=_driver(device["uuid"]),
            measure=lambda: self._reference.ask("profile", cancel=self._cancel, rates=True)["rates"],
        )
        try:
            trace = self._reference.ask("trace", cancel=self._cancel)["trace"]
        except ReferenceFault as untraceable:
            note = f"no floor for the call: {untraceable.message}"
            return msgspec.structs.replace(with_ceilings(profile, rates), notes=(*profile.notes, note))
        return with_roof(profile, rates, trace=trace, tf32=device["tf32"])

    # ---- checks and machine code

    def sanitize(self, candidate: Candidate, check: Check) -> Checked:
        """One check of compute-sanitizer on a candidate."""
        with self.draw() as draw:
            return self.sanitizer.check(self.solo.candidate_side(candidate, draw), check)

    def name_fault(self, candidate: Candidate, draw: Draw) -> FaultPlace | None:
        """The kernel behind a fault that a candidate had on this draw; None where neither way names one."""
        return self.sanitizer.name_fault(self.solo.candidate_side(candidate, draw))

    def sass(self, library: Path, *, kernel: str, line: int | None) -> sass.Disassembly:
        """Machine code of the kernels whose name contains `kernel`."""
        return sass.disassemble(self.solo, library, kernel=kernel, line=line)


def rejected_as_fault(rejected: Rejected) -> ReferenceFault:
    """A candidate that does not run, told to who asked for a profile of it."""
    return ReferenceFault(f"The candidate does not run: {rejected.reason}", hint="Verify it first.")


def _driver(uuid: str) -> str:
    """The driver's version as NVML has it, empty where it does not say."""
    nvml = Nvml.open()
    readings = [nvml.read(index) for index in range(nvml.count)]
    mine = [item for item in readings if item.uuid and item.uuid.removeprefix("GPU-") == uuid.removeprefix("GPU-")]
    return next((item.driver for item in (*mine, *readings) if item.driver), "") or ""
