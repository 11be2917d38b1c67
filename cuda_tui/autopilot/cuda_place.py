"""Where a thread of a CUDA kernel works, as its first lines say."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from cuda_tui.autopilot.axes import Axis
from cuda_tui.autopilot.cuda_shape import Form

if TYPE_CHECKING:
    from cuda_tui.autopilot.cuda_nest import CudaNest


def place(nest: "CudaNest", *, joins: bool = False) -> None:
    """Row, column and part of the walk, from block and thread."""
    shape, plan, index = nest.shape, nest.plan, nest.shape.index
    if shape.is_columns:
        _place_columns(nest, 1 if joins else shape.chunks)
    elif shape.form is Form.FLAT:
        pass  # each item finds its own place
    elif shape.form in (Form.TILED, Form.SPLIT, Form.CLUSTER):
        parts = 1 if joins else nest.tiles if shape.form is Form.TILED else shape.chunks
        nest.out.put(f"[[maybe_unused]] const {index} row = {index}(blockIdx.x){f' / {parts}' if parts > 1 else ''};")
        nest.out.put(f"[[maybe_unused]] const int chunk = {f'blockIdx.x % {parts}' if parts > 1 else '0'};")
        decode(nest, "row", plan.rows)
        if shape.form is Form.CLUSTER:
            nest.out.put("dev::cluster_arrive();")
    elif shape.x < 32:
        nest.out.put(f"const {index} place = {index}(blockIdx.x) * {shape.y} + threadIdx.y;")
        nest.out.put(f"const bool live = place < {nest.rows_count};  // other rows are computed twice, not stored")
        nest.out.put(f"[[maybe_unused]] const {index} row = live ? place : {nest.rows_count - 1};")
        decode(nest, "row", plan.rows)
    else:
        own = f" * {shape.y} + threadIdx.y" if shape.y > 1 else ""
        nest.out.put(f"[[maybe_unused]] const {index} row = {index}(blockIdx.x){own};")
        if shape.y > 1 and nest.rows_count % shape.y:
            nest.out.put(f"if (row >= {nest.rows_count}) return;  // a whole warp at once")
        decode(nest, "row", plan.rows)


def _place_columns(nest: "CudaNest", chunks: int) -> None:
    shape, index, parts = nest.shape, nest.shape.index, nest.column_blocks
    nest.out.put(f"const {index} place = ({index}(blockIdx.x) % {parts} * {shape.x} + threadIdx.x) * {shape.width};")
    nest.out.put(f"const bool live = place < {nest.columns};  // other columns are computed twice, not stored")
    nest.out.put(f"const {index} j0 = live ? place : {nest.columns - shape.width};")
    rest = f"{index}(blockIdx.x) / {parts}" if parts > 1 else f"{index}(blockIdx.x)"
    nest.out.put(f"[[maybe_unused]] const int chunk = {f'{rest} % {chunks}' if chunks > 1 else '0'};")
    nest.out.put(f"[[maybe_unused]] const {index} row = {rest}{f' / {chunks}' if chunks > 1 else ''};")
    decode(nest, "row", nest.plan.rows)


def decode(nest: "CudaNest", start: str, axes: Iterable[Axis], *, last_as: str = "") -> None:
    """The number of a row as one index for each axis; `last_as` names the last one."""
    inner, listed = 1, list(axes)
    for position, axis in reversed(list(enumerate(listed))):
        whole = start if inner == 1 else f"{start} / {inner}"
        text = whole if position == 0 else f"{whole} % {nest.plan.sizes[axis]}"
        name = last_as if last_as and position == len(listed) - 1 else nest.loops[axis]
        nest.out.put(f"[[maybe_unused]] const {nest.shape.index} {name} = {text};")
        inner *= nest.plan.sizes[axis]
