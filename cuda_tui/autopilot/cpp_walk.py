"""One walk over the inner axes: load, compute, accumulate, store."""

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from cuda_tui.autopilot.axes import Axis
from cuda_tui.autopilot.expressions import C_TYPES
from cuda_tui.autopilot.graph import FLOATS
from cuda_tui.autopilot.plan import Result
from cuda_tui.autopilot.scalar import Literal, Pick, Red, Scalar, below, children

if TYPE_CHECKING:
    from cuda_tui.autopilot.cpp_nest import Nest

CHUNK = 1024  # floats summed in float before the partial sum goes to double
LONG_COLUMN = 32  # additions a column may take in float
PARALLEL_FROM = 32_768  # elements; below, waking threads costs more than it saves


class Walk:
    """Writes one pass of a nest."""

    def __init__(self, nest: "Nest", *, reds: list[Red], stores: list[Result]) -> None:
        self.nest = nest
        self.plan = nest.plan
        self.out = nest.out
        self.reds = reds
        self.stores = stores
        self.columns = self.plan.columns
        self.loops = [*self.plan.inner, *([self.columns] if self.columns else [])]
        self.roots = [*(red.arg for red in reds), *(result.scalar for result in stores)]
        self.lonely = not self.plan.rows and self.columns is None  # no rows to share between threads
        self.length = math.prod(self.plan.sizes[axis] for axis in self.plan.inner)
        # Whether one float accumulator would take too many additions.
        self.split = self.length > (LONG_COLUMN if self.columns else 2 * CHUNK) or (
            self.columns is None and len(self.loops) > 1
        )
        self.fresh: dict[Scalar, None] = {}  # kept values that this pass stores

    def write(self) -> None:
        """The declarations of accumulators, the loops, and what is left to do after them."""
        for red in self.reds:
            self._declare(red)
        self._open(0, {})
        for red in self.reds:
            self._finish(red)
        self.nest.written |= set(self.fresh)

    # ---- accumulators

    def _in_double(self, red: Red) -> bool:
        return red.op == "sum" and self.split and red.dtype in FLOATS

    def _watches_nan(self, red: Red) -> bool:
        return red.op in ("max", "min") and red.dtype in FLOATS and self.columns is None

    def _declare(self, red: Red) -> None:
        name = f"{'sum' if red.op == 'sum' else 'top' if red.op != 'min' else 'low'}{self.nest.number()}"
        kind = "double" if self._in_double(red) else C_TYPES[red.dtype]
        start = "0" if red.op == "sum" else _extreme(red)
        self.nest.accumulators[red] = name
        if self.columns is not None:
            self.out.put(f"{kind} {name}[{self.nest.block}];")
            self.out.put(f"std::fill_n({name}, width, {kind}({start}));")
        else:
            self.out.put(f"{kind} {name} = {start};")
        if self._watches_nan(red):
            self.out.put(f"int {name}_nans = 0;  // one NaN makes the result NaN")

    def _finish(self, red: Red) -> None:
        name, kind = self.nest.accumulators[red], C_TYPES[red.dtype]
        element = f"{name}[j]" if self.columns is not None else name
        if self._watches_nan(red):
            self.out.put(f"if ({name}_nans) {name} = NAN;")
        if self._in_double(red) and kind != "double":
            element = f"static_cast<{kind}>({element})"
        self.nest.names[red] = element

    # ---- loops

    def _open(self, depth: int, names: dict[Scalar, str]) -> None:
        """The loops from `depth` inwards. A value is computed in the outermost loop that fixes it."""
        axis = self.loops[depth] if depth < len(self.loops) else None
        if axis is None:
            self._body(names, 0)
        elif depth < len(self.loops) - 1:
            if depth == 0 and self.lonely:
                self._pragma("parallel for", parts=False)
            loop = self.nest.loops[axis]
            self.out.open(f"for (int64_t {loop} = 0; {loop} < {self.plan.sizes[axis]}; ++{loop})")
            inside = dict(names)
            deeper = frozenset(self.loops[depth + 1 :])
            for scalar in self._ordered(None):
                if not scalar.axes & deeper:
                    self._value(scalar, inside, None)
            self._open(depth + 1, inside)
            self.out.close()
        elif self.columns is not None:
            self.out.put("#pragma omp simd")
            self.out.open("for (int64_t j = 0; j < width; ++j)")
            self._body(dict(names), 0)
            self.out.close()
        else:
            for low, high in pairwise(self._cuts(axis)):
                self._vector_loop(low, high, names)

    def _vector_loop(self, low: int, high: int, names: dict[Scalar, str]) -> None:
        sums = [red for red in self.reds if self._in_double(red)]
        chunked = bool(sums) and high - low > 2 * CHUNK
        outermost = self.lonely and len(self.loops) == 1
        start, stop = str(low), str(high)
        if chunked:
            if outermost:
                self._pragma("parallel for", parts=False)
            self.out.open(f"for (int64_t j0 = {low}; j0 < {high}; j0 += {CHUNK})")
            self.out.put(f"const int64_t j1 = std::min<int64_t>(j0 + {CHUNK}, {high});")
            start, stop = "j0", "j1"
        for red in sums:
            self.out.put(f"{C_TYPES[red.dtype]} {self.nest.accumulators[red]}_part = 0;")
        shared = outermost and not chunked and not sums
        self._pragma("parallel for simd" if shared else "simd", parts=True)
        self.out.open(f"for (int64_t j = {start}; j < {stop}; ++j)")
        self._body(dict(names), low)
        self.out.close()
        for red in sums:
            self.out.put(f"{self.nest.accumulators[red]} += {self.nest.accumulators[red]}_part;")
        if chunked:
            self.out.close()

    def _cuts(self, axis: Axis) -> list[int]:
        """The vector loop is cut where a concatenation changes its source, so that no loop holds a branch."""
        cuts = {0, self.plan.sizes[axis]}
        for scalar in below(self.roots, stop=self.nest.outside):
            if isinstance(scalar, Pick) and scalar.axis is axis:
                cuts |= {edge for low, high, _ in scalar.pieces for edge in (low, high)}
        return sorted(cuts)

    def _pragma(self, directive: str, *, parts: bool) -> None:
        """`parts`: the loop adds to the float part of sums that are kept in double."""
        clauses = []
        for red in self.reds:
            name = self.nest.accumulators[red]
            name = f"{name}_part" if parts and self._in_double(red) else name
            clauses.append(f"reduction({'+' if red.op == 'sum' else 'min' if red.op == 'min' else 'max'}:{name})")
            clauses += [f"reduction(+:{name}_nans)"] if self._watches_nan(red) else []
        clauses += ["reduction(|:bad)"] if self.nest.checks else []
        if directive.startswith("parallel"):
            clauses.append(f"schedule(static) if(parallel: {self.plan.elements} > {PARALLEL_FROM})")
        self.out.put(" ".join([f"#pragma omp {directive}", *clauses]))

    # ---- the body of the innermost loop

    def _ordered(self, low: int | None) -> list[Scalar]:
        """What this walk computes, operands first. `low` says which side of a concatenation holds; None: unknown."""
        done: dict[Scalar, None] = {}

        def visit(scalar: Scalar) -> None:
            if scalar in done or self.nest.outside(scalar) or isinstance(scalar, Literal):
                return
            for child in self._parts(scalar, low):
                visit(child)
            done.setdefault(scalar)

        for root in self.roots:
            visit(root)
        return list(done)

    def _parts(self, scalar: Scalar, low: int | None) -> tuple[Scalar, ...]:
        if scalar in self.nest.written:
            return ()
        if isinstance(scalar, Pick):
            return self._piece(scalar, low)
        return children(scalar)

    def _piece(self, pick: Pick, low: int | None) -> tuple[Scalar, ...]:
        """The side of a concatenation along the vector axis that holds from `low` on; others are written inline."""
        if low is None or pick.axis is not self.loops[-1]:
            return ()
        return tuple(piece for start, stop, piece in pick.pieces if start <= low < stop)

    def _value(self, scalar: Scalar, names: dict[Scalar, str], low: int | None) -> None:
        known = {**self.nest.names, **names}
        if scalar in known:
            return
        if isinstance(scalar, Pick) and pick_waits(scalar, low, self.loops[-1]):
            return
        if scalar in self.nest.written:
            names[scalar] = self._scratch(scalar)
        elif isinstance(scalar, Pick) and (chosen := self._piece(scalar, low)):
            names[scalar] = self.nest.ref(chosen[0], known)
        elif all(child in known or isinstance(child, Literal) for child in self._parts(scalar, low)):
            names[scalar] = self.nest.define(scalar, known)  # otherwise an operand waits for a deeper loop

    def _scratch(self, scalar: Scalar) -> str:
        terms, stride = [], 1
        for axis in reversed(self.loops):
            loop = "j" if axis is self.loops[-1] else self.nest.loops[axis]
            terms.append(loop if stride == 1 else f"{loop} * {stride}")
            stride *= self.nest.block if axis is self.columns else self.plan.sizes[axis]
        return f"{self.nest.kept[scalar]}[{' + '.join(reversed(terms))}]"

    def _body(self, names: dict[Scalar, str], low: int) -> None:
        for scalar in self._ordered(low):
            self._value(scalar, names, low)
            if scalar in self.nest.kept and scalar not in self.nest.written:
                self.out.put(f"{self._scratch(scalar)} = {names[scalar]};")
                self.fresh.setdefault(scalar)
        known = {**self.nest.names, **names}
        for red in self.reds:
            self._accumulate(red, self.nest.ref(red.arg, known))
        for result in self.stores:
            self.out.put(f"{self.nest.element(result.name, result.strides)} = {self.nest.ref(result.scalar, known)};")

    def _accumulate(self, red: Red, value: str) -> None:
        name = self.nest.accumulators[red]
        if self.columns is not None:
            name = f"{name}[j]"
        elif self._in_double(red):
            name = f"{name}_part"
        sign = "<" if red.op == "min" else ">"
        if red.op == "sum":
            self.out.put(f"{name} += {value};")
        elif self.columns is not None and red.op != "softmax_max" and red.dtype in FLOATS:
            self.out.put(f"{name} = ({value} {sign} {name}) | ({value} != {value}) ? {value} : {name};")
        else:
            self.out.put(f"{name} = {value} {sign} {name} ? {value} : {name};")
        if self._watches_nan(red):
            self.out.put(f"{self.nest.accumulators[red]}_nans += {value} != {value} ? 1 : 0;")


def pick_waits(pick: Pick, low: int | None, vector: Axis) -> bool:
    """Whether the side is known only inside the vector loop."""
    return low is None and pick.axis is vector


def _extreme(red: Red) -> str:
    """What loses against every value."""
    kind, largest = C_TYPES[red.dtype], red.op == "min"
    if red.dtype in FLOATS:
        return "INFINITY" if largest else "-INFINITY"
    return f"std::numeric_limits<{kind}>::{'max' if largest else 'lowest'}()"
