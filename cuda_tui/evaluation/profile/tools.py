"""The profile tools of one task: what is tried, what is said when it cannot be, and in which order it falls back.

On a GPU: ncu's counters, then torch.profiler (CUPTI), then what ptxas says, then the roofline of the trace. Every row
carries the evidence that it rests on. On the CPU: torch.profiler's operators.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from cuda_tui.errors import ReferenceFault
from cuda_tui.evaluation import profiler
from cuda_tui.evaluation.candidate import Candidate, Rejected
from cuda_tui.evaluation.faults import ASSERTED
from cuda_tui.evaluation.profile import fault, sass
from cuda_tui.evaluation.profile.ceilings import device_ceilings
from cuda_tui.evaluation.profile.names import base
from cuda_tui.evaluation.profile.ncu import Ncu
from cuda_tui.evaluation.profile.roof import with_ceilings, with_roof
from cuda_tui.evaluation.profile.rows import SILENT, from_resources, with_counters
from cuda_tui.evaluation.profile.sanitizer import Check, Checked, Sanitizer
from cuda_tui.evaluation.profile.solo import Side, Solo
from cuda_tui.evaluation.reference import Draw, Reference
from cuda_tui.evaluation.report import BuildReport, Code, Profile
from cuda_tui.evaluation.runtime import Runtime
from cuda_tui.nvml import Nvml
from cuda_tui.workspace.workspace import Workspace

HEAVIEST = 3  # kernels that ncu replays
NO_GPU = "there is no GPU here"


@dataclass(frozen=True, kw_only=True)
class Building:
    """What the tools need of builds: one of the workspace as it is (None without kernels), and the compiler's notes."""

    build: Callable[[], BuildReport | None]
    vectorisation: Callable[[], tuple[str, ...]]


class ProfileTools:
    """Profiles, checks and disassembles the two sides of one task. Holds what was learned of the machine's tools."""

    def __init__(
        self,
        workspace: Workspace,
        runtime: Runtime,
        reference: Reference,
        building: Building,
        *,
        cancel: threading.Event | None = None,
    ) -> None:
        self._workspace = workspace
        self._runtime = runtime
        self._reference = reference
        self._building = building
        self._cancel = cancel
        self._device = runtime.task.device
        self.solo = Solo(runtime, reference, cancel=cancel)
        self.ncu = Ncu(self.solo)
        self.sanitizer = Sanitizer(self.solo)
        self._told = False

    @property
    def _on_gpu(self) -> bool:
        return self._device.startswith("cuda")

    # ---- profiles

    def profile(self, subject: Literal["reference", "candidate"], *, present: bool = True) -> Profile:
        """Where the time of one side goes. Raises ReferenceFault, also where the candidate does not run.

        `present` says whether the task's device is there: without it only what the compiler says can be shown.
        """
        if subject == "reference":
            return self._profile_reference()
        build = self._building.build()
        if not present:
            said = from_resources(subject, build.resources if build is not None else ())
            return msgspec.structs.replace(said, notes=(f"{NO_GPU}: what ptxas says of each kernel, and no times",))
        with self._candidate(build) as candidate:
            return self.profile_candidate(candidate, build)

    def _profile_reference(self) -> Profile:
        found = self._reference.ask("profile", cancel=self._cancel)
        profile = profiler.to_profile(found, subject="reference", device=self._device)
        if self._on_gpu:
            model_file = self._workspace.root / self._workspace.task.file
            profile = self.counted(profile, lambda: self.solo.reference_side(model_file))
            return self._under_roof(profile, found)
        try:
            return profiler.with_roofline(profile, self._trace())
        except ReferenceFault as untraceable:
            return _noted(profile, f"no roofline: {untraceable.message}")

    def profile_candidate(self, candidate: Candidate, build: BuildReport | None) -> Profile:
        """The profile of a copy of the candidate. Raises Rejected where it does not run."""
        with self._draw() as draw:
            found = self._ask_candidate(candidate, draw)
            if not self._on_gpu:
                return self._on_cpu(found, build)
            profile = profiler.to_profile(found, subject="candidate", device=self._device, build=build)
            if SILENT in profile.notes and build is not None and build.resources:
                said = from_resources("candidate", build.resources)
                profile = msgspec.structs.replace(said, notes=profile.notes)
            profile = self.counted(profile, lambda: self.solo.candidate_side(candidate, draw))
        return self._under_roof(profile, found)

    def attribute(self, candidate: Candidate, build: BuildReport | None) -> Profile:
        """Whose kernels or operators carry the time: one profile, without counters. Raises Rejected."""
        with self._draw() as draw:
            found = self._ask_candidate(candidate, draw)
        return profiler.to_profile(found, subject="candidate", device=self._device, build=build)

    def _ask_candidate(self, candidate: Candidate, draw: Draw) -> dict[str, Any]:
        with candidate.process(cancel=self._cancel) as running:
            running.set_state(draw)
            return running.profile(draw)

    def _on_cpu(self, found: dict[str, Any], build: BuildReport | None) -> Profile:
        ceilings = self._reference.ask("profile", cancel=self._cancel)["ceilings"]
        notes = self._building.vectorisation() if build is not None else ()
        return profiler.to_profile(found | {"ceilings": ceilings}, subject="candidate", device="cpu", notes=notes)

    def counted(self, profile: Profile, side: Callable[[], Side]) -> Profile:
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
        said = f"no counters: {problem}. Occupancy is calculated, times are torch.profiler's; asking again is no use"
        return _noted(profile, said)

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
        cache = device["l2_bytes"]
        try:
            return with_roof(profile, rates, trace=self._trace(), tf32=device["tf32"], l2_bytes=cache)
        except ReferenceFault as untraceable:
            return _noted(
                with_ceilings(profile, rates, l2_bytes=cache), f"no floor for the call: {untraceable.message}"
            )

    def _trace(self) -> dict[str, Any]:
        trace: dict[str, Any] = self._reference.ask("trace", cancel=self._cancel)["trace"]
        return trace

    # ---- checks and machine code

    def sanitize(self, check: Check, *, present: bool = True) -> Checked:
        """One check of compute-sanitizer on the candidate. Raises ReferenceFault where it does not load."""
        if not self._on_gpu:
            return Checked(
                check=check, ran=False, problem="this task runs on the CPU, and the check is for GPU kernels"
            )
        if not present:
            return Checked(check=check, ran=False, problem=NO_GPU)
        with self._candidate(self._building.build()) as candidate, self._draw() as draw:
            return self.sanitizer.check(self.solo.candidate_side(candidate, draw), check)

    def name_fault(self, candidate: Candidate, draw: Draw, rejected: Rejected) -> Rejected:
        """The same verdict, with the kernel behind a fault on this draw where one more run names it."""
        if not self._on_gpu or rejected.code not in (Code.MEM_FAULT, Code.HANG):
            return rejected
        side = self.solo.candidate_side(candidate, draw)
        place = fault.find(self.sanitizer, side, rejected.code, asserted=ASSERTED in rejected.reason)
        return Rejected(rejected.code, f"{rejected.reason} {place.sentence}") if place is not None else rejected

    def name_timed_fault(self, candidate: Candidate, rejected: Rejected) -> Rejected:
        """The same for a fault while timed, on inputs of their own."""
        if rejected.code not in (Code.MEM_FAULT, Code.HANG):
            return rejected
        with self._draw() as draw:
            return self.name_fault(candidate, draw, rejected)

    def sass(self, *, kernel: str = "", line: int | None = None) -> sass.Disassembly:
        """Machine code of the kernels whose name contains `kernel`, as the workspace is now."""
        build = self._building.build()
        if build is None or build.library is None:
            return sass.Disassembly(problem=_no_library(build))
        return sass.disassemble(self.solo, self._workspace.root / build.library, kernel=kernel, line=line)

    # ---- pieces

    @contextlib.contextmanager
    def _candidate(self, build: BuildReport | None) -> Iterator[Candidate]:
        """A copy of the workspace as it is. What rejects it inside is told as a fault: there is no verdict to give."""
        if build is not None and not build.succeeded:
            raise ReferenceFault("The candidate does not build.", hint="See `build` for the errors.")
        candidate = Candidate(self._workspace, build, self._runtime, self._reference)
        try:
            yield candidate
        except Rejected as rejected:
            raise ReferenceFault(f"The candidate does not run: {rejected.reason}", hint="Verify it first.") from None
        finally:
            candidate.close()

    @contextlib.contextmanager
    def _draw(self) -> Iterator[Draw]:
        """Inputs and state of their own, spent afterwards."""
        drawn = self._reference.draw(cancel=self._cancel)
        try:
            yield drawn
        finally:
            self._reference.spend(drawn)


def _no_library(build: BuildReport | None) -> str:
    if build is None:
        return "there are no kernels to build"
    return "the kernels compile, and are linked only where torch has CUDA" if build.succeeded else "the build failed"


def _noted(profile: Profile, note: str) -> Profile:
    return msgspec.structs.replace(profile, notes=(*profile.notes, note))


def _driver(uuid: str) -> str:
    """The driver's version as NVML has it, empty where it does not say."""
    nvml = Nvml.open()
    readings = [nvml.read(index) for index in range(nvml.count)]
    mine = [item for item in readings if item.uuid and item.uuid.removeprefix("GPU-") == uuid.removeprefix("GPU-")]
    return next((item.driver for item in (*mine, *readings) if item.driver), "") or ""
