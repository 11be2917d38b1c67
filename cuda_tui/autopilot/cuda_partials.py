"""Partial results of split forms: what the blocks of a row leave in memory for the next kernel."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cuda_tui.autopilot.cuda_shape import JOIN
from cuda_tui.autopilot.online import Pair
from cuda_tui.autopilot.scalar import Red

if TYPE_CHECKING:
    from cuda_tui.autopilot.cuda_nest import CudaNest

SLOT_BYTES = {"double": 8, "int64_t": 8, "dev::Running<float>": 8, "dev::Running<double>": 16}


@dataclass(frozen=True)
class Slot:
    """Where the partial results of a reduction, or of a pair, lie among all partial results; `offset` in bytes."""

    kind: str
    offset: int


class Partials:
    """The partial results of one nest."""

    def __init__(self, nest: "CudaNest") -> None:
        self._nest = nest
        self.slots = self._slots()

    @property
    def bytes(self) -> int:
        """Memory for all of them."""
        return max((slot.offset + self._slot_bytes(slot.kind) for slot in self.slots.values()), default=0)

    def _slots(self) -> dict[Red | Pair, Slot]:
        slots: dict[Red | Pair, Slot] = {}
        offset = 0
        if self._nest.shape.is_split:
            for red in self._nest.plan.reds:
                item = self._nest.paired.get(red, red)
                if item not in slots:
                    slots[item] = Slot(self._nest.kind(item), offset)
                    offset += -(-self._slot_bytes(slots[item].kind) // 256) * 256
        return slots

    def _slot_bytes(self, kind: str) -> int:
        size = SLOT_BYTES.get(kind, 4)
        return size * self._nest.rows_count * self._nest.shape.chunks * self._nest.columns

    def keep(self, item: Red | Pair) -> None:
        """Write a block's value."""
        slot, name = self.slots[item], self._nest.accumulators[item]  # type: ignore[index]
        place = f"row * {self._nest.shape.chunks} + chunk"
        target = f"reinterpret_cast<{slot.kind}*>(partials + {slot.offset})"
        if self._nest.shape.is_columns:
            self._nest.out.put("if (live && threadIdx.y == 0)")
            self._nest.out.put("#pragma unroll")
            self._nest.out.put(
                f"for (int u = 0; u < {self._nest.shape.width}; ++u) "
                f"{target}[({place}) * {self._nest.columns} + j0 + u] = {name}[u];"
            )
        else:
            self._nest.out.put(f"if (threadIdx.x == 0) {target}[{place}] = {name};")

    def join(self, item: Red | Pair) -> None:
        """Read what all blocks of an earlier kernel wrote, and make one value of it."""
        slot, part, chunks = self.slots[item], f"part{self._nest.number()}", self._nest.shape.chunks
        join = "dev::Below" if isinstance(item, Pair) else JOIN[item.op]
        source = f"reinterpret_cast<const {slot.kind}*>(partials + {slot.offset})"
        if self._nest.shape.is_columns:
            width = self._nest.shape.width
            self._nest.out.put(f"{slot.kind} {part}[{width}];")
            self._nest.out.put("#pragma unroll")
            self._nest.out.open(f"for (int u = 0; u < {width}; ++u)")
            self._nest.out.put(f"{part}[u] = dev::empty<{slot.kind}, {join}>();")
            self._nest.out.open(f"for (int c = threadIdx.y; c < {chunks}; c += {self._nest.here[1]})")
            place = f"(row * {chunks} + c) * {self._nest.columns} + j0 + u"
            self._nest.out.put(f"{part}[u] = {join}::join({part}[u], {source}[{place}]);")
            self._nest.out.close()
            self._nest.out.close()
        else:
            self._nest.out.put(f"{slot.kind} {part} = dev::empty<{slot.kind}, {join}>();")
            self._nest.out.put(f"for (int c = threadIdx.x; c < {chunks}; c += {self._nest.here[0]})")
            self._nest.out.put(f"  {part} = {join}::join({part}, {source}[row * {chunks} + c]);")
        self._nest.join_block(item, part)
