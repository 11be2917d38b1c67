"""What a candidate's process may answer: the forms that our own code on its side gives, and no others."""

from typing import Any

from cuda_tui.records import Record


class StateAnswer(Record):
    """Of `set_state`."""

    problems: list[str]


class SliceAnswer(Record):
    """Of `time_slice`."""

    spans_ns: list[int]
    busy_ns: list[int]
    total_ns: int


class GraphSliceAnswer(Record):
    """Of `graph_slice`."""

    spans_us: list[float]
    total_ns: int
    foreign_us: int
    probe_us: float


class BatchAnswer(Record):
    """Of `batch`."""

    event_us: float
    wall_us: float
    total_ns: int


class Audit(Record):
    """What the driver says of the graphs of all calls of a window; `kernels` are those of one call."""

    kinds: dict[str, int]
    kernels: dict[str, int]
    alike: bool
    least: int  # nodes of the call that has the fewest
    programmatic: int


class GraphFacts(Record):
    """What was captured."""

    sets: int
    calls: int
    replays: int
    audit: Audit


class Prepared(Record):
    """Of `prepare_on_gpu`."""

    not_capturable: str
    graph: GraphFacts | None


class Changes(Record):
    """What a candidate left changed."""

    functions: list[str]
    switches: list[str]


class Row(Record):
    """One tensor in a file."""

    offset: int
    bytes: int
    dtype: str
    shape: list[int]
    stride: list[int]
    shift: int
    device: str


class ExportAnswer(Record):
    """Of `run` and `export_timed`."""

    plan: dict[str, Any]
    values: dict[str, str]
    problems: list[str]
    rows: list[Row]
    input_rows: list[Row]
    alias: dict[str, str]
    settings: Changes
    made_from: dict[str, int] = {}  # noqa: RUF012  a record's default is copied


class GradientAnswer(Record):
    """Of `gradients`."""

    names: list[str]
    rows: list[Row]


class CompileAnswer(Record):
    """Of `compiles`."""

    reason: str


class OperatorRow(Record):
    """One operator of a profile."""

    name: str
    calls: float
    device_us: float
    self_us: float


class KernelSeen(Record):
    """One kernel or copy of a profile on a GPU, a call. Sizes of 0 were not told."""

    name: str
    operator: str
    calls: float
    device_us: float
    grid: int
    block: int
    registers: int
    shared_bytes: int


class GapSeen(Record):
    """An idle time between two pieces of work."""

    after: str
    before: str
    us: float


class TimelineSeen(Record):
    """One call on the GPU."""

    wall_us: float
    busy_us: float
    launches: int
    copies: int
    copy_us: float
    gaps: list[GapSeen]


class DeviceSeen(Record):
    """The GPU that the profile was taken on."""

    name: str
    uuid: str
    capability: tuple[int, int]
    sms: int
    l2_bytes: int
    torch: str
    tf32: bool


class ProfileAnswer(Record):
    """Of `profile`; what is said of kernels is there on a GPU only."""

    rows: list[OperatorRow]
    device_events: int
    namespaces: list[str]
    kernels: list[KernelSeen] = []  # noqa: RUF012  a record's default is copied
    timeline: TimelineSeen | None = None
    device: DeviceSeen | None = None
