"""What a group should gain, before anyone measures: bytes over bandwidth, costly functions, calls.

The constants are rough; they rank groups and state a hypothesis. Only a measurement says what was
gained.
"""

import math
from dataclasses import dataclass, replace

from cuda_tui.autopilot.cuda_shape import choose
from cuda_tui.autopilot.cuda_variants import rules
from cuda_tui.autopilot.fuse import Group
from cuda_tui.autopilot.graph import Graph, Node
from cuda_tui.autopilot.online import joined_walks
from cuda_tui.autopilot.plan import COSTLY, Plan
from cuda_tui.autopilot.scalar import Op

COSTLY_INSIDE = {"softmax": 1, "log_softmax": 2, "cross_entropy_loss": 2, "logsumexp": 1, "softplus": 2, "mish": 3}


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Rates of one processor (CPU: one thread), for estimates."""

    name: str
    bytes_per_us: float
    flop_per_us: float
    costly_per_us: float  # exponentials and the like, in PyTorch's kernels and in ours
    call_us: float  # one PyTorch operator: from Python on the CPU, on the device where there is a GPU
    own_call_us: float  # one of our operators; on a GPU one of its kernels
    view_us: float  # an operator that only makes a view
    fresh_write: float  # a first write to new memory costs this many plain ones (page faults on the CPU)
    is_gpu: bool = False
    clusters: bool = False  # whether all GPUs that the code is for have clusters of blocks


CPU = Machine(
    name="one CPU core", bytes_per_us=12_000, flop_per_us=50_000, costly_per_us=800, call_us=1.5, own_call_us=4.0,
    view_us=0.45, fresh_write=2.0,
)  # fmt: skip
CUDA = Machine(
    name="the GPU", bytes_per_us=2_000_000, flop_per_us=40_000_000, costly_per_us=3_000_000, call_us=2.5,
    own_call_us=2.5, view_us=0.0, fresh_write=1.0, is_gpu=True,
)  # fmt: skip
# Copy bandwidth of known GPUs in bytes a microsecond, about 90% of the memory's own rate; for a start only.
COPY_RATES = {
    "B200": 7_000_000, "H200": 4_200_000, "GH200": 4_200_000, "H100": 2_900_000, "A100": 1_500_000, "L40S": 750_000,
    "L4": 270_000, "A10": 520_000, "RTX 5090": 1_600_000, "RTX 4090": 900_000,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """One group: bytes and microseconds with PyTorch's operators, and in one kernel."""

    eager_bytes: int
    own_bytes: int
    eager_us: float
    own_us: float
    calls: int

    @property
    def saved_us(self) -> float:
        return self.eager_us - self.own_us


def machine_for(device: str, *, name: str = "", clusters: bool = False) -> Machine:
    """The rates that the GPU's name lets expect, or those of one core."""
    if not device.startswith("cuda"):
        return CPU
    known = next((rate for part, rate in COPY_RATES.items() if part in name), CUDA.bytes_per_us)
    return replace(CUDA, name=name or CUDA.name, bytes_per_us=known, clusters=clusters)


def eager_us(node: Node, machine: Machine) -> float:
    """One operator in PyTorch."""
    if node.view:
        return machine.view_us
    costly = node.output.numel * (1 if node.op in COSTLY else COSTLY_INSIDE.get(node.op, 0))
    memory = (node.bytes_read + machine.fresh_write * node.bytes_written) / machine.bytes_per_us
    return machine.call_us + max(memory + costly / machine.costly_per_us, node.flop / machine.flop_per_us)


def estimate(group: Group, graph: Graph, machine: Machine, *, reuses: int = 0) -> Estimate:
    """What one kernel should make of the group; `reuses` results are written into memory that is there already."""
    nodes = [graph.nodes[name] for name in group.work]
    read = sum(kind.bytes for kind in group.plan.inputs.values())
    written = [result.type.bytes for result in group.plan.results]
    fresh = sum(written[reuses:])
    own_bytes = read + sum(written)
    launches, walks = _work_on_gpu(group.plan, machine) if machine.is_gpu else (1, 1)
    memory = (walks * read + sum(written[:reuses]) + machine.fresh_write * fresh) / machine.bytes_per_us
    return Estimate(
        eager_bytes=sum(node.bytes_read + node.bytes_written for node in nodes),
        own_bytes=own_bytes,
        eager_us=sum(eager_us(node, machine) for node in nodes),
        own_us=launches * machine.own_call_us + memory + _costly(group.plan) / machine.costly_per_us,
        calls=sum(not node.view for node in nodes),
    )


def _work_on_gpu(plan: Plan, machine: Machine) -> tuple[int, int]:
    """Kernels that run, and how often they read what does not stay on chip."""
    shape = choose(plan, rules(plan, clusters=machine.clusters))
    walks = 1 if shape.holds or not plan.reds else max(joined_walks(plan)[0].passes, 1)
    joins = shape.is_split and not plan.stores_inside
    return (walks + joins if shape.is_split else 1), walks


def _costly(plan: Plan) -> int:
    """Evaluations of costly functions, counted where they vary."""
    return sum(
        math.prod(axis.size for axis in scalar.axes)
        for scalar in plan.scalars
        if isinstance(scalar, Op) and scalar.op in COSTLY
    )


def whole_us(graph: Graph, machine: Machine) -> float:
    """The model as PyTorch runs it."""
    return sum(eager_us(node, machine) for node in graph.nodes.values())
