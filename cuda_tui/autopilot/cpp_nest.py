"""The loops of one kernel as C++: OpenMP over rows, vector loops inside, one walk of a row for each pass."""

import math
from dataclasses import dataclass, field

from cuda_tui.autopilot.axes import Axis
from cuda_tui.autopilot.cpp_walk import PARALLEL_FROM, Walk
from cuda_tui.autopilot.expressions import C_TYPES, Dialect, expression, literal
from cuda_tui.autopilot.graph import FLOATS
from cuda_tui.autopilot.ir import Unfusible
from cuda_tui.autopilot.plan import COSTLY, Plan, Result
from cuda_tui.autopilot.scalar import Literal, Load, Op, Pick, Position, Red, Scalar, below, children

SCRATCH_LIMIT = 65_536  # elements of one row kept between passes: 256 KiB, inside L2


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What may be chosen by measurement. `block`: columns carried together in columns form."""

    block: int = 256
    keep: bool = True  # keep costly intermediate values of a row between passes, rather than compute them again


@dataclass
class Writer:
    """Indented lines."""

    lines: list[str] = field(default_factory=list)
    depth: int = 1

    def put(self, text: str) -> None:
        pragma = text.startswith("#")
        self.lines.append(text if pragma else "  " * self.depth + text)

    def open(self, text: str) -> None:
        self.put(f"{text} {{")
        self.depth += 1

    def close(self) -> None:
        self.depth -= 1
        self.put("}")


class Nest:
    """Writes the body of a kernel's compute function. `pointer` maps a tensor's name to its pointer."""

    dialect = Dialect()

    def __init__(self, plan: Plan, pointer: dict[str, str], tuning: Tuning) -> None:
        self.plan = plan
        self.pointer = pointer
        self.tuning = tuning
        self.out = Writer()
        self.names: dict[Scalar, str] = {}  # of values that outlive a pass: row values, reductions
        self.accumulators: dict[Red, str] = {}
        self.kept: dict[Scalar, str] = {}  # scratch arrays
        self.written: set[Scalar] = set()  # kept values that an earlier pass has stored
        self.loops = {axis: f"i{index}" for index, axis in enumerate(plan.rows)}
        self.loops |= {axis: f"k{index}" for index, axis in enumerate(plan.inner)}
        if plan.vector is not None:
            self.loops[plan.vector] = "j"
        self._count = 0
        self._needs = [self._pass_roots(number) for number in range(1, plan.passes + 1)]
        self.checks = any(isinstance(scalar, Load) and scalar.dynamic for scalar in plan.scalars)
        if plan.columns is not None and any(
            isinstance(scalar, Pick) and scalar.axis is plan.columns for scalar in plan.scalars
        ):
            raise Unfusible("a concatenation along the columns of a reduction")

    # ---- the whole

    def text(self) -> list[str]:
        """The lines of the function body."""
        self._choose_kept()
        if self.checks:
            self.out.put("int bad = 0;")
        if self.plan.rows or self.plan.columns is not None:
            self._open_rows()
            self._row()
            self._close_rows()
        else:
            self._row()
        if self.checks:
            self.out.put("return bad;")
        return self.out.lines

    def _open_rows(self) -> None:
        plan = self.plan
        loops = len(plan.rows) + (plan.columns is not None)
        clauses = [f"collapse({loops})"] if loops > 1 else []
        clauses += ["reduction(|:bad)"] if self.checks else []
        clauses += [f"if ({plan.elements} > {PARALLEL_FROM})"]
        self.out.put(f"#pragma omp parallel for schedule(static) {' '.join(clauses)}")
        for axis in plan.rows:
            name = self.loops[axis]
            self.out.open(f"for (int64_t {name} = 0; {name} < {plan.sizes[axis]}; ++{name})")
        if plan.columns is not None:
            size, block = plan.sizes[plan.columns], self.block
            self.out.open(f"for (int64_t c = 0; c < {size}; c += {block})")
            self.out.put(f"const int64_t width = std::min<int64_t>({block}, {size} - c);")

    def _close_rows(self) -> None:
        for _ in range(len(self.plan.rows) + (self.plan.columns is not None)):
            self.out.close()

    @property
    def block(self) -> int:
        assert self.plan.columns is not None
        return min(self.tuning.block, self.plan.sizes[self.plan.columns])

    def _row(self) -> None:
        for scalar, name in self.kept.items():
            size = math.prod(self.plan.sizes[axis] for axis in self.plan.inner)
            size *= self.block if self.plan.columns is not None else 1
            kind = C_TYPES[scalar.dtype]
            self.out.put(f"static thread_local std::vector<{kind}> {name}_store({size});  // stays in cache")
            self.out.put(f"{kind}* __restrict__ {name} = {name}_store.data();")
        for number in range(1, self.plan.passes + 1):
            self._row_values(number)
            self._pass(number)
            self._column_values(number)
        self._row_results()

    # ---- which value lives where

    def _is_row(self, scalar: Scalar) -> bool:
        """One number a row, computed outside the walks."""
        inside = frozenset(self.plan.inner) | ({self.plan.columns} if self.plan.columns else frozenset())
        return not scalar.axes & inside

    def _is_column(self, scalar: Scalar) -> bool:
        """One number a column, known after a pass."""
        plan = self.plan
        return plan.columns is not None and self.level(scalar) > 0 and not scalar.axes & frozenset(plan.inner)

    def level(self, scalar: Scalar) -> int:
        return self.plan.levels[scalar]

    def outside(self, scalar: Scalar) -> bool:
        return isinstance(scalar, Red) or self._is_row(scalar) or self._is_column(scalar)

    def _pass_roots(self, number: int) -> list[Scalar]:
        reds: list[Scalar] = [red.arg for red in self.plan.reds if self.plan.levels[red] == number]
        return reds + [result.scalar for result in self._stores(number)]

    def _stores(self, number: int) -> list[Result]:
        return [result for result in self.plan.stores_inside if self.plan.levels[result.scalar] + 1 == number]

    def _choose_kept(self) -> None:
        """Costly values that a later pass needs again go to a scratch row."""
        size = math.prod(self.plan.sizes[axis] for axis in self.plan.inner)
        size *= self.block if self.plan.columns is not None else 1
        if not self.tuning.keep or size > SCRATCH_LIMIT or len(self._needs) < 2:
            return
        earlier: set[Scalar] = set()
        for roots in self._needs:
            needed: set[Scalar] = set()
            stack = list(roots)
            while stack:
                scalar = stack.pop()
                if scalar in needed or self.outside(scalar):
                    continue
                needed.add(scalar)
                if scalar in earlier and self._costly(scalar):
                    self.kept.setdefault(scalar, f"kept{len(self.kept)}")
                    continue
                stack.extend(children(scalar))
            earlier |= needed

    def _costly(self, scalar: Scalar) -> bool:
        inside = below([scalar], stop=lambda item: self.outside(item) and item is not scalar)
        return scalar.dtype in FLOATS and any(isinstance(item, Op) and item.op in COSTLY for item in inside)

    # ---- values of a row or column

    def _row_values(self, number: int) -> None:
        """Numbers of the row that this pass reads and that are known by now."""
        for scalar in below(self._needs[number - 1], stop=self.outside):
            if self._is_row(scalar) and not isinstance(scalar, Red):
                self._row_value(scalar)

    def _row_value(self, scalar: Scalar) -> str:
        if scalar not in self.names and not isinstance(scalar, Literal):
            for child in children(scalar):
                self._row_value(child)
            self.names[scalar] = self.define(scalar, self.names)
        return self.ref(scalar, self.names)

    def _row_results(self) -> None:
        for result in self.plan.results:
            if self.plan.is_row(result.scalar, result) and self.plan.columns is None:
                self.out.put(f"{self.element(result.name, result.strides)} = {self._row_value(result.scalar)};")

    def _column_values(self, number: int) -> None:
        """After a pass of the columns form: what its sums make of each column."""
        if self.plan.columns is None:
            return
        wanted = [scalar for scalar in self._frontier() if self.level(scalar) == number]
        results = [
            result for result in self.plan.results
            if self.plan.is_row(result.scalar, result) and self.level(result.scalar) == number
        ]  # fmt: skip
        if not wanted and not results:
            return
        for scalar in wanted:
            name = f"column{self.number()}"
            self.out.put(f"{C_TYPES[scalar.dtype]} {name}[{self.block}];")
            self.names[scalar] = f"{name}[j]"
        self.out.put("#pragma omp simd")
        self.out.open("for (int64_t j = 0; j < width; ++j)")
        local = {scalar: name for scalar, name in self.names.items() if scalar not in wanted}
        for scalar in below([*wanted, *(result.scalar for result in results)], stop=lambda item: item in local):
            if scalar not in local and not isinstance(scalar, Literal):
                local[scalar] = self.define(scalar, local)
        for scalar in wanted:
            self.out.put(f"{self.names[scalar]} = {local[scalar]};")
        for result in results:
            self.out.put(f"{self.element(result.name, result.strides)} = {self.ref(result.scalar, local)};")
        self.out.close()

    def _frontier(self) -> list[Scalar]:
        """Column values that a walk, or a later column value, reads."""
        found: dict[Scalar, None] = {}
        for scalar in self.plan.scalars:
            for child in children(scalar):
                if self._is_column(child) and not isinstance(child, Red):
                    later = self._is_column(scalar) and self.level(scalar) == self.level(child)
                    if not later:
                        found.setdefault(child)
        return list(found)

    # ---- one walk

    def _pass(self, number: int) -> None:
        reds = [red for red in self.plan.reds if self.plan.levels[red] == number]
        stores = self._stores(number)
        if reds or stores:
            Walk(self, reds=reds, stores=stores).write()

    # ---- text of one value

    def number(self) -> int:
        self._count += 1
        return self._count

    def define(self, scalar: Scalar, names: dict[Scalar, str]) -> str:
        """Write `const T v = ...;` and return its name."""
        name = self._fresh_name(scalar)
        self.out.put(f"const {C_TYPES[scalar.dtype]} {name} = {self.value_text(scalar, names)};")
        return name

    def _fresh_name(self, scalar: Scalar) -> str:
        if isinstance(scalar, Load):
            return f"{self.pointer[scalar.name]}_v{self.number()}"
        return f"v{self.number()}"

    def value_text(self, scalar: Scalar, names: dict[Scalar, str]) -> str:
        """What computes the scalar from named operands."""
        match scalar:
            case Op(args=args):
                return expression(scalar, [self.ref(arg, names) for arg in args], self.dialect)
            case Load():
                return self._load_text(scalar, names)
            case Position(offset=offset, steps=steps):
                return self._sum(offset, steps, scalar.dynamic, names, checked=False)
            case Pick(axis=axis, pieces=pieces):
                return self._choice(axis, pieces, names)
            case _:
                raise Unfusible(f"no text for {type(scalar).__name__}")

    def _load_text(self, load: Load, names: dict[Scalar, str]) -> str:
        place = self._sum(load.offset, load.strides, load.dynamic, names, checked=True)
        element = f"{self.pointer[load.name]}[{place}]"
        # Widened before it is tested: a loop that tests bytes runs in byte lanes, several times slower.
        return f"static_cast<int>({element}) != 0" if load.dtype == "bool" else element

    def _choice(self, axis: Axis, pieces: tuple[tuple[int, int, Scalar], ...], names: dict[Scalar, str]) -> str:
        """Only the chosen side is evaluated, so that no piece is read outside its range."""
        *head, (_, _, last) = pieces
        text = self._inline(last, names)
        for _, stop, piece in reversed(head):
            text = f"({self.index(axis)} < {stop} ? {self._inline(piece, names)} : {text})"
        return text

    def _inline(self, scalar: Scalar, names: dict[Scalar, str]) -> str:
        if scalar in names or isinstance(scalar, Literal):
            return self.ref(scalar, names)
        inner = {**names, **{child: self._inline(child, names) for child in children(scalar)}}
        return f"({self.value_text(scalar, inner)})"

    def ref(self, scalar: Scalar, names: dict[Scalar, str]) -> str:
        if isinstance(scalar, Literal):
            return literal(scalar.value, scalar.dtype)
        return names[scalar]

    def index(self, axis: Axis) -> str:
        return "(c + j)" if axis is self.plan.columns else self.loops[axis]

    def _sum(
        self,
        offset: int,
        steps: dict[Axis, int],
        dynamic: tuple[tuple[Scalar, int, int], ...],
        names: dict[Scalar, str],
        *,
        checked: bool,
    ) -> str:
        order = [axis for axis in self.plan.every_axis if steps.get(axis)]
        terms = [self.index(axis) if steps[axis] == 1 else f"{self.index(axis)} * {steps[axis]}" for axis in order]
        for scalar, step, size in dynamic:
            at = self.ref(scalar, names)
            at = self.inside(at, size) if checked else at
            terms.append(at if step == 1 else f"{at} * {step}")
        if offset or not terms:
            terms.append(str(offset))
        return " + ".join(terms).replace("+ -", "- ")

    def inside(self, at: str, size: int) -> str:
        """An index that was loaded, checked against the dimension it goes into."""
        return f"inside({at}, {size}, bad)"

    def element(self, name: str, strides: dict[Axis, int]) -> str:
        return f"{self.pointer[name]}[{self._sum(0, strides, (), {}, checked=False)}]"
