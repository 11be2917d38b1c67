"""Tensors as raw bytes in a file plus a list of descriptions: no pickles, no shared objects."""

from collections.abc import Sequence
from typing import Any

import torch

ALIGNMENT = 64


def dtype_name(dtype: torch.dtype) -> str:
    """`float32` for torch.float32."""
    return str(dtype).removeprefix("torch.")


def write_tensors(tensors: "Sequence[torch.Tensor]", path: str) -> "list[dict[str, Any]]":
    """Write tensors one after the other, each contiguous and 64-byte aligned. Returns shape, stride, dtype, offset."""
    rows: list[dict[str, Any]] = []
    offset = 0
    for tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        row: dict[str, Any] = {"offset": offset, "bytes": size, "dtype": dtype_name(tensor.dtype)}
        rows.append(row | {"shape": list(tensor.shape), "stride": list(tensor.stride()), "device": str(tensor.device)})
        offset += -(-size // ALIGNMENT) * ALIGNMENT
    with open(path, "wb") as handle:
        handle.truncate(max(offset, 1))
    view = torch.from_file(path, shared=True, size=max(offset, 1), dtype=torch.uint8)
    for tensor, row in zip(tensors, rows, strict=True):
        if row["bytes"]:
            flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            view[row["offset"] : row["offset"] + row["bytes"]].copy_(flat)
    return rows


def read_tensors(path: str, rows: "Sequence[dict[str, Any]]", device: str = "cpu") -> "list[torch.Tensor]":
    """The tensors that `write_tensors` wrote, as private copies with the strides they had."""
    total = max((row["offset"] + row["bytes"] for row in rows), default=0)
    view = torch.from_file(path, shared=False, size=max(total, 1), dtype=torch.uint8)
    return [_read(view, row, device) for row in rows]


def _read(view: torch.Tensor, row: "dict[str, Any]", device: str) -> torch.Tensor:
    dtype = getattr(torch, row["dtype"])
    raw = view[row["offset"] : row["offset"] + row["bytes"]].clone()
    tensor = raw.view(dtype).reshape(row["shape"])
    return with_stride(tensor, row["stride"]).to(device)


def with_stride(tensor: torch.Tensor, stride: "Sequence[int]") -> torch.Tensor:
    """The same values with the given strides; a stride of 0 becomes an expanded dimension again."""
    if list(tensor.stride()) == list(stride):
        return tensor
    for dimension, step in enumerate(stride):
        if step == 0 and tensor.shape[dimension] > 1:
            narrow = tensor.narrow(dimension, 0, 1)
            inner = [*stride[:dimension], 1, *stride[dimension + 1 :]]
            return with_stride(narrow.contiguous(), inner).expand(tensor.shape)
    result = torch.empty_strided(tensor.shape, tuple(stride), dtype=tensor.dtype)
    return result.copy_(tensor)
