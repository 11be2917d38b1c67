"""The kernels of one group on CUDA: where each thread works, what it knows before a walk, what a walk leaves behind."""

import math
from dataclasses import dataclass

from cuda_tui.autopilot.axes import Axis
from cuda_tui.autopilot.cpp_nest import Nest, Tuning, Writer
from cuda_tui.autopilot.cuda_partials import Partials
from cuda_tui.autopilot.cuda_place import place
from cuda_tui.autopilot.cuda_shape import DEVICE_TYPES, JOIN, CudaTuning, Form, Shape, choose, length_of, rows_of
from cuda_tui.autopilot.cuda_walk import CudaWalk
from cuda_tui.autopilot.expressions import C_TYPES, Dialect
from cuda_tui.autopilot.online import Pair, joined_walks
from cuda_tui.autopilot.plan import Plan, Result
from cuda_tui.autopilot.scalar import Literal, Load, Op, Red, Scalar, below


@dataclass(frozen=True, kw_only=True)
class Body:
    """One kernel: the end of its name, its lines, and its launch of x by y threads."""

    suffix: str
    lines: tuple[str, ...]
    x: int
    y: int
    blocks: int


class CudaNest(Nest):
    """Writes the bodies. Split forms have a kernel for each pass and one that joins the last partial results."""

    dialect = Dialect(vector="dev::", library="")

    def __init__(self, plan: Plan, pointer: dict[str, str], tuning: CudaTuning) -> None:
        self.pairs: tuple[Pair, ...] = ()
        shape = choose(plan, tuning)
        if shape.form in (Form.WALKED, Form.SPLIT):
            plan, self.pairs = joined_walks(plan)
        self.shape: Shape = shape
        self.paired = {red: pair for pair in self.pairs for red in pair.reds}
        super().__init__(plan, pointer, Tuning())
        self.length, self.rows_count = length_of(plan), rows_of(plan)
        self.vectors: dict[Scalar, str] = {}  # loads that are in registers, and the text of their element
        self.halves: list[str] = []  # held vectors of 16-bit numbers
        self.moved: dict[str, str] = {}  # tensors that are moved in vectors, and their dtypes
        self.partials = Partials(self)
        self.last = False  # whether this is the last kernel, which writes the numbers of a row
        self.here = (shape.x, shape.y)  # threads of the kernel being written

    @property
    def columns(self) -> int:
        return self.plan.sizes[self.plan.columns] if self.plan.columns is not None else 1

    @property
    def column_blocks(self) -> int:
        return math.ceil(self.columns / (self.shape.x * self.shape.width)) if self.shape.is_columns else 1

    @property
    def is_tight(self) -> bool:
        """Whether a row's 16-bit numbers fit registers only as long as nobody keeps them widened to 32 bits."""
        return self.shape.width > 1 and self.shape.items * self.shape.width > (32 if self.shape.x > 512 else 80)

    @property
    def tiles(self) -> int:
        """Tiles of a row, or of everything, in elementwise forms."""
        length = self.length if self.shape.form is Form.TILED else self.plan.elements
        return math.ceil(length / self.shape.tile)

    @property
    def blocks(self) -> int:
        """Blocks of a kernel that walks."""
        shape = self.shape
        match shape.form:
            case Form.FLAT:
                return self.tiles
            case Form.TILED:
                return self.rows_count * self.tiles
            case Form.HELD | Form.WALKED:
                return math.ceil(self.rows_count / shape.y)
            case _:
                return self.rows_count * shape.chunks * self.column_blocks

    def bodies(self) -> list[Body]:
        """All kernels in the order of their launches."""
        passes = self.plan.passes
        if not self.shape.is_split:
            self.last = True
            place(self)
            for number in range(1, passes + 1):
                self._one_pass(number)
            self._results()
            return [self._body("kernel", self.blocks)]
        joins = any(self.plan.levels[red] == passes for red in self.plan.reds)
        found = []
        for number in range(1, passes + 1):
            self._restart(last=number == passes and not joins)
            self._known_before(number)
            self._one_pass(number)
            if self.last:
                self._results()
            found.append(self._body(f"pass{number}", self.blocks))
        if joins:
            self._restart(last=True, joins=True)
            self._known_before(passes + 1)
            self._results()
            found.append(self._body("join", self.rows_count * self.column_blocks))
        return found

    def _body(self, suffix: str, blocks: int) -> Body:
        return Body(suffix=suffix, lines=tuple(self.out.lines), x=self.here[0], y=self.here[1], blocks=blocks)

    def _restart(self, *, last: bool, joins: bool = False) -> None:
        self.out, self.names, self.vectors, self.accumulators, self.last = Writer(), {}, {}, {}, last
        self.here = (self.shape.x, self.shape.y)
        if joins and not self.shape.is_columns:
            self.here = (32 if self.shape.chunks <= 128 else 256, 1)
        place(self, joins=joins)

    # ---- text of values

    def index(self, axis: Axis) -> str:
        return self.loops[axis]

    def inside(self, at: str, size: int) -> str:
        return f"dev::inside({at}, {size})"

    def value_text(self, scalar: Scalar, names: dict[Scalar, str]) -> str:
        if isinstance(scalar, Op) and scalar.op == "div" and isinstance(scalar.args[1], Literal):
            return self._times_inverse(scalar, names)
        if not isinstance(scalar, Load):
            return super().value_text(scalar, names)
        if scalar in self.vectors:
            element = self.vectors[scalar]
        else:
            place = self._sum(scalar.offset, scalar.strides, scalar.dynamic, names, checked=True)
            element = f"{self.pointer[scalar.name]}[{place}]"
        if scalar.dtype == "bool":
            return f"{element} != 0"
        return f"static_cast<float>({element})" if scalar.dtype in ("float16", "bfloat16") else element

    def _times_inverse(self, scalar: Op, names: dict[Scalar, str]) -> str:
        """Division by a number as PyTorch does it on a GPU: times the inverse, rounded once."""
        value, by = (self.ref(arg, names) for arg in scalar.args)
        kind = C_TYPES[scalar.dtype]
        return f"{value} * ({kind}(1) / {by})" if kind in ("float", "double") else f"{value} / {by}"

    # ---- passes

    def _pass_roots(self, number: int) -> list[Scalar]:
        reds = [red for red in self.plan.reds if self.plan.levels[red] == number]
        roots = dict.fromkeys(self.paired[red].arg if red in self.paired else red.arg for red in reds)
        return [*roots, *(result.scalar for result in self._stores(number))]

    def _one_pass(self, number: int) -> None:
        if self.shape.form is not Form.FLAT:
            self._row_values(number)
        reds = [red for red in self.plan.reds if self.plan.levels[red] == number]
        stores = self._stores(number)
        if not reds and not stores:
            return
        for name in self.halves if self.is_tight else []:
            self.out.put(f"dev::renew({name});")
        single = [red for red in reds if red not in self.paired]
        pairs = list(dict.fromkeys(self.paired[red] for red in reds if red in self.paired))
        walk = CudaWalk(self, reds=single, pairs=pairs, stores=stores)
        walk.write()
        for item, part in walk.parts.items():
            self.join_block(item, part)
            if self.shape.is_split:
                self.partials.keep(item)
        if not self.shape.is_split:
            self._column_values(number)

    def kind(self, item: Red | Pair) -> str:
        return f"dev::Running<{C_TYPES[item.arg.dtype]}>" if isinstance(item, Pair) else C_TYPES[item.dtype]

    def join_block(self, item: Red | Pair, part: str) -> None:
        """One value from all threads that share the row or column."""
        join = "dev::Below" if isinstance(item, Pair) else JOIN[item.op]
        name = f"{'top' if join != 'dev::Sum' else 'sum'}{self.number()}"
        if self.shape.is_columns:
            if self.here[1] > 1:
                self.out.put(f"dev::down_columns<{join}, {self.here[0]}, {self.here[1]}>({part});")
            self.accumulators[item] = part  # type: ignore[index]
            if isinstance(item, Red):
                self.names[item] = f"{part}[u]"
            return
        call = f"dev::across_row<{join}, {self.here[0]}>"
        if self.shape.form is Form.CLUSTER:  # each has shared memory of its own, so that none waits for an earlier one
            first = "true" if not self.accumulators else "false"
            call = f"dev::across_cluster<{join}, {self.here[0]}, {self.shape.chunks}, {self.number()}, {first}>"
        self.out.put(f"const {self.kind(item)} {name} = {call}({part});")
        self._give_names(item, name)

    def _give_names(self, item: Red | Pair, name: str) -> None:
        self.accumulators[item] = name  # type: ignore[index]
        if isinstance(item, Red):
            self.names[item] = name
            return
        self.names |= dict.fromkeys(item.maxima, f"{name}.top")
        self.names |= dict.fromkeys(item.sums, f"{name}.plain_sum()")
        self.names |= dict.fromkeys(item.finite_sums, f"{name}.finite_sum()")

    def open_lanes(self) -> None:
        """The loop over a vector, and the index along its axis."""
        self.out.put("#pragma unroll")
        self.out.open(f"for (int u = 0; u < {self.shape.width}; ++u)")
        self.out.put(f"[[maybe_unused]] const {self.shape.index} j = j0 + u;")

    def _known_before(self, number: int) -> None:
        """Join what earlier kernels left, in the order of their passes."""
        for level in range(1, number):
            for item in dict.fromkeys(self.paired.get(red, red) for red in self.plan.reds
                                      if self.plan.levels[red] == level):  # fmt: skip
                self.partials.join(item)
            self._column_values(level)

    # ---- values and results of a row or column

    def _column_values(self, number: int) -> None:
        """What the sums of a pass make of each column, for later passes."""
        wanted = [scalar for scalar in self._frontier() if self.level(scalar) == number]
        if self.plan.columns is None or not wanted:
            return
        for scalar in wanted:
            self.out.put(f"{C_TYPES[scalar.dtype]} column{(number_ := self.number())}[{self.shape.width}];")
            self.names[scalar] = f"column{number_}[u]"
        self.open_lanes()
        local = {scalar: name for scalar, name in self.names.items() if scalar not in wanted}
        for scalar in below(list(wanted), stop=lambda item: item in local):
            if scalar not in local and not isinstance(scalar, Literal):
                local[scalar] = self.define(scalar, local)
        for scalar in wanted:
            self.out.put(f"{self.names[scalar]} = {local[scalar]};")
        self.out.close()

    def _results(self) -> None:
        """Results that are one number a row or column; the first threads write them."""
        results = [item for item in self.plan.results if self.plan.is_row(item.scalar, item)]
        if not results or (not self.plan.inner and not self.plan.reds and self.plan.rows):
            return
        if self.plan.columns is not None:
            self._column_results(results)
            return
        texts = [(item, self.stored(self._row_value(item.scalar), item.type.dtype)) for item in results]
        guard = self._first_thread()
        for item, text in texts:
            self.out.put(f"{guard}{self.element(item.name, item.strides)} = {text};")

    def _first_thread(self) -> str:
        tests = ["live"] if self.shape.x < 32 and self.plan.reds else []
        tests += ["chunk == 0"] if self.shape.is_split or self.shape.form is Form.CLUSTER else []
        tests += ["threadIdx.x == 0"]
        return f"if ({' && '.join(tests)}) "

    def _column_results(self, results: list[Result]) -> None:
        tests = [
            "live",
            *(["threadIdx.y == 0"] if self.here[1] > 1 else []),
            *(["chunk == 0"] if self.shape.is_split else []),
        ]
        self.out.open(f"if ({' && '.join(tests)})")
        self.open_lanes()
        local = dict(self.names)
        for scalar in below([item.scalar for item in results], stop=lambda item: item in local):
            if scalar not in local and not isinstance(scalar, Literal):
                local[scalar] = self.define(scalar, local)
        for item in results:
            text = self.stored(self.ref(item.scalar, local), item.type.dtype)
            self.out.put(f"{self.element(item.name, item.strides)} = {text};")
        self.out.close()
        self.out.close()

    def stored(self, text: str, dtype: str) -> str:
        """A value on its way to memory."""
        return f"static_cast<{DEVICE_TYPES[dtype]}>({text})" if dtype in ("float16", "bfloat16") else text

    # ---- what the walk asks

    def fill(self, red: Red) -> str:
        """What a reduction starts from."""
        return f"dev::empty<{C_TYPES[red.dtype]}, {JOIN[red.op]}>()"

    def vector_type(self, dtype: str) -> str:
        return f"dev::Vec<{DEVICE_TYPES[dtype]}, {self.shape.width}>"
