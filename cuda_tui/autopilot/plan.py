"""One loop nest for a group of operators: which axes are rows, which are walked inside a row, in which passes.

A *row* is one point of the outer axes. Inside a row the inner axes are walked once for each level of reductions and
once more for what needs their results (softmax: maximum, sum, quotient). In *columns* form the vector axis is not
reduced: a block of neighbouring columns is carried through the reduction together, so that memory is still read along
its contiguous axis.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from cuda_tui.autopilot.axes import Axes, Axis, SharedTensor, separate_leaves
from cuda_tui.autopilot.graph import Graph, TensorType
from cuda_tui.autopilot.ir import Unfusible, Value
from cuda_tui.autopilot.lower import Lowering
from cuda_tui.autopilot.scalar import Evaluator, Load, Pick, Position, Red, Scalar, below, children

ON_CPU = frozenset({"float32", "float64", "bool", "int64", "int32", "uint8"})
ON_CUDA = ON_CPU | {"float16", "bfloat16"}  # computed and summed in float
COSTLY = frozenset(
    [
        "exp",
        "exp2",
        "log",
        "log2",
        "log1p",
        "expm1",
        "sin",
        "cos",
        "tanh",
        "sigmoid",
        "erf",
        "pow",
        "silu",
        "gelu",
        "gelu_tanh",
        "softplus",
    ]
)


@dataclass(frozen=True, kw_only=True)
class Result:
    """A tensor that the kernel writes: `out[Σ axis * stride]`."""

    name: str
    type: TensorType
    scalar: Scalar
    strides: dict[Axis, int]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A kernel, short of its text. Axes are ordered outermost first."""

    inputs: dict[str, TensorType]
    results: tuple[Result, ...]
    rows: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    columns: Axis | None = None  # the vector axis of the columns form
    sizes: dict[Axis, int] = field(default_factory=dict)  # after neighbouring axes were joined
    reds: tuple[Red, ...] = ()
    levels: dict[Scalar, int] = field(default_factory=dict)

    @property
    def passes(self) -> int:
        """Walks over the inner axes."""
        return max((self.levels[red] for red in self.reds), default=0) + int(bool(self.stores_inside))

    @property
    def stores_inside(self) -> tuple[Result, ...]:
        """Results written inside the walk."""
        return tuple(result for result in self.results if not self.is_row(result.scalar, result))

    def is_row(self, scalar: Scalar, result: Result | None = None) -> bool:
        """Whether it is one number a row (a column, in columns form)."""
        axes = scalar.axes | (frozenset(result.strides) if result else frozenset())
        return not (axes & frozenset(self.inner))

    @property
    def vector(self) -> Axis | None:
        """The innermost loop."""
        return self.columns or (self.inner[-1] if self.inner else None)

    @property
    def elements(self) -> int:
        return math.prod(self.sizes[axis] for axis in self.every_axis)

    @property
    def every_axis(self) -> tuple[Axis, ...]:
        return (*self.rows, *self.inner, *((self.columns,) if self.columns else ()))

    @property
    def scalars(self) -> list[Scalar]:
        return below([result.scalar for result in self.results])


def make_plan(
    graph: Graph, members: frozenset[str], outputs: Iterable[str], *, dtypes: frozenset[str] = ON_CPU
) -> Plan:
    """The loop nest that computes `outputs` from the nodes `members`. Raises Unfusible with the reason."""
    lowering = Lowering(graph, members)
    names = list(outputs)
    values = [lowering.value(name) for name in names]
    try:
        axes = Axes(values)
    except SharedTensor:
        values = separate_leaves(values)
        axes = Axes(values)
    evaluator = Evaluator(axes)
    results = []
    for name, value in zip(names, values, strict=True):
        kind = graph.type_of(name)
        if value.dtype != kind.dtype:
            raise Unfusible(f"{name} changes from {value.dtype} to {kind.dtype}")
        scalar = evaluator.scalar(value)
        strides = _result_strides(axes, value, kind)
        results.append(Result(name=name, type=kind, scalar=scalar, strides=strides))
    return _joined(_nest(graph, tuple(results), dtypes))


def _result_strides(axes: Axes, value: Value, kind: TensorType) -> dict[Axis, int]:
    if kind.memory_order is None:
        raise Unfusible("a result with gaps or overlaps in memory")
    strides: dict[Axis, int] = {}
    for dim, stride in enumerate(kind.strides):
        inner = stride
        for axis in reversed(axes.of(value, dim)):
            strides[axis] = inner
            inner *= axis.size
    return strides


def _nest(graph: Graph, results: tuple[Result, ...], dtypes: frozenset[str]) -> Plan:
    scalars = below([result.scalar for result in results])
    _check_dtypes(scalars, dtypes)
    reds = tuple(scalar for scalar in scalars if isinstance(scalar, Red))
    over = _common_reduction(reds)
    domain = frozenset().union(*(frozenset(result.strides) | result.scalar.axes for result in results))
    for scalar in scalars:
        domain |= scalar.axes
    outer = domain - over
    for result in results:
        covered = frozenset(result.strides)
        if covered not in (outer, outer | over):
            raise Unfusible("results of different extent")
        if not result.scalar.axes <= covered:
            raise Unfusible("a result that is one element of a larger one")
    for red in reds:
        if red.arg.axes - over != outer:
            raise Unfusible("reductions over tensors of different extent")
    loads = [scalar for scalar in scalars if isinstance(scalar, Load)]
    vector = _vector_axis(loads, results, outer | over)
    order = _memory_order(loads, results)
    rows = sorted(outer, key=order)
    inner = sorted(over, key=order)
    columns = None
    if over and vector in outer:
        columns = vector
        rows = [axis for axis in rows if axis is not vector]
    elif not over and rows:
        inner = [vector] if vector is not None else [rows[-1]]
        rows = [axis for axis in rows if axis not in inner]
    elif vector in over:
        inner = [*(axis for axis in inner if axis is not vector), vector]
    names = dict.fromkeys(load.name for load in loads)
    return Plan(
        inputs={name: graph.type_of(name) for name in names}, results=results, rows=tuple(rows), inner=tuple(inner),
        columns=columns, sizes={axis: axis.size for axis in domain | over}, reds=reds, levels=_levels(scalars),
    )  # fmt: skip


def _check_dtypes(scalars: list[Scalar], dtypes: frozenset[str]) -> None:
    odd = next((scalar.dtype for scalar in scalars if scalar.dtype not in dtypes), None)
    if odd is not None:
        raise Unfusible(f"dtype {odd}")


def _common_reduction(reds: tuple[Red, ...]) -> frozenset[Axis]:
    kinds = {red.over for red in reds}
    if len(kinds) > 1:
        raise Unfusible("reductions along different axes")
    return next(iter(kinds), frozenset())


def _levels(scalars: list[Scalar]) -> dict[Scalar, int]:
    """Of a reduction: the pass that computes it, from 1. Of others: the last pass whose result they need."""
    levels: dict[Scalar, int] = {}
    for scalar in scalars:
        level = max((levels[child] for child in children(scalar)), default=0)
        levels[scalar] = level + 1 if isinstance(scalar, Red) else level
    return levels


def _weight(strides: dict[Axis, int]) -> int:
    return math.prod(axis.size for axis, stride in strides.items() if stride)


def _accesses(loads: list[Load], results: tuple[Result, ...]) -> list[dict[Axis, int]]:
    return [load.strides for load in loads] + [result.strides for result in results]


def _vector_axis(loads: list[Load], results: tuple[Result, ...], domain: Iterable[Axis]) -> Axis | None:
    """The axis along which most bytes lie next to each other."""
    score = dict.fromkeys(domain, 0)
    for strides in _accesses(loads, results):
        for axis, stride in strides.items():
            if stride == 1 and axis in score:
                score[axis] += _weight(strides)
    return max(score, key=lambda axis: (score[axis], -axis.number)) if score else None


def _memory_order(loads: list[Load], results: tuple[Result, ...]) -> Callable[[Axis], tuple[int, int]]:
    """A sort key: axes with large strides in the largest tensors first."""
    largest = sorted(_accesses(loads, results), key=_weight, reverse=True)

    def key(axis: Axis) -> tuple[int, int]:
        stride = next((strides[axis] for strides in largest if strides.get(axis)), 0)
        return (-stride, axis.number)

    return key


def _joined(plan: Plan) -> Plan:
    """Join neighbouring axes that every access walks as one: fewer, longer loops."""
    fixed = _index_axes(plan)
    accesses = _accesses([scalar for scalar in plan.scalars if isinstance(scalar, Load)], plan.results)
    sizes = dict(plan.sizes)
    groups = [_join_run(list(run), accesses, sizes, fixed) for run in (plan.rows, plan.inner)]
    rows, inner = groups
    columns = plan.columns
    if columns is not None and rows and columns not in fixed and rows[-1] not in fixed:
        if _walks_as_one(rows[-1], columns, accesses, sizes):
            sizes[columns] *= sizes[rows.pop()]
    elif not plan.reds and rows and inner and not ({rows[-1], inner[0]} & fixed):
        while rows and _walks_as_one(rows[-1], inner[0], accesses, sizes) and rows[-1] not in fixed:
            sizes[inner[0]] *= sizes[rows.pop()]
    return replace(plan, rows=tuple(rows), inner=tuple(inner), sizes=sizes)


def _index_axes(plan: Plan) -> frozenset[Axis]:
    """Axes whose number matters by itself: positions, choices by range."""
    found: frozenset[Axis] = frozenset()
    for scalar in plan.scalars:
        if isinstance(scalar, Position):
            found |= frozenset(scalar.steps)
        if isinstance(scalar, Pick):
            found |= {scalar.axis}
    return found


def _join_run(
    run: list[Axis], accesses: list[dict[Axis, int]], sizes: dict[Axis, int], fixed: frozenset[Axis]
) -> list[Axis]:
    joined: list[Axis] = []
    for axis in run:
        while joined and not ({joined[-1], axis} & fixed) and _walks_as_one(joined[-1], axis, accesses, sizes):
            sizes[axis] *= sizes[joined.pop()]
        joined.append(axis)
    return joined


def _walks_as_one(outer: Axis, inner: Axis, accesses: list[dict[Axis, int]], sizes: dict[Axis, int]) -> bool:
    return all(strides.get(outer, 0) == strides.get(inner, 0) * sizes[inner] for strides in accesses)
