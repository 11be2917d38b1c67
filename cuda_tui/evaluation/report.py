"""What an evaluation found. Frozen records, free of local paths and live objects, so that they can travel.

Units are in the names. Samples are kept; summaries are derived from them. What was not measured is absent.
"""

import statistics
from collections.abc import Sequence
from enum import StrEnum
from typing import Literal, TypeAlias

from cuda_tui.records import Real, Record

NATIVE_SUFFIXES = (".cpp", ".cc", ".cu", ".cuh", ".h")


class Verdict(StrEnum):
    """What the evaluation says of a candidate."""

    PASSED = "PASSED"
    REJECTED = "REJECTED"
    UNVERIFIED = "UNVERIFIED"


class Code(StrEnum):
    """Why a candidate was rejected, or why nothing could be said of it. Codes state facts, never intent."""

    # REJECTED
    BUILD = "BUILD"
    LAYOUT = "LAYOUT"
    NUM_MISMATCH = "NUM_MISMATCH"
    NONFINITE = "NONFINITE"
    PRECISION = "PRECISION"
    DATA_OVERFIT = "DATA_OVERFIT"
    SHAPE_OVERFIT = "SHAPE_OVERFIT"
    STATE_IGNORED = "STATE_IGNORED"
    INPUT_MUTATED = "INPUT_MUTATED"
    ALIAS = "ALIAS"
    STALE_MEMORY = "STALE_MEMORY"
    STALE_RESULT = "STALE_RESULT"
    PHASE_SWITCH = "PHASE_SWITCH"
    DEFERRED_WORK = "DEFERRED_WORK"
    CLOCK = "CLOCK"
    CACHE_STATE = "CACHE_STATE"
    IMPOSSIBLE_TIME = "IMPOSSIBLE_TIME"
    BANNED_OP = "BANNED_OP"
    REFERENCE_USED = "REFERENCE_USED"
    KERNEL_SHARE = "KERNEL_SHARE"
    GLOBAL_STATE = "GLOBAL_STATE"
    PERSISTED = "PERSISTED"
    TAMPER = "TAMPER"
    LEAKED_ANSWER = "LEAKED_ANSWER"
    FORGED_RESULT = "FORGED_RESULT"
    MEM_FAULT = "MEM_FAULT"
    LAUNCH_ERROR = "LAUNCH_ERROR"
    RACE = "RACE"
    HANG = "HANG"
    RAISED = "RAISED"  # importing, constructing or calling the candidate raised an exception
    # UNVERIFIED
    COMPILED_ONLY = "COMPILED_ONLY"
    QUICK = "QUICK"
    DEGENERATE_TASK = "DEGENERATE_TASK"
    UNSTABLE = "UNSTABLE"
    BASELINE_DISTURBED = "BASELINE_DISTURBED"
    REFERENCE_FAULT = "REFERENCE_FAULT"
    CANCELLED = "CANCELLED"


class Diagnostic(Record):
    """One message of a compiler or linker. `line` and `column` count from 1; a link error has none."""

    file: str
    severity: Literal["error", "warning", "note"]
    message: str
    line: int | None = None
    column: int | None = None
    context: tuple[str, ...] = ()  # the source lines the compiler printed below it

    @property
    def place(self) -> str:
        """`file:line`, as editors accept it."""
        return f"{self.file}:{self.line}" if self.line is not None else self.file


class KernelResources(Record):
    """What ptxas says one kernel uses on one architecture."""

    kernel: str  # demangled where a demangler was found
    architecture: str  # "sm_90a"
    registers: int
    static_shared_bytes: int = 0
    stack_bytes: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0


class BuildReport(Record):
    """One build of the workspace's kernels."""

    succeeded: bool
    seconds: float
    target: str  # "cpu" or "sm_90a" or "sm_80,sm_90"
    toolchain: str  # one line: compilers and versions
    diagnostics: tuple[Diagnostic, ...] = ()  # distinct; errors first, in the order of the log
    warnings: int = 0
    resources: tuple[KernelResources, ...] = ()
    compiled: tuple[str, ...] = ()  # sources compiled by this build
    cached: tuple[str, ...] = ()  # sources whose object was up to date
    library_sha256: str | None = None
    library: str | None = None  # path inside the workspace
    log: str | None = None  # path inside the workspace
    vectorised: tuple[str, ...] = ()  # the compiler's notes on loops it did or did not vectorise

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        """The distinct errors, first one first."""
        return tuple(item for item in self.diagnostics if item.severity == "error")


class Worst(Record):
    """One element where candidate and reference differ most."""

    index: tuple[int, ...]
    expected: Real
    actual: Real


class OutputCheck(Record):
    """One tensor of one trial, compared. Errors are ‖c−r‖/‖r−mean(r)‖ against the fp64 reference r."""

    output: str  # "out", "out[0]", "out.hidden"
    dtype: str
    shape: tuple[int, ...]
    passed: bool
    error: Real
    limit: float
    eager_error: Real | None = None
    max_abs_error: Real = 0.0
    nonfinite_mismatches: int = 0
    worst: tuple[Worst, ...] = ()
    error_map: tuple[tuple[float, ...], ...] = ()  # block maxima of |c−r|/limit scale, at most 16 rows by 32 columns
    reason: str = ""  # one sentence, when not passed


class Trial(Record):
    """One draw of inputs and state, and the comparison of every output."""

    name: str  # "draw 1", "state redrawn", "train mode"
    checks: tuple[OutputCheck, ...]
    passed: bool
    code: Code | None = None
    reason: str = ""


class FormCheck(Record):
    """What a candidate makes of inputs in another form: the same values with other strides, or at other addresses."""

    form: str  # a name of `workspace.task.FORMS`
    outcome: Literal["verified", "refused", "not tried"]
    inputs: tuple[int, ...]  # which ones were in that form
    message: str = ""  # the candidate's own words where it refuses; why it was not tried

    @property
    def text(self) -> str:
        """ "transposed input 0 (x must be contiguous)"."""
        numbers = ", ".join(map(str, self.inputs))
        which = f" input{'s' if len(self.inputs) > 1 else ''} {numbers}" if self.inputs else ""
        words = FORM_WORDS.get(self.form, self.form)
        words = words if which else words.removesuffix(" of")
        return f"{words}{which}" + (f" ({self.message})" if self.message else "")


FORM_WORDS = {
    "offset": "offset views of",
    "transposed": "transposed",
    "channels_last": "channels-last",
    "expanded": "expanded",
    "sliced": "sliced",
}


class VerifyReport(Record):
    """All trials of one verification. `tensors_compared` of zero is never a pass."""

    passed: bool
    trials: tuple[Trial, ...]
    tensors_compared: int
    seconds: float
    not_compared: tuple[str, ...] = ()
    reference_dtype: str = "float64"
    forms: tuple[FormCheck, ...] = ()

    @property
    def form_lines(self) -> tuple[str, ...]:
        """Which forms of the inputs were verified, which the candidate does not take, and which were not tried."""
        kinds = {"verified": "Forms verified", "refused": "Forms not taken", "not tried": "Forms not tried"}
        told = {kind: [item.text for item in self.forms if item.outcome == kind] for kind in kinds}
        return tuple(f"{kinds[kind]}: {'; '.join(texts)}" for kind, texts in told.items() if texts)


class Timing(Record):
    """How long one call takes, in microseconds, one median for each fresh process."""

    name: str  # "candidate", "eager", "compile"
    process_medians_us: tuple[float, ...]
    calls: int  # timed calls in all processes
    slices: int
    dropped_slices: int = 0
    note: str = ""

    @property
    def median_us(self) -> float:
        """Median over the processes' medians."""
        return statistics.median(self.process_medians_us)

    @property
    def spread(self) -> float:
        """Half the range between processes over the median: 0.01 is 1%."""
        low, high = min(self.process_medians_us), max(self.process_medians_us)
        return (high - low) / 2 / self.median_us


class Ratio(Record):
    """How many times faster the candidate is than one baseline: baseline time over candidate time."""

    baseline: str
    value: float
    low: float  # 95% interval
    high: float
    margin: float = 0.01  # what the interval must clear: identical code differs by up to 0.5%, by more where less exact

    @property
    def outcome(self) -> "Outcome":
        """Faster or slower only when the interval clears the margin."""
        if self.low > 1.0 + self.margin:
            return Outcome.FASTER
        if self.high < 1.0 - self.margin:
            return Outcome.SLOWER
        if self.low >= 0.99 and self.high <= 1.01:
            return Outcome.SAME
        return Outcome.INCONCLUSIVE


class Outcome(StrEnum):
    """What the interval of a ratio allows to be said."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "within 1%"
    INCONCLUSIVE = "inconclusive"


class BaselineState(Record):
    """A baseline that is not valid, and why: it is never shown as slow or as zero."""

    name: str
    reason: str


class GpuConditions(Record):
    """What NVML said of the GPU while it was being measured on. What it did not say is None."""

    name: str | None = None
    uuid: str | None = None
    driver: str | None = None
    clock_mhz: tuple[int, int] | None = None  # lowest and highest reading
    power_w: float | None = None  # highest
    temperature_c: int | None = None  # highest
    throttle: tuple[str, ...] = ()  # every reason that was seen
    tenants: int | None = None  # processes on the GPU that are not ours
    samples: int = 0


class Measured(Record, tag_field="kind", tag="measured"):
    """Candidate and baselines timed side by side. The headline is the ratio to the fastest valid baseline.

    On a GPU `candidate`, `baselines` and `ratios` are device time where all of them could be captured ("graph"), and
    queued batches between events otherwise ("events", never certified); `wall` is what a caller without graphs waits.
    """

    candidate: Timing
    baselines: tuple[Timing, ...]
    ratios: tuple[Ratio, ...]
    method: str  # one sentence: clock, processes, slices, threads
    device: str  # "AMD EPYC, 1 thread"
    unavailable: tuple[BaselineState, ...] = ()
    threads: int = 1
    all_threads: tuple[Timing, ...] = ()  # second figure, reported and not certified
    foreign_load: float | None = None  # cores kept busy by other processes while timing
    clock: Literal["wall", "graph", "events"] = "wall"
    certified: bool = True  # whether the ratios are verdicts; else they are weaker evidence, and say so in `notes`
    wall: tuple[Timing, ...] = ()  # on a GPU: as called, launches and Python included; reported, never certified
    gpu: GpuConditions | None = None
    notes: tuple[str, ...] = ()

    def ratio_to(self, baseline: str) -> Ratio | None:
        """The ratio to a named baseline, if it was measured."""
        return next((ratio for ratio in self.ratios if ratio.baseline == baseline), None)

    @property
    def headline(self) -> Ratio:
        """The ratio to the fastest valid baseline."""
        fastest = min(self.baselines, key=lambda timing: timing.median_us)
        ratio = self.ratio_to(fastest.name)
        assert ratio is not None
        return ratio


class NotMeasured(Record, tag_field="kind", tag="not_measured"):
    """Why there is no timing."""

    reason: str


Performance: TypeAlias = Measured | NotMeasured


class Milestone(StrEnum):
    """The published ladder: -1 wrong; 1 correct; 2 at least 5% faster than eager; 3 than compile as well."""

    WRONG = "-1"
    CORRECT = "1"
    FASTER_THAN_EAGER = "2"
    FASTER_THAN_COMPILE = "3"


class Flag(Record):
    """Something worth knowing that does not reject by itself."""

    code: str
    message: str
    file: str | None = None
    line: int | None = None


class StageTiming(Record):
    """Wall time of one stage of the pipeline."""

    stage: str  # "policy", "build", "verify", "measure", "attribute"
    seconds: float


class Occupancy(Record):
    """How many warps can be resident on a multiprocessor, and what stops more of them."""

    theoretical: float  # 0 to 1
    limiter: str  # "registers", "shared memory", "blocks", or "" where nothing limits it
    blocks_per_sm: int
    evidence: str = "launch shape"  # "launch shape": our own calculation; "ncu": read there
    achieved: float | None = None
    waves: float | None = None  # the grid over the blocks that fit on the whole device at once


class Stall(Record):
    """Why warps waited, as a share of all their waiting."""

    reason: str  # in ncu's word, "long scoreboard"
    share: float


class Counters(Record):
    """Hardware counters of one launch, as ncu read them: replayed, caches flushed before it. Shares are 0 to 1."""

    time_us: float
    memory_share: float | None = None  # of the peak of whatever part of the memory system is busiest
    compute_share: float | None = None
    dram_share: float | None = None
    dram_read_bytes: int | None = None
    dram_write_bytes: int | None = None
    stored_bytes: int | None = None  # by store instructions, in whole sectors
    l1_hit: float | None = None
    l2_hit: float | None = None
    sectors_per_load: float | None = None  # 32-byte sectors that one request of a warp touches; 4 is coalesced fp32
    sectors_per_store: float | None = None
    stalls: tuple[Stall, ...] = ()  # the largest first
    launch: str = ""  # "(4096, 1, 1) x (256, 1, 1)"

    def moved_bytes(self, l2_bytes: int) -> int | None:
        """Read from device memory, and written there: also what lay in L2 at the end, and leaves it later.

        What was stored and not yet written counts up to the size of L2: above that it was stored over and over.
        """
        if self.dram_read_bytes is None or (self.dram_write_bytes is None and self.stored_bytes is None):
            return None
        written, stored = self.dram_write_bytes or 0, self.stored_bytes or 0
        return self.dram_read_bytes + max(written, min(stored, written + l2_bytes))


class KernelRow(Record):
    """Where time goes: one operator or kernel. Share is of the profiled call's time."""

    name: str
    calls: int
    total_us: float
    share: float
    authored: bool = False
    bound: str = ""  # "memory", "compute" or ""
    bytes_moved: int | None = None
    flop: int | None = None
    roofline_share: float | None = None
    evidence: str = "torch.profiler"  # of the time; what else was used stands behind it: "torch.profiler, ncu"
    operator: str = ""  # the operator of torch that launched the kernel
    block: int | None = None  # threads
    grid: int | None = None  # blocks
    registers: int | None = None
    shared_bytes: int | None = None
    occupancy: Occupancy | None = None
    counters: Counters | None = None


class Gap(Record):
    """The GPU idle between two pieces of work of one call."""

    after: str
    before: str
    us: float


class Timeline(Record):
    """What the GPU did during one call. `wall_us` is without a profiler; gaps are with one, which widens them."""

    wall_us: float
    busy_us: float
    launches: int
    copies: int = 0  # memory copies and fills
    copy_us: float = 0.0
    gaps: tuple[Gap, ...] = ()  # the largest first

    @property
    def busy_share(self) -> float:
        """The part of the time in which the GPU worked; the rest is launching and waiting for the processor."""
        return min(1.0, self.busy_us / self.wall_us) if self.wall_us > 0 else 0.0


class Ceiling(Record):
    """A rate that this device was measured to reach."""

    name: str  # "copy", "fp32", "tf32", "bf16", "fp16"
    value: float  # GB/s for a copy, read and written bytes together; GFLOP/s for matrix products
    spread: float  # half the range of the samples over their median
    samples: int


class Profile(Record):
    """A profile of one side. `device_events` of zero on a GPU task means that no GPU activity was recorded."""

    subject: str  # "reference" or "candidate"
    rows: tuple[KernelRow, ...]
    total_us: float
    notes: tuple[str, ...] = ()
    peak_bandwidth_gbs: float | None = None
    peak_gflops: float | None = None
    ceilings: tuple[Ceiling, ...] = ()
    timeline: Timeline | None = None
    floor_us: float | None = None  # analytic: what the task's bytes or FLOP take at the measured ceilings
    floor_bound: str = ""  # "memory" or "compute"


class Receipt(Record):
    """What anyone needs to repeat the evaluation."""

    files: dict[str, str]  # path inside the workspace to sha256
    library_sha256: str | None
    seeds: tuple[int, ...]
    versions: dict[str, str]
    created_at: str  # ISO 8601, UTC


class Report(Record):
    """The whole evaluation of one candidate."""

    verdict: Verdict
    message: str  # one sentence for a person
    performance: Performance
    code: Code | None = None
    build: BuildReport | None = None
    verify: VerifyReport | None = None
    profile: Profile | None = None
    flags: tuple[Flag, ...] = ()
    stages: tuple[StageTiming, ...] = ()
    sandbox: str = ""
    receipt: Receipt | None = None

    @property
    def identity(self) -> frozenset[tuple[str, str]] | None:
        """Names and hashes of the sources that were evaluated; None where there is no receipt."""
        if self.receipt is None:
            return None
        sources = (item for item in self.receipt.files.items() if item[0].endswith((".py", *NATIVE_SUFFIXES)))
        return frozenset(sources)

    @property
    def milestone(self) -> Milestone:
        """The paper's ladder, from this report alone. An UNVERIFIED report has proved nothing: do not show one."""
        if self.verdict is not Verdict.PASSED:
            return Milestone.WRONG
        if not isinstance(self.performance, Measured):
            return Milestone.CORRECT
        eager = self.performance.ratio_to("eager")
        if eager is None or eager.low < 1.05:
            return Milestone.CORRECT
        others = [ratio for ratio in self.performance.ratios if ratio.baseline != "eager"]
        if others and all(ratio.low >= 1.05 for ratio in others):
            return Milestone.FASTER_THAN_COMPILE
        return Milestone.FASTER_THAN_EAGER


def superseded(reports: Sequence[Report]) -> frozenset[int]:
    """Positions of reports whose very sources were measured again later: the later figure is the one that counts.

    The best of many measurements is biased upward, so a winner is measured afresh, and that is what it is worth.
    """
    latest: dict[frozenset[tuple[str, str]], int] = {}
    earlier: set[int] = set()
    for position, report in enumerate(reports):
        identity = report.identity
        if identity is None or not isinstance(report.performance, Measured):
            continue
        if identity in latest:
            earlier.add(latest[identity])
        latest[identity] = position
    return frozenset(earlier)
