"""Decompositions of writes to selected elements: scatters that reduce, index_put by a mask, masked_scatter; and of
reads at places of i32."""

# torch may not be installed, and much of it has no types.
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch


def decompositions() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    return {
        aten.scatter.reduce: _scatter_joined,
        aten.scatter.value_reduce: _scatter_joined,
        aten.scatter_reduce.two: _scatter_mean,
        aten.index.Tensor: _index_by_i64,
        aten.index_put.default: _put_by_mask,
        aten.masked_scatter.default: _masked_scatter,
        aten.index_reduce.default: _index_reduce,
        aten.unfold_backward.default: _sum_windows,
        aten.diagonal_scatter.default: _write_diagonal,
        aten.select_scatter.default: _write_slice,
    }


def _scatter_joined(x: Any, dim: int, index: Any, src: Any, *, reduce: str) -> Any:
    """The older form of scatter_reduce, which also accepts a number."""
    source = src if isinstance(src, torch.Tensor) else torch.full_like(index, src, dtype=x.dtype)
    names = {"add": "sum", "multiply": "prod"}
    return torch.scatter_reduce(x, dim, index, source, names[reduce], include_self=True)


def _scatter_mean(x: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True) -> Any:
    if reduce != "mean":
        return NotImplemented
    kind = x.dtype
    wide = torch.float32 if kind in (torch.float16, torch.bfloat16) else kind
    start = x.to(wide) if include_self else torch.zeros_like(x, dtype=wide)
    total = torch.scatter_add(start, dim, index, src.to(wide))
    own = torch.full_like(x, 1 if include_self else 0, dtype=wide)
    count = torch.scatter_add(own, dim, index, torch.ones_like(src, dtype=wide))
    mode = None if kind.is_floating_point else "floor"
    mean = torch.div(total, torch.where(count == 0, 1, count), rounding_mode=mode).to(kind)
    return torch.where(count == 0, x, mean)


def _sum_windows(windows: Any, input_sizes: Sequence[Any], dim: int, size: int, step: int) -> Any:
    """The inverse of Tensor.unfold, whose windows are the last dimension: sums where windows overlap."""
    dim %= max(1, len(input_sizes))
    starts = torch.arange(windows.shape[dim], device=windows.device) * step
    places = starts.unsqueeze(-1) + torch.arange(size, device=windows.device)
    lines = windows.movedim(-1, dim + 1).flatten(dim, dim + 1)
    result = torch.zeros(list(input_sizes), dtype=windows.dtype, device=windows.device)
    return result.index_add(dim, places.reshape(-1), lines)


def _write_diagonal(x: Any, source: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """`x` with a diagonal replaced by `source`, whose last dimension is along it."""
    count = source.shape[-1]
    if not isinstance(count, int) or not count:
        return NotImplemented
    planes = x.movedim((dim1, dim2), (-2, -1))
    rows, columns = (torch.arange(extent, device=x.device) for extent in planes.shape[-2:])
    is_written = columns - rows.unsqueeze(-1) == offset
    taken = source.index_select(-1, torch.clamp(rows + min(offset, 0), 0, count - 1))
    return torch.where(is_written, taken.unsqueeze(-1).to(x.dtype), planes).movedim((-2, -1), (dim1, dim2))


def _write_slice(x: Any, source: Any, dim: int, index: Any) -> Any:
    """`x` with a slice replaced by `source`, also where its index is a number that is read from a tensor."""
    shape = [1] * x.ndim
    shape[dim] = -1
    places = torch.arange(x.shape[dim], device=x.device).reshape(shape)
    is_written = (places == index) | (places - x.shape[dim] == index)
    return torch.where(is_written, source.unsqueeze(dim).to(x.dtype), x)


def _index_reduce(x: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True) -> Any:
    """Combines slices with those at the given indices, by a scatter of all their elements."""
    shape = [1] * x.ndim
    shape[dim] = -1
    places = index.reshape(shape).expand(source.shape)
    return torch.scatter_reduce(x, dim, places, source, reduce, include_self=include_self)


def _index_by_i64(x: Any, indices: Sequence[Any]) -> Any:
    wide = _widened(indices)
    return NotImplemented if wide is None else torch.ops.aten.index.Tensor(x, wide)


def _widened(indices: Sequence[Any]) -> list[Any] | None:
    """The indices with those of i32 as i64, for all must have one type; None if there are none of i32."""
    if not any(index is not None and index.dtype == torch.int32 for index in indices):
        return None
    return [index.to(torch.int64) if index is not None and index.dtype == torch.int32 else index for index in indices]


def _put_by_mask(x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    """index_put by one mask over leading dimensions, with the same value for all selected elements; an index that is a
    tensor of rank 0, for which torch-mlir crashes, becomes a vector; dimensions between indexed ones come last."""
    dims = [dim for dim, index in enumerate(indices) if index is not None]
    masks = [dim for dim in dims if indices[dim].dtype in (torch.bool, torch.uint8)]
    if not masks and any(after - dim > 1 for dim, after in pairwise(dims)):
        order = [*dims, *(dim for dim in range(x.ndim) if dim not in dims)]  # as the selected elements lie
        made = torch.ops.aten.index_put.default(x.permute(order), [indices[dim] for dim in dims], values, accumulate)
        return made.permute([order.index(dim) for dim in range(x.ndim)])
    if any(index is not None and index.ndim == 0 and index.dtype != torch.bool for index in indices):
        lines = [index.reshape(1) if index is not None and index.ndim == 0 else index for index in indices]
        return torch.ops.aten.index_put.default(x, lines, values, accumulate)
    if (wide := _widened(indices)) is not None:
        return torch.ops.aten.index_put.default(x, wide, values, accumulate)
    if len(indices) != 1 or indices[0] is None or indices[0].dtype not in (torch.bool, torch.uint8):
        return NotImplemented
    mask = indices[0] != 0
    inner = x.ndim - mask.ndim
    if values.ndim > inner:
        if any(extent != 1 for extent in values.shape[: values.ndim - inner]):
            return NotImplemented
        values = values.reshape(values.shape[values.ndim - inner :])
    mask = mask.reshape(*mask.shape, *(1 for _ in range(inner)))
    return torch.where(mask, x + values if accumulate else values.to(x.dtype), x)


def _masked_scatter(x: Any, mask: Any, source: Any) -> Any:
    """Writes the elements of `source`, in order, where the mask is set."""
    shape = torch.broadcast_shapes(x.shape, mask.shape)
    x, mask = x.expand(shape), mask.expand(shape)
    if not all(isinstance(extent, int) for extent in (*shape, *source.shape)) or source.numel() == 0:
        return NotImplemented
    before = torch.cumsum(mask.reshape(-1).to(torch.int64), 0) - 1
    taken = torch.index_select(source.reshape(-1), 0, torch.clamp(before, 0, source.numel() - 1))
    return torch.where(mask, taken.reshape(shape), x)
