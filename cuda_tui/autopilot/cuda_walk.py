"""One walk of a CUDA kernel: a tile's loads first, so that all are in flight; then arithmetic; then stores."""

from typing import TYPE_CHECKING

from cuda_tui.autopilot.cuda_place import decode
from cuda_tui.autopilot.cuda_shape import JOIN, Form, is_wide, is_wide_load, pick_is_wide
from cuda_tui.autopilot.expressions import C_TYPES
from cuda_tui.autopilot.online import Pair
from cuda_tui.autopilot.plan import Result
from cuda_tui.autopilot.scalar import Literal, Load, Pick, Red, Scalar, children

if TYPE_CHECKING:
    from cuda_tui.autopilot.cuda_nest import CudaNest


class CudaWalk:
    """Writes one pass."""

    def __init__(self, nest: "CudaNest", *, reds: list[Red], pairs: list[Pair], stores: list[Result]) -> None:
        self.nest, self.plan, self.shape, self.out = nest, nest.plan, nest.shape, nest.out
        self.reds, self.pairs, self.stores = reds, pairs, stores
        self.roots: list[Scalar] = [
            *(red.arg for red in reds),
            *(pair.arg for pair in pairs),
            *(item.scalar for item in stores),
        ]
        self.parts: dict[Red | Pair, str] = {}
        self.args: dict[Pair, str] = {}
        self.guards: dict[Load, str] = {}  # loads of one side of a choice, and when that side is taken
        self.needed: list[Scalar] = []
        self._look()

    def write(self) -> None:
        """Accumulators, loops, and one value a thread from them."""
        for red in self.reds:
            self._declare(red)
        for pair in self.pairs:
            self.parts[pair] = f"part{self.nest.number()}"
            kind = C_TYPES[pair.arg.dtype]
            self.out.put(f"dev::Running<{kind}> {self.parts[pair]} = dev::empty<dev::Running<{kind}>, dev::Below>();")
        tiled = self._open_tiles()
        loads = [item for item in self._early_loads() if item not in self.nest.vectors]
        self._load(loads)
        self._compute()
        for pair in self.pairs:
            self.out.put(f"{self.parts[pair]}.add({self.args[pair]});")
        if tiled:
            self.out.close()
        if not self.shape.holds:
            self.nest.vectors = {}
        if not self.shape.is_columns:
            for red in self.reds:
                self._fold(red)

    # ---- what is needed

    def _look(self) -> None:
        """Everything the walk computes, operands first; choices are written inline and guard their own reads."""
        done: dict[Scalar, None] = {}
        free: set[Scalar] = set()

        def visit(scalar: Scalar, guard: str) -> None:
            if isinstance(scalar, Literal) or self.nest.outside(scalar) or (scalar in done and not guard):
                return
            if isinstance(scalar, Load):
                if not guard:
                    free.add(scalar)
                elif scalar not in free:
                    known = self.guards.get(scalar)
                    self.guards[scalar] = guard if known in (None, guard) else f"({known}) || ({guard})"
            for child, test in self._below(scalar):
                visit(child, " && ".join(part for part in (guard, test) if part))
            if not guard:
                done.setdefault(scalar)

        for root in self.roots:
            visit(root, "")
        self.guards = {load: guard for load, guard in self.guards.items() if load not in free}
        self.needed = list(done)

    def _below(self, scalar: Scalar) -> list[tuple[Scalar, str]]:
        """Operands, each with the test under which it is needed."""
        if not isinstance(scalar, Pick):
            return [(child, "") for child in children(scalar)]
        at = "j0" if scalar.axis is self.plan.vector else self.nest.loops[scalar.axis]
        size = self.plan.sizes[scalar.axis]
        found = []
        for low, high, piece in scalar.pieces:
            tests = [f"{at} >= {low}"] if low > 0 else []
            tests += [f"{at} < {high}"] if high < size else []
            found.append((piece, " && ".join(tests) or "true"))
        return found

    def _early_loads(self) -> list[Load]:
        """Vectors that can be read before anything is computed."""
        plan, width = self.plan, self.shape.width
        picks_fit = all(pick_is_wide(item, plan, width) for item in plan.scalars if isinstance(item, Pick))
        loads = [item for item in self.needed if isinstance(item, Load)] + (list(self.guards) if picks_fit else [])
        moves = frozenset(plan.inner) if self.shape.is_columns else frozenset([plan.vector])
        return [
            load for load in loads
            if not load.dynamic and is_wide_load(load, plan, width) and (load.axes & moves or not plan.reds)
            and not (self._is_shared(load) and load not in self.guards)
        ]  # fmt: skip

    def _is_shared(self, load: Load) -> bool:
        """Whether all rows read the same (weights): it comes from a near cache, and registers are for the row."""
        rows = frozenset(self.plan.rows)
        return self.shape.holds and bool(rows) and not load.axes & rows

    def _late_loads(self) -> list[Load]:
        """Vectors whose place depends on a looked-up index, or does not change along the walk."""
        return [
            item for item in self.needed
            if isinstance(item, Load) and item not in self.nest.vectors
            and is_wide_load(item, self.plan, self.shape.width)
            and all(self.nest.outside(index) for index, _, _ in item.dynamic)
        ]  # fmt: skip

    # ---- accumulators

    def _declare(self, red: Red) -> None:
        name = f"part{self.nest.number()}"
        self.parts[red] = name
        fill = self.nest.fill(red)
        width = self.shape.width
        self.out.put(f"{C_TYPES[red.dtype]} {name}[{width}];")
        self.out.put("#pragma unroll")
        self.out.put(f"for (int u = 0; u < {width}; ++u) {name}[u] = {fill};")

    def _fold(self, red: Red) -> None:

        name = self.parts[red]
        self.parts[red] = f"dev::fold<{JOIN[red.op]}>({name})"

    # ---- loops

    def _open_tiles(self) -> bool:
        """The loop over tiles, where a thread has several."""
        shape, nest = self.shape, self.nest
        match shape.form:
            case Form.FLAT if shape.resident:
                self.out.open(f"for ({shape.index} tile = blockIdx.x; tile < {nest.tiles}; tile += gridDim.x)")
            case Form.FLAT:
                self.out.put(f"const {shape.index} tile = blockIdx.x;")
                return False
            case Form.WALKED | Form.COLUMNS:
                self.out.open(f"for ({shape.index} base = 0; base < {nest.length}; base += {shape.tile})")
            case Form.SPLIT | Form.COLUMN_SPLIT:
                self.out.put(f"const {shape.index} start = {shape.index}(chunk) * {shape.chunk};")
                self.out.put(
                    f"const {shape.index} stop = dev::least<{shape.index}>(start + {shape.chunk}, {nest.length});"
                )
                self.out.open(f"for ({shape.index} base = start; base < stop; base += {shape.tile})")
            case _:
                return False
        return True

    def _open_items(self) -> str:
        """The loop over the vectors of a tile. Returns the test that one exists, or nothing where all do."""
        shape, nest, index = self.shape, self.nest, self.shape.index
        self.out.put("#pragma unroll")
        self.out.open(f"for (int n = 0; n < {shape.items}; ++n)")
        step = f"n * {shape.x} + threadIdx.x"
        if shape.form is Form.FLAT:
            vectors = self.plan.elements // shape.width
            at = f"tile * {shape.items * shape.x} + {step}"
            self.out.put(f"const {index} item = {at};")
            self._decode_item("item")
            return "" if vectors % (shape.items * shape.x) == 0 else f"item < {vectors}"
        if shape.is_columns:
            down = f"n * {shape.y} + threadIdx.y" if shape.y > 1 else "n"
            base = "" if shape.form is Form.COLUMN_HELD else "base + "
            self.out.put(f"[[maybe_unused]] const {index} r = {base}{down};")
            decode(nest, "r", self.plan.inner)
            return "" if shape.form is Form.COLUMN_HELD else self._bound(shape.tile)
        if shape.form is Form.CLUSTER:
            step = f"(n * {shape.chunks} + chunk) * {shape.x} + threadIdx.x"
        base = {Form.HELD: "", Form.CLUSTER: "", Form.TILED: f"chunk * {shape.tile} + "}.get(shape.form, "base + ")
        lane = f"({step}) * {shape.width}" if shape.width > 1 else step
        self.out.put(f"const {index} r = {base}{lane};")
        if len(self.plan.inner) > 1:
            decode(nest, "r", self.plan.inner, last_as="j0")
        else:
            self.out.put(f"const {index} j0 = r;")
        return self._bound(shape.tile)

    def _bound(self, tile: int) -> str:
        if self.nest.length % tile == 0:
            return ""
        return "r < stop" if self.shape.is_split else f"r < {self.nest.length}"

    def _decode_item(self, item: str) -> None:
        """The place of a vector in the list of all."""
        nest, shape, plan = self.nest, self.shape, self.plan
        if not plan.inner:
            self.out.put(f"[[maybe_unused]] const {shape.index} j0 = 0;")
            return
        size = plan.sizes[plan.inner[-1]] // shape.width
        own = f"{item} % {size}" if plan.rows else item
        scaled = f" * {shape.width}" if shape.width > 1 else ""
        self.out.put(f"const {shape.index} j0 = {own}{scaled};")
        if plan.rows:
            self.out.put(f"[[maybe_unused]] const {shape.index} row = {item} / {size};")
            decode(nest, "row", plan.rows)

    # ---- bodies

    def _load(self, loads: list[Load]) -> None:
        if not loads:
            return
        names = {load: f"{self.nest.pointer[load.name]}_in{self.nest.number()}" for load in loads}
        for load in loads:
            self.out.put(f"{self.nest.vector_type(load.dtype)} {names[load]}[{self.shape.items}];")
        bound = self._open_items()
        for load in loads:
            tests = [f"({test})" if "||" in test else test for test in (bound, self.guards.get(load, "")) if test]
            guard = f"if ({' && '.join(tests)}) " if tests else ""
            self.out.put(f"{guard}{names[load]}[n] = {self._vector(load, {})};")
            self.nest.vectors[load] = f"{names[load]}[n].at[u]"
            if self.shape.holds and load.dtype in ("float16", "bfloat16"):
                self.nest.halves.append(names[load])
        self.out.close()

    def _vector(self, load: Load, names: dict[Scalar, str]) -> str:
        axis = self.plan.vector
        others = {key: step for key, step in load.strides.items() if key is not axis}
        place = self.nest._sum(load.offset, others, load.dynamic, names, checked=True)
        start = "j0" if place == "0" else f"{place} + j0"
        self.nest.moved[self.nest.pointer[load.name]] = load.dtype
        return f"dev::load<{self.shape.width}, WIDE>({self.nest.pointer[load.name]} + {start})"

    def _compute(self) -> None:
        nest, shape = self.nest, self.shape
        for pair in self.pairs:
            self.args[pair] = f"value{nest.number()}"
            self.out.put(f"{C_TYPES[pair.arg.dtype]} {self.args[pair]}[{shape.items}][{shape.width}];")
        bound = self._open_items()
        for pair in self.pairs if bound else []:
            fill = f"{self.args[pair]}[n][u] = -INFINITY;"
            self.out.put("#pragma unroll")
            self.out.put(f"for (int u = 0; u < {shape.width}; ++u) {fill}")
        if bound:
            self.out.open(f"if ({bound})")
        kept = dict(nest.names)
        if shape.form is Form.FLAT:
            nest._row_values(1)
        late = self._late_loads()
        for load in late:
            name = f"{nest.pointer[load.name]}_in{nest.number()}"
            self.out.put(f"const auto {name} = {self._vector(load, nest.names)};")
            nest.vectors[load] = f"{name}.at[u]"
        wide = [item for item in self.stores if is_wide(item.strides, 0, self.plan, shape.width)]
        for item in wide:
            self.out.put(f"{nest.vector_type(item.type.dtype)} {nest.pointer[item.name]}_new;")
        self._elements(wide)
        for item in wide:
            others = {key: step for key, step in item.strides.items() if key is not self.plan.vector}
            place = nest._sum(0, others, (), {}, checked=False)
            start = "j0" if place == "0" else f"{place} + j0"
            name = nest.pointer[item.name]
            nest.moved[name] = item.type.dtype
            self.out.put(f"{self._live()}dev::store<WIDE>({name} + {start}, {name}_new);")
        nest.names = kept
        for load in late:
            del nest.vectors[load]
        if bound:
            self.out.close()
        self.out.close()

    def _live(self) -> str:
        return "if (live) " if self.shape.is_columns or (self.shape.x < 32 and self.plan.reds) else ""

    def _elements(self, wide: list[Result]) -> None:
        """The arithmetic of each element of a vector."""
        nest = self.nest
        nest.open_lanes()
        names = dict(nest.names)
        for scalar in self.needed:
            if scalar not in names:
                names[scalar] = nest.define(scalar, names)
        for red in self.reds:
            part, value = f"{self.parts[red]}[u]", nest.ref(red.arg, names)

            self.out.put(f"{part} = {JOIN[red.op]}::join({part}, {value});")
        for pair in self.pairs:
            self.out.put(f"{self.args[pair]}[n][u] = {nest.ref(pair.arg, names)};")
        for item in self.stores:
            text = nest.stored(nest.ref(item.scalar, names), item.type.dtype)
            if item in wide:
                self.out.put(f"{nest.pointer[item.name]}_new.at[u] = {text};")
            else:
                self.out.put(f"{self._live()}{nest.element(item.name, item.strides)} = {text};")
        self.out.close()
