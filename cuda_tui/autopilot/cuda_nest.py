"""The body of one CUDA kernel: which thread does what, one walk of a row for each pass."""

import math
from dataclasses import dataclass

from cuda_tui.autopilot.axes import Axis
from cuda_tui.autopilot.cpp_nest import Nest, Tuning
from cuda_tui.autopilot.expressions import C_TYPES, Dialect
from cuda_tui.autopilot.graph import ELEMENT_BYTES, FLOATS
from cuda_tui.autopilot.plan import Plan, Result
from cuda_tui.autopilot.scalar import Literal, Load, Pick, Position, Red, Scalar, below, children

DEVICE_TYPES = {
    "float32": "float", "float64": "double", "float16": "__half", "bfloat16": "__nv_bfloat16",
    "int64": "int64_t", "int32": "int32_t", "uint8": "uint8_t", "bool": "uint8_t",
}  # fmt: skip
COLUMNS, LANES = 32, 8  # columns form: a warp reads 32 neighbouring columns, eight warps share the reduction
WARP_ROW = 1024  # rows of at most this many elements get a warp each
VECTOR_BYTES = 16


@dataclass(frozen=True)
class Shape:
    """Threads of a launch: x and y of a block, and how many blocks."""

    x: int
    y: int
    blocks: int


def vector_width(plan: Plan) -> int:
    """Elements that one thread moves in one instruction along the inner axis; 1 where that is not possible."""
    if plan.columns is not None or len(plan.inner) != 1:
        return 1
    axis = plan.inner[0]
    loads = [scalar for scalar in plan.scalars if isinstance(scalar, Load)]
    awkward = any(isinstance(scalar, (Pick, Position)) and axis in scalar.axes for scalar in plan.scalars)
    moved = [(load.strides, load.offset, load.dtype) for load in loads if load.strides.get(axis)]
    moved += [(result.strides, 0, result.type.dtype) for result in plan.results if axis in result.strides]
    if awkward or not moved or any(load.dynamic for load in loads):
        return 1
    widest = max(ELEMENT_BYTES[dtype] for _, _, dtype in moved)
    width = max(VECTOR_BYTES // widest, 1)
    even = all(
        strides[axis] == 1 and offset % width == 0
        and all(stride % width == 0 for other, stride in strides.items() if other is not axis)
        for strides, offset, _ in moved
    )  # fmt: skip
    return width if even and plan.sizes[axis] % width == 0 else 1


class CudaNest(Nest):
    """Writes the body. Elementwise groups: a thread for each vector. Rows: a warp or a block for each row. Columns: a
    thread for each column and lane."""

    dialect = Dialect(vector="dev::", library="")

    def __init__(self, plan: Plan, pointer: dict[str, str], tuning: Tuning) -> None:
        super().__init__(plan, pointer, tuning)
        self.width = vector_width(plan)
        self.vectors: dict[Scalar, str] = {}
        self.rows_count = math.prod(plan.sizes[axis] for axis in plan.rows)
        self.length = math.prod(plan.sizes[axis] for axis in plan.inner)

    @property
    def moved_in_vectors(self) -> set[str]:
        """Pointers that the vector path reads or writes several elements at a time."""
        axis = self.plan.inner[0]
        loads = [scalar for scalar in self.plan.scalars if isinstance(scalar, Load) and scalar.strides.get(axis)]
        names = [load.name for load in loads] + [item.name for item in self.plan.results if axis in item.strides]
        return {self.pointer[name] for name in names}

    @property
    def threads_of_row(self) -> int:
        """Threads that share a row of a reduction."""
        if self.length <= WARP_ROW:
            return 32
        return min(1024, 32 * math.ceil(self.length / self.width / 32 / 4))

    def shape(self, *, width: int) -> Shape:
        """The launch for one vector width."""
        plan = self.plan
        if plan.columns is not None:
            return Shape(COLUMNS, LANES, self.rows_count * math.ceil(plan.sizes[plan.columns] / COLUMNS))
        if plan.reds:
            together = 8 if self.threads_of_row == 32 else 1
            return Shape(self.threads_of_row, together, math.ceil(self.rows_count / together))
        return Shape(256, 1, math.ceil(plan.elements / width / 256))

    def text(self) -> list[str]:
        """Lines of the kernel's body; `VEC` is its template parameter."""
        self._place()
        for number in range(1, self.plan.passes + 1):
            self._row_values(number)
            self._cuda_pass(number)
            self._column_values(number)
        if self.plan.passes == 0 or self.plan.columns is None:
            self._results_of_row()
        return self.out.lines

    # ---- where a thread works

    def _place(self) -> None:
        plan = self.plan
        if plan.columns is not None:
            blocks = math.ceil(plan.sizes[plan.columns] / COLUMNS)
            self.out.put(f"const int64_t column = blockIdx.x % {blocks} * int64_t({COLUMNS}) + threadIdx.x;")
            self.out.put(f"const bool live = column < {plan.sizes[plan.columns]};")
            self._decode(f"blockIdx.x / {blocks}", plan.rows)
        elif plan.reds:
            self.out.put("const int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;")
            self.out.put(f"if (row >= {self.rows_count}) return;  // a whole warp at once")
            self._decode("row", plan.rows)
        else:
            self.out.put("const int64_t item = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;")
            self.out.put(f"if (item >= {plan.elements} / VEC) return;")
            if plan.inner:
                size = plan.sizes[plan.inner[-1]]
                self.out.put(f"const int64_t j0 = item % ({size} / VEC) * VEC;")
                self._decode(f"item / ({size} / VEC)", plan.rows)

    def _decode(self, start: str, axes: tuple[Axis, ...]) -> None:
        """The number of a row as one index for each axis."""
        inner = 1
        for index, axis in reversed(list(enumerate(axes))):
            whole = start if inner == 1 else f"({start}) / {inner}" if " " in start else f"{start} / {inner}"
            text = whole if index == 0 else f"({whole}) % {self.plan.sizes[axis]}"
            self.out.put(f"const int64_t {self.loops[axis]} = {text};")
            inner *= self.plan.sizes[axis]

    def index(self, axis: Axis) -> str:
        return "column" if axis is self.plan.columns else self.loops[axis]

    def inside(self, at: str, size: int) -> str:
        return f"dev::inside({at}, {size})"

    def value_text(self, scalar: Scalar, names: dict[Scalar, str]) -> str:
        if not isinstance(scalar, Load):
            return super().value_text(scalar, names)
        place = self._sum(scalar.offset, scalar.strides, scalar.dynamic, names, checked=True)
        element = f"{self.vectors[scalar]}.at[u]" if scalar in self.vectors else f"{self.pointer[scalar.name]}[{place}]"
        if scalar.dtype == "bool":
            return f"{element} != 0"
        return f"static_cast<float>({element})" if scalar.dtype in ("float16", "bfloat16") else element

    # ---- passes

    def _cuda_pass(self, number: int) -> None:
        reds = [red for red in self.plan.reds if self.plan.levels[red] == number]
        stores = self._stores(number)
        if not reds and not stores:
            return
        for red in reds:
            self._declare(red)
        loops = self._open_loops(reds)
        self._body(reds, stores)
        for _ in range(loops):
            self.out.close()
        for red in reds:
            self._finish(red)

    def _declare(self, red: Red) -> None:
        name = f"part{self.number()}"
        self.accumulators[red] = name
        kind = C_TYPES[red.dtype]
        start = "0"
        if red.op != "sum":
            floating = red.dtype in FLOATS
            worst = "INFINITY" if floating else ("INT64_MAX" if red.dtype == "int64" else "INT32_MAX")
            low = "-INFINITY" if floating else ("INT64_MIN" if red.dtype == "int64" else "INT32_MIN")
            start = worst if red.op == "min" else low
        self.out.put(f"{kind} {name} = {start};")

    def _finish(self, red: Red) -> None:
        op = {"sum": "dev::Sum", "min": "dev::Min"}.get(red.op, "dev::Max")
        part, kind = self.accumulators[red], C_TYPES[red.dtype]
        name = f"{'sum' if red.op == 'sum' else 'low' if red.op == 'min' else 'top'}{self.number()}"
        if self.plan.columns is not None:
            call = f"dev::down_column<{op}, {COLUMNS}, {LANES}>({part})"
        else:
            call = f"dev::across_row<{op}, {self.threads_of_row}>({part})"
        self.out.put(f"const {kind} {name} = {call};")
        self.names[red] = name

    def _open_loops(self, reds: list[Red]) -> int:
        plan = self.plan
        if plan.columns is not None:
            self.out.put("if (live)")
            self.out.open(f"for (int64_t r = threadIdx.y; r < {self.length}; r += {LANES})")
            self._decode("r", plan.inner)
            return 1
        if plan.reds:
            self.out.open(
                f"for (int64_t r = threadIdx.x * int64_t(VEC); r < {self.length}; r += {self.threads_of_row} * VEC)"
            )
            if len(plan.inner) > 1:
                self._decode("r", plan.inner)
            return 1
        return 0

    def _body(self, reds: list[Red], stores: list[Result]) -> None:
        roots = [*(red.arg for red in reds), *(result.scalar for result in stores)]
        needed = self._needed(roots)
        wide = self.plan.columns is None and len(self.plan.inner) == 1
        start = "r" if self.plan.reds else "j0"
        axis = self.plan.inner[0] if wide else None
        self.vectors = {}
        if wide:
            self._load_vectors(needed, start)
            for result in stores:
                kind = DEVICE_TYPES[result.type.dtype]
                self.out.put(f"dev::Vec<{kind}, VEC> {self.pointer[result.name]}_new;")
            self.out.put("#pragma unroll")
            self.out.open("for (int u = 0; u < VEC; ++u)")
            self.out.put(f"[[maybe_unused]] const int64_t j = {start} + u;")
        names: dict[Scalar, str] = {}
        for scalar in needed:
            known = {**self.names, **names}
            if scalar not in known and (axis is None or not isinstance(scalar, Literal)):
                names[scalar] = self.define(scalar, known)
        known = {**self.names, **names}
        for red in reds:
            self._accumulate(red, self.ref(red.arg, known))
        for result in stores:
            text = self._stored(self.ref(result.scalar, known), result.type.dtype)
            target = f"{self.pointer[result.name]}_new.at[u]" if wide else self.element(result.name, result.strides)
            self.out.put(f"{target} = {text};")
        if wide:
            self.out.close()
            for result in stores:
                place = self._sum(
                    0, {key: step for key, step in result.strides.items() if key is not axis}, (), {}, checked=False
                )
                name = self.pointer[result.name]
                self.out.put(f"dev::store<VEC>({name} + {place} + {start}, {name}_new);")
        self.vectors = {}

    def _needed(self, roots: list[Scalar]) -> list[Scalar]:
        """What the walk computes, operands first; concatenations are written inline and guard their own reads."""
        done: dict[Scalar, None] = {}

        def visit(scalar: Scalar) -> None:
            if scalar in done or self.outside(scalar) or isinstance(scalar, Literal):
                return
            for child in () if isinstance(scalar, Pick) else children(scalar):
                visit(child)
            done.setdefault(scalar)

        for root in roots:
            visit(root)
        return list(done)

    def _load_vectors(self, needed: list[Scalar], start: str) -> None:
        axis = self.plan.inner[0]
        for scalar in needed:
            if self.width > 1 and isinstance(scalar, Load) and scalar.strides.get(axis) == 1:
                others = {key: step for key, step in scalar.strides.items() if key is not axis}
                place = self._sum(scalar.offset, others, (), {}, checked=False)
                name = f"{self.pointer[scalar.name]}_in{self.number()}"
                self.out.put(f"const auto {name} = dev::load<VEC>({self.pointer[scalar.name]} + {place} + {start});")
                self.vectors[scalar] = name

    def _accumulate(self, red: Red, value: str) -> None:
        part = self.accumulators[red]
        if red.op == "sum":
            self.out.put(f"{part} += {value};")
        else:
            function = "minimum" if red.op == "min" else "maximum"
            self.out.put(f"{part} = dev::{function}({part}, {value});")

    def _stored(self, text: str, dtype: str) -> str:
        return f"static_cast<{DEVICE_TYPES[dtype]}>({text})" if dtype in ("float16", "bfloat16") else text

    # ---- results of a row or column

    def _column_values(self, number: int) -> None:
        if self.plan.columns is None:
            return
        wanted = [scalar for scalar in self._frontier() if self.level(scalar) == number]
        results = [
            result for result in self.plan.results
            if self.plan.is_row(result.scalar, result) and self.level(result.scalar) == number
        ]  # fmt: skip
        for scalar in below([*wanted, *(result.scalar for result in results)], stop=lambda item: item in self.names):
            if scalar not in self.names and not isinstance(scalar, Literal):
                if isinstance(scalar, Load) and self.plan.columns in scalar.axes:
                    self.out.put(f"{C_TYPES[scalar.dtype]} {(name := self._fresh_name(scalar))} = 0;")
                    self.out.put(f"if (live) {name} = {self.value_text(scalar, self.names)};")
                    self.names[scalar] = name
                else:
                    self.names[scalar] = self.define(scalar, self.names)
        for result in results:
            text = self._stored(self.ref(result.scalar, self.names), result.type.dtype)
            self.out.put(f"if (live && threadIdx.y == 0) {self.element(result.name, result.strides)} = {text};")

    def _results_of_row(self) -> None:
        for result in self.plan.results:
            if self.plan.is_row(result.scalar, result) and self.plan.columns is None:
                text = self._stored(self._row_value(result.scalar), result.type.dtype)
                guard = "if (threadIdx.x == 0) " if self.plan.reds else ""
                self.out.put(f"{guard}{self.element(result.name, result.strides)} = {text};")
