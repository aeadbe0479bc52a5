"""Variances and normalisations in the type that PyTorch calculates them in: the wheel's lowering takes f64 for all."""

# torch may not be installed, and much of it has no types.
# pyright: reportMissingImports=false

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

_SHORT = (torch.float16, torch.bfloat16)


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Of operators, for torch.export's table; one that returns NotImplemented leaves a form to the wheel."""
    aten = torch.ops.aten
    return {
        aten.var.correction: _var,
        aten.var.dim: _var_unbiased,
        aten.var_mean.correction: _var_mean,
        aten.std.correction: _std,
        aten.native_layer_norm.default: _layer_norm,
        aten.native_group_norm.default: _group_norm,
        aten.rms_norm.default: _rms_norm,
    }


def _moments(x: Any, dims: Sequence[int], correction: float) -> tuple[Any, Any]:
    """The mean along `dims`, which are kept, and the variance: the sum of the squared distances from the mean over the
    number of elements less `correction`, or over 0. In two passes, which loses no digits where the mean is large."""
    count = math.prod(x.shape[dim] for dim in dims)
    mean = x.sum(list(dims), keepdim=True) / count
    distance = x - mean
    return mean, (distance * distance).sum(list(dims), keepdim=True) / max(0, count - correction)


def _taken(x: Any, dim: Any) -> bool:
    """Whether _moments is right for a form: real numbers, and a number of elements that is known."""
    return x.dtype.is_floating_point and all(isinstance(x.shape[each], int) for each in _dims(x, dim))


def _dims(x: Any, dim: Any) -> list[int]:
    given = range(x.dim()) if dim is None or (isinstance(dim, Sequence) and not dim) else dim
    return [each % x.dim() for each in ([given] if isinstance(given, int) else given)] if x.dim() else []


def _reduced(value: Any, dims: Sequence[int], keepdim: bool) -> Any:
    if keepdim:
        return value
    return value.reshape([extent for axis, extent in enumerate(value.shape) if axis not in dims])


def _var_mean(x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    if not _taken(x, dim):
        return NotImplemented
    dims = _dims(x, dim)
    wide = x.float() if x.dtype in _SHORT else x
    mean, variance = _moments(wide, dims, 1 if correction is None else correction)
    return _reduced(variance, dims, keepdim).to(x.dtype), _reduced(mean, dims, keepdim).to(x.dtype)


def _var(x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    found = _var_mean(x, dim, correction=correction, keepdim=keepdim)
    return found if found is NotImplemented else found[0]


def _var_unbiased(x: Any, dim: Any, unbiased: bool = True, keepdim: bool = False) -> Any:
    return _var(x, dim, correction=int(unbiased), keepdim=keepdim)


def _std(x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    wide = x.float() if x.dtype in _SHORT else x
    found = _var(wide, dim, correction=correction, keepdim=keepdim)
    return found if found is NotImplemented else found.sqrt().to(x.dtype)


def _layer_norm(x: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> Any:
    dims = list(range(x.dim() - len(shape), x.dim()))
    if not _taken(x, dims):
        return NotImplemented
    wide = x.float() if x.dtype in _SHORT else x
    mean, variance = _moments(wide, dims, 0)
    scale = torch.rsqrt(variance + eps)
    result = (wide - mean) * scale
    if weight is not None:
        result = result * weight
    if bias is not None:
        result = result + bias
    return result.to(x.dtype), mean, scale


def _rms_norm(x: Any, shape: Sequence[Any], weight: Any = None, eps: float | None = None) -> Any:
    """Over dynamic extents, which the wheel's has no lowering for."""
    if all(isinstance(extent, int) for extent in shape):
        return NotImplemented
    wide = x.float() if x.dtype in _SHORT else x
    squares = (wide * wide).mean(list(range(x.dim() - len(shape), x.dim())), keepdim=True)
    result = wide * torch.rsqrt(squares + (torch.finfo(x.dtype).eps if eps is None else eps))
    return (result if weight is None else result * weight).to(x.dtype)


# Parameters: those of aten.native_group_norm.
def _group_norm(
    x: Any, weight: Any, bias: Any, batch: Any, channels: int, pixels: Any, groups: int, eps: float
) -> Any:
    extents = list(x.shape[1:])
    if not x.dtype.is_floating_point or not all(isinstance(extent, int) and extent for extent in extents):
        return NotImplemented
    wide = x.float() if x.dtype in _SHORT else x
    split = wide.reshape([x.shape[0], groups, channels // groups, *extents[1:]])
    dims = list(range(2, split.dim()))
    mean, variance = _moments(split, dims, 0)
    scale = torch.rsqrt(variance + eps)
    result = ((split - mean) * scale).reshape(x.shape)
    each = [channels, *[1] * (x.dim() - 2)]
    if weight is not None:
        result = result * weight.reshape(each)
    if bias is not None:
        result = result + bias.reshape(each)
    return result.to(x.dtype), mean.reshape([x.shape[0], groups]), scale.reshape([x.shape[0], groups])
