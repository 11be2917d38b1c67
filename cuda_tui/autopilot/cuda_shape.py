"""Which threads do what in a CUDA kernel: the form of its loops, the width of its accesses, the size of its launch."""

import math
from dataclasses import dataclass
from enum import StrEnum

from cuda_tui.autopilot.axes import Axis
from cuda_tui.autopilot.graph import ELEMENT_BYTES
from cuda_tui.autopilot.online import joined_walks
from cuda_tui.autopilot.plan import Plan
from cuda_tui.autopilot.scalar import Load, Pick

DEVICE_TYPES = {
    "float32": "float", "float64": "double", "float16": "__half", "bfloat16": "__nv_bfloat16",
    "int64": "int64_t", "int32": "int32_t", "uint8": "uint8_t", "bool": "uint8_t",
}  # fmt: skip
JOIN = {"sum": "dev::Sum", "min": "dev::Min", "max": "dev::Max", "softmax_max": "dev::Max"}

VECTOR_BYTES = 16  # the widest access of one thread
MULTIPROCESSORS = 132  # of a large GPU; on a smaller one the same split only makes more waves
BUSY = 8 * MULTIPROCESSORS  # blocks of 256 threads that fill it
HELD_REGISTERS = 64  # of 255 a thread may hold of a row; half as many where a block has more than 512 threads
COLUMN_LANES = 8  # threads that share the walk down one column
LONG = 1 << 22  # elements from which a thread of an elementwise kernel takes several vectors


class Form(StrEnum):
    """How the work is cut."""

    FLAT = "flat"  # elementwise: one list of vectors
    TILED = "tiled"  # elementwise: each block inside one row, whose values it computes once
    HELD = "held"  # a row is read once and stays in registers
    CLUSTER = "cluster"  # the same, in the registers of several blocks (compute capability 9.0)
    WALKED = "walked"  # a row is walked once for each pass
    SPLIT = "split"  # several blocks a row; a kernel for each pass, joined through partial results
    COLUMN_HELD = "column_held"  # a thread reads its columns once and keeps them
    COLUMNS = "columns"  # several threads share a column
    COLUMN_SPLIT = "column_split"  # several blocks a column


@dataclass(frozen=True, kw_only=True)
class CudaTuning:
    """What may be chosen by measurement; None leaves it to the rules. `threads`: that share a row, or of a block."""

    threads: int | None = None
    items: int | None = None  # vectors that a thread has in flight
    chunks: int | None = None  # blocks a row
    width: int | None = None  # elements of a vector
    form: Form | None = None
    resident: bool = False  # elementwise: only as many blocks as run at once, each with several tiles


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The launch of one kernel. A block is x by y threads; `items` vectors of `width` elements a thread and tile."""

    form: Form
    width: int
    x: int
    y: int = 1
    items: int = 1
    chunks: int = 1
    chunk: int = 0  # elements of a row, or rows of a column, that one block of a split form walks
    index: str = "int"
    resident: bool = False

    @property
    def is_split(self) -> bool:
        return self.form in (Form.SPLIT, Form.COLUMN_SPLIT)

    @property
    def is_columns(self) -> bool:
        return self.form in (Form.COLUMN_HELD, Form.COLUMNS, Form.COLUMN_SPLIT)

    @property
    def holds(self) -> bool:
        """Whether what was read stays in registers from pass to pass."""
        return self.form in (Form.HELD, Form.CLUSTER, Form.COLUMN_HELD)

    @property
    def tile(self) -> int:
        """Elements along the walk that a block takes at once."""
        together = self.chunks if self.form is Form.CLUSTER else 1
        return self.items * together * (self.y if self.is_columns else self.x * self.width)


def rows_of(plan: Plan) -> int:
    return math.prod(plan.sizes[axis] for axis in plan.rows)


def length_of(plan: Plan) -> int:
    """Elements of a row, or of a column."""
    return math.prod(plan.sizes[axis] for axis in plan.inner)


def choose(plan: Plan, tuning: CudaTuning) -> Shape:
    """The rules, then what `tuning` says. Forms that cannot hold the plan are replaced by ones that can."""
    if plan.columns is not None:
        return _columns(plan, tuning)
    return _rows(plan, tuning) if plan.reds else _elementwise(plan, tuning)


# ---- widths


def is_wide(strides: dict[Axis, int], offset: int, plan: Plan, width: int) -> bool:
    """Whether `width` neighbours along the vector axis lie side by side, always at a multiple of `width`."""
    axis = plan.vector
    if axis is None or strides.get(axis) != 1 or offset % width:
        return False
    return all(strides.get(other, 0) % width == 0 for other in plan.every_axis if other is not axis)


def is_wide_load(load: Load, plan: Plan, width: int) -> bool:
    """The same for a load whose looked-up indices do not depend on the vector axis."""
    steps = all(step % width == 0 and plan.vector not in index.axes for index, step, _ in load.dynamic)
    return steps and is_wide(load.strides, load.offset, plan, width)


def vector_width(plan: Plan, wanted: int | None = None) -> int:
    """Elements a thread moves at once: 16 bytes of the tensors with the most traffic, less where they do not allow."""
    axis = plan.vector
    if axis is None:
        return 1
    best, width = 0, 1
    for strides, dtype, fits in _accesses(plan):
        if strides.get(axis) == 1:
            traffic = ELEMENT_BYTES[dtype] * math.prod(
                plan.sizes[other] for other in plan.every_axis if strides.get(other)
            )
            own = wanted or max(VECTOR_BYTES // ELEMENT_BYTES[dtype], 1)
            while own > 1 and not (fits(own) and plan.sizes[axis] % own == 0):
                own //= 2
            if traffic > best:
                best, width = traffic, own
    return width


def _accesses(plan: Plan):  # type: ignore[no-untyped-def]
    for scalar in plan.scalars:
        if isinstance(scalar, Load):
            yield scalar.strides, scalar.dtype, lambda width, load=scalar: is_wide_load(load, plan, width)
    for result in plan.results:
        yield result.strides, result.type.dtype, lambda width, item=result: is_wide(item.strides, 0, plan, width)


def index_type(plan: Plan) -> str:
    """32-bit indices unless some tensor, or the list of all elements, is too large for them."""
    spans = [plan.elements]
    for strides, _, _ in _accesses(plan):
        spans.append(sum(abs(strides.get(axis, 0)) * plan.sizes[axis] for axis in plan.every_axis))
    return "int" if max(spans) < (1 << 31) - (1 << 22) else "int64_t"


def held_registers(plan: Plan, width: int) -> int:
    """32-bit registers that one vector of every tensor that varies along the walk takes."""
    moving = [item for item in plan.scalars if isinstance(item, Load) and item.axes & frozenset(plan.inner)]
    kept = [load for load in moving if load.axes & frozenset(plan.rows)] or moving  # weights of all rows are read again
    return max(sum(math.ceil(width * ELEMENT_BYTES[load.dtype] / 4) for load in kept), 1)


# ---- forms


def _elementwise(plan: Plan, tuning: CudaTuning) -> Shape:
    width = vector_width(plan, tuning.width)
    vectors = length_of(plan) // width
    threads = tuning.threads or 256
    items = tuning.items or (2 if plan.elements >= LONG and _moving_bytes(plan, width) <= VECTOR_BYTES else 1)
    form, index = Form.FLAT, index_type(plan)
    if plan.rows and tuning.form is not Form.FLAT:
        choices = [(threads, items), (threads, 1), (128, items), (128, 1)]
        waste = {choice: _waste(vectors, choice) for choice in choices}
        best = min(choices, key=lambda choice: (round(waste[choice], 2), choices.index(choice)))
        if waste[best] <= 0.15:
            form, (threads, items) = Form.TILED, best
    return Shape(form=form, width=width, x=threads, items=items, index=index, resident=tuning.resident)


def _moving_bytes(plan: Plan, width: int) -> int:
    """Bytes that one vector of every tensor that varies along the walk takes: with two or more such tensors a thread
    has enough in flight with a single vector of each."""
    return 4 * held_registers(plan, width)


def _waste(vectors: int, choice: tuple[int, int]) -> float:
    """The idle share of a row's last tile, over the row."""
    tile = choice[0] * choice[1]
    return math.ceil(vectors / tile) * tile / vectors - 1


def _rows(plan: Plan, tuning: CudaTuning) -> Shape:
    width, index = vector_width(plan, tuning.width), index_type(plan)
    rows, length = rows_of(plan), length_of(plan)
    vectors = math.ceil(length / width)
    held = _held(vectors, held_registers(plan, width), tuning)
    form = tuning.form or _row_form(plan, rows, length, held is not None)
    if form is Form.HELD and held is not None:
        x, items = held
        together = max(256 // x, 1) if x <= 32 else 1
        return Shape(form=form, width=width, x=x, y=together, items=items, index=index)
    if form is Form.CLUSTER and (cluster := _cluster(vectors, held_registers(plan, width), tuning)) is not None:
        chunks, x, items = cluster
        return Shape(form=form, width=width, x=x, items=items, chunks=chunks, index=index)
    if form is Form.SPLIT:
        x = tuning.threads or 256
        enough = 2 * MULTIPROCESSORS * x * width  # elements that one vector a thread takes from everything
        items = tuning.items or max(min(4, rows * length // enough), 1)
        chunks, chunk = _chunks(length, rows, x * items * width, tuning)
        if chunks > 1:
            return Shape(form=form, width=width, x=x, items=items, chunks=chunks, chunk=chunk, index=index)
    x, items = _even_tiles(vectors)
    x, items = tuning.threads or x, tuning.items or items
    return Shape(form=Form.WALKED, width=width, x=x, items=items, index=index)


def _even_tiles(vectors: int) -> tuple[int, int]:
    """Threads, and vectors a thread, of a walk: such that tiles fill the row exactly where that is possible, because
    then no access needs a test."""
    choices = ((x, items) for items in (4, 5, 6, 3, 8) for x in (512, 384, 320, 448, 256, 480, 416, 352, 288))
    even = next((choice for choice in choices if vectors % math.prod(choice) == 0), None)
    return even or (min(512, 32 * math.ceil(vectors / 128)), 4)


def _row_form(plan: Plan, rows: int, length: int, fits: bool) -> Form:
    again = joined_walks(plan)[0].passes > 1  # whether a row must be walked more than once
    if fits and (length < 1 << 13 or (again and (length < 1 << 14 or rows >= MULTIPROCESSORS))):
        return Form.HELD
    few = 4 * MULTIPROCESSORS if not plan.stores_inside else MULTIPROCESSORS
    return Form.SPLIT if rows < few and length >= 1 << 14 else Form.WALKED


def _held(vectors: int, registers: int, tuning: CudaTuning) -> tuple[int, int] | None:
    """Threads and vectors a thread that hold a row, or None where registers do not reach."""
    if tuning.threads:
        x = tuning.threads if tuning.threads in (4, 8, 16) else max(tuning.threads // 32 * 32, 32)
    elif vectors <= 32 * 4:
        x = next((lanes for lanes in (8, 16) if vectors <= 4 * lanes), 32)
    else:
        x = min(32 * math.ceil(vectors / (4 if vectors <= 1024 else 8) / 32), 1024)
    while x < 1024 and math.ceil(vectors / x) * registers > _budget(x):
        x = x * 2 if x < 32 else min(x + max(32, x // 2 // 32 * 32), 1024)
    items = math.ceil(vectors / x)
    return (x, items) if items * registers <= _budget(x) else None


def _cluster(vectors: int, registers: int, tuning: CudaTuning) -> tuple[int, int, int] | None:
    """Blocks, threads of each, and vectors a thread that hold a row; small blocks are preferred, several of which
    share a multiprocessor and so overlap their waiting."""
    found = None
    for blocks in (tuning.chunks,) if tuning.chunks else (2, 4, 8):
        held = _held(math.ceil(vectors / blocks), registers, tuning)
        if held is not None and held[0] > 32:
            found = (blocks, *held)
            if held[0] <= 512:
                return found
    return found


def _budget(threads: int) -> int:
    return HELD_REGISTERS if threads <= 512 else HELD_REGISTERS // 2


def _chunks(length: int, blocks: int, tile: int, tuning: CudaTuning) -> tuple[int, int]:
    """Into how many parts of which length a walk is cut so that all parts together fill the GPU."""
    wanted = tuning.chunks or max(min(math.ceil(BUSY / blocks), length // tile), 1)
    chunk = math.ceil(length / wanted / tile) * tile
    return math.ceil(length / chunk), chunk


def _columns(plan: Plan, tuning: CudaTuning) -> Shape:
    assert plan.columns is not None
    columns, length, rows, index = plan.sizes[plan.columns], length_of(plan), rows_of(plan), index_type(plan)
    width = vector_width(plan, tuning.width)
    held = width
    while held > 1 and (held_registers(plan, held) * length > HELD_REGISTERS or rows * columns // held < BUSY * 128):
        held //= 2
    fits = held_registers(plan, held) * length <= 1.5 * HELD_REGISTERS and length <= 64
    if tuning.form is not Form.COLUMNS and fits and rows * columns // held >= MULTIPROCESSORS * 32:
        return Shape(form=Form.COLUMN_HELD, width=held, x=tuning.threads or 128, items=length, index=index)
    while width > 1 and math.ceil(columns / (32 * width)) * rows * max(length // 64, 1) < BUSY:
        width //= 2
    items = tuning.items or (4 if length >= 4 * COLUMN_LANES else 1)
    shape = Shape(form=Form.COLUMNS, width=width, x=32, y=COLUMN_LANES, items=items, index=index)
    blocks = math.ceil(columns / (32 * width)) * rows
    if blocks < 4 * MULTIPROCESSORS and length >= 8 * shape.tile:
        chunks, chunk = _chunks(length, blocks, shape.tile, tuning)
        if chunks > 1:
            return Shape(
                form=Form.COLUMN_SPLIT, width=width, x=32, y=COLUMN_LANES, items=items, chunks=chunks, chunk=chunk,
                index=index,
            )  # fmt: skip
    return shape


def pick_is_wide(pick: Pick, plan: Plan, width: int) -> bool:
    """Whether the choice is the same for all elements of a vector."""
    return pick.axis is not plan.vector or all(low % width == 0 and high % width == 0 for low, high, _ in pick.pieces)
