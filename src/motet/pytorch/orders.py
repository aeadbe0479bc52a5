"""Decompositions of PyTorch's scans, and of operators based on sorting.

cumsum, cumprod, cummax, cummin; sort (stable), kthvalue, median, nanmedian.
"""

# torch may not be installed, and much of it has no types.
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def decompositions() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    return {
        aten.cumsum.default: _cumsum,
        aten.cumprod.default: _cumprod,
        aten.cummax.default: _cummax,
        aten.cummin.default: _cummin,
        aten.sort.stable: _sort,
        aten.topk.default: _topk,
        aten.kthvalue.default: _kthvalue,
        aten.median.default: _median,
        aten.median.dim: _median_along,
        aten.nanmedian.default: _nanmedian,
        aten.nanmedian.dim: _nanmedian_along,
    }


def _prefixes(x: Any, dim: int, join: Callable[[Any, Any], Any], neutral: float) -> Any:
    """All prefixes of `x` combined, in log2 of the extent many steps (Hillis and Steele, 1986)."""
    dim %= x.ndim
    done = 1
    while done < x.shape[dim]:
        head = torch.full_like(x.narrow(dim, 0, done), neutral)
        x = join(x, torch.cat([head, x.narrow(dim, 0, x.shape[dim] - done)], dim))
        done *= 2
    return x


def _accumulated(scan: Any, x: Any, dim: int, dtype: Any, join: Callable[[Any, Any], Any], neutral: float) -> Any:
    """`scan` in the type that PyTorch accumulates in; torch-mlir lowers it, except for complex numbers."""
    kind = dtype or (x.dtype if x.dtype.is_floating_point or x.dtype.is_complex else torch.int64)
    if not x.ndim:
        return x.to(kind, copy=True)
    if kind.is_complex:
        return _prefixes(x.to(kind), dim, join, neutral)
    wide = torch.float32 if kind in (torch.float16, torch.bfloat16) else kind
    if x.dtype == wide and dtype is None:
        return NotImplemented
    return scan(x.to(kind).to(wide), dim).to(kind)


def _cumsum(x: Any, dim: int, *, dtype: Any = None) -> Any:
    return _accumulated(torch.ops.aten.cumsum.default, x, dim, dtype, torch.add, 0)


def _cumprod(x: Any, dim: int, *, dtype: Any = None) -> Any:
    return _accumulated(torch.ops.aten.cumprod.default, x, dim, dtype, torch.mul, 1)


def _sort(x: Any, *, stable: bool | None = None, dim: int = -1, descending: bool = False) -> Any:
    return torch.ops.aten.sort.default(x, dim, descending)  # which is always stable here


def _topk(x: Any, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """Sorted results are valid for `sorted=False`, too."""
    return NotImplemented if sorted else torch.topk(x, k, dim, largest, True)


def _kthvalue(x: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    if not x.ndim:
        return NotImplemented
    found = [torch.narrow(part, dim, k - 1, 1) for part in torch.ops.aten.sort.default(x, dim, False)]
    return tuple(part if keepdim else part.squeeze(dim) for part in found)


def _extreme_so_far(x: Any, dim: int, join: Callable[[Any, Any], Any]) -> Any:
    """The extreme of each prefix, and its last index; the first NaN is the extreme from then on."""
    if not x.ndim or not isinstance(x.shape[dim], int):
        return NotImplemented
    dim %= x.ndim
    kind = x.dtype
    x = x.to(torch.int32) if kind == torch.bool else x
    values = _doubled(x, dim, join)
    shape = [1] * x.ndim
    shape[dim] = x.shape[dim]
    here = torch.arange(x.shape[dim], dtype=torch.int32, device=x.device).reshape(shape)
    taken = x == values
    taken = taken | torch.isnan(x) if x.dtype.is_floating_point else taken
    places = _doubled(torch.where(taken, here, 0), dim, torch.maximum)
    return values.to(kind), places.to(torch.int64)


def _doubled(x: Any, dim: int, join: Callable[[Any, Any], Any]) -> Any:
    """All prefixes of `x` combined, for idempotent operations."""
    done = 1
    while done < x.shape[dim]:
        later = join(x.narrow(dim, done, x.shape[dim] - done), x.narrow(dim, 0, x.shape[dim] - done))
        x = torch.cat([x.narrow(dim, 0, done), later], dim)
        done *= 2
    return x


def _cummax(x: Any, dim: int) -> Any:
    return _extreme_so_far(x, dim, torch.maximum)


def _cummin(x: Any, dim: int) -> Any:
    return _extreme_so_far(x, dim, torch.minimum)


def _middle(x: Any, dim: int, keepdim: bool, *, with_nan: bool) -> Any:
    """The lower median of each line, and its index. NaN counts as the largest number: it is the result if there is one
    (`with_nan`), or is ignored."""
    if not x.ndim or x.shape[dim] == 0:
        return NotImplemented
    count = x.shape[dim]
    values, places = torch.ops.aten.sort.default(x, dim, False)
    if not x.dtype.is_floating_point:
        found = [part.narrow(dim, (count - 1) // 2, 1) for part in (values, places)]
    else:
        numbers = count - torch.isnan(x).to(torch.int64).sum(dim, keepdim=True)
        if with_nan:
            at = torch.where(numbers < count, numbers, (count - 1) // 2)
        else:
            at = torch.div(torch.clamp(numbers - 1, min=0), 2, rounding_mode="floor")
        found = [torch.gather(part, dim, at) for part in (values, places)]
    return tuple(part if keepdim else part.squeeze(dim) for part in found)


def _median_along(x: Any, dim: int, keepdim: bool = False) -> Any:
    return _middle(x, dim, keepdim, with_nan=True)


def _nanmedian_along(x: Any, dim: int, keepdim: bool = False) -> Any:
    return _middle(x, dim, keepdim, with_nan=False)


def _median(x: Any) -> Any:
    found = _middle(x.reshape(-1), 0, False, with_nan=True)
    return found if found is NotImplemented else found[0]


def _nanmedian(x: Any) -> Any:
    found = _middle(x.reshape(-1), 0, False, with_nan=False)
    return found if found is NotImplemented else found[0]
