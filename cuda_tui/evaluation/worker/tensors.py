"""Tensors as raw bytes in a file plus a list of descriptions: no pickles, no shared objects."""

import ctypes
import mmap
import os
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from . import driver

ALIGNMENT = 64
_open, _map, _byte, _memmove, _address = open, mmap.mmap, ctypes.c_char, ctypes.memmove, ctypes.addressof
_Tensor = torch._C.TensorBase  # its methods cannot be replaced by a candidate, those of torch.Tensor can
_data_ptr, _stride, _element_size = _Tensor.data_ptr, _Tensor.stride, _Tensor.element_size


def dtype_name(dtype: torch.dtype) -> str:
    """`float32` for torch.float32."""
    return str(dtype).removeprefix("torch.")


def write_tensors(tensors: "Sequence[torch.Tensor]", path: str, *, settled: bool = False) -> "list[dict[str, Any]]":
    """Write the memory each tensor spans, 64-byte aligned. Returns shape, stride, dtype, offset and length of each, and
    `shift`: by how many elements the first one lies beyond a multiple of 64 bytes of its storage.

    The bytes are taken from memory as they are now, by the interpreter and not by an operator of torch: nothing that
    a candidate replaced or intercepted gets the chance to finish its work on the way out. A GPU is waited for first,
    unless `settled` says that whoever calls has waited for what it wants to wait for.
    """
    if not settled and any(tensor.device.type == "cuda" for tensor in tensors):
        torch.cuda.synchronize()
    rows: list[dict[str, Any]] = []
    offset = 0
    plain = [_plain(given) for given in tensors]
    for tensor in plain:
        size = span(tensor) * _element_size(tensor)
        row: dict[str, Any] = {"offset": offset, "bytes": size, "dtype": dtype_name(tensor.dtype)}
        shape, stride = list(tensor.shape), list(_stride(tensor))
        shift = tensor.storage_offset() % max(1, ALIGNMENT // _element_size(tensor))
        rows.append(row | {"shape": shape, "stride": stride, "shift": shift, "device": str(tensor.device)})
        offset += -(-size // ALIGNMENT) * ALIGNMENT
    with _open(path, "w+b") as handle:
        handle.truncate(max(offset, 1))
        with _map(handle.fileno(), max(offset, 1)) as target:
            for tensor, row in zip(plain, rows, strict=True):
                if row["bytes"]:
                    place = _byte.from_buffer(target, row["offset"])
                    _copy(tensor, _address(place), row["bytes"])
                    del place  # a map with a view of it cannot be closed
    return rows


def _copy(tensor: torch.Tensor, target: int, size: int) -> None:
    """The memory that a tensor spans, as it is now; a GPU's is copied without waiting for work of other streams."""
    if tensor.device.type == "cpu":
        _memmove(target, _data_ptr(tensor), size)
    else:
        _copier().to_host(_data_ptr(tensor), target, size)


@cache
def _copier() -> driver.Copier:
    return driver.Copier()


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor whose bytes are its values."""
    if tensor.device.type not in ("cpu", "cuda"):
        tensor = tensor.detach().cpu()
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.detach().resolve_conj().resolve_neg()
        if tensor.device.type == "cuda":
            torch.cuda.current_stream(tensor.device).synchronize()
    return tensor


def span(tensor: torch.Tensor) -> int:
    """Elements from the first to the last one in memory."""
    sizes = list(tensor.shape)
    if 0 in sizes:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(sizes, _stride(tensor), strict=True))


def read_tensors(
    path: str, rows: "Sequence[dict[str, Any]]", device: "str | torch.device" = "cpu"
) -> "list[torch.Tensor]":
    """The tensors that `write_tensors` wrote, as private copies with the strides and the shift they had.

    Raises ValueError where the file or a row is not what `write_tensors` makes.
    """
    if os.path.islink(path) or not os.path.isfile(path):
        raise ValueError("it is no regular file")
    total = os.path.getsize(path)
    view = torch.from_file(path, shared=False, size=max(total, 1), dtype=torch.uint8)
    return [_read(view, row, total, device) for row in rows]


def _read(view: torch.Tensor, row: "dict[str, Any]", total: int, device: "str | torch.device") -> torch.Tensor:
    dtype = getattr(torch, row["dtype"])
    start, size, shift = row["offset"], row["bytes"], int(row.get("shift", 0))
    shape, stride = [*map(int, row["shape"])], [*map(int, row["stride"])]
    span = 0 if 0 in shape else 1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))
    fits = 0 <= start <= total and 0 <= size <= total - start and min([0, *shape, *stride]) >= 0
    if not fits or not 0 <= shift < ALIGNMENT or size != span * torch.empty((), dtype=dtype).element_size():
        raise ValueError("a tensor lies outside of it")
    memory = torch.empty(shift + span, dtype=dtype, device=device)
    memory[shift:].copy_(view[start : start + size].view(dtype))
    return memory.as_strided(shape, stride, shift)


def memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """All that a tensor spans, gaps included, as one dimension that shares its memory."""
    return tensor.detach().as_strided((span(tensor),), (1,))
