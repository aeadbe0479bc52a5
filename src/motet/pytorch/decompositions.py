"""Operators of PyTorch written with others, where the wheel's own lowering is wrong or missing.

Wrong: adaptive_max_pool with windows of several sizes, isclose of NaN, fmod of 16-bit floats, where the largest and the
smallest number are if there is a NaN. Missing: stable sorts, kthvalue, rolls of all dimensions, tensors of given
strides, cumsum, cumprod, powers of integers, all over several dimensions, hypot, copysign, fmax and fmin of tensors
that are broadcast.
"""

# torch need not be installed, and much of it has no types.
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Graph

_UNSIGNED = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
# What gives the same bits for integers with and without a sign, or none of their type.
_SIGNLESS = frozenset({
    "view", "_unsafe_view", "reshape", "permute", "transpose", "t", "expand", "slice", "select", "cat", "clone",
    "unsqueeze", "squeeze", "flip", "constant_pad_nd", "index", "index_select", "gather", "where", "alias", "detach",
    "lift_fresh_copy", "copy", "eq", "ne", "logical_not", "_to_copy", "stack", "split", "split_with_sizes", "repeat",
    "roll", "embedding", "full_like", "convert_element_type", "_assert_tensor_metadata", "sym_size",
})  # fmt: skip


def decompositions() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    return {
        aten.adaptive_max_pool1d.default: _adaptive_max_pool1d,
        aten.adaptive_max_pool2d.default: _adaptive_max_pool2d,
        aten.argmax.default: _argmax,
        aten.argmin.default: _argmin,
        aten.max.dim: _max,
        aten.min.dim: _min,
        aten.roll.default: _roll,
        aten.empty_strided.default: _empty_strided,
        aten.isclose.default: _isclose,
        aten.fmod.Tensor: _fmod,
        aten.fmod.Scalar: _fmod,
        aten.cumsum.default: _cumsum,
        aten.cumprod.default: _cumprod,
        aten.pow.Tensor_Scalar: _pow,
        aten.all.dims: _all,
        aten.any.dims: _any,
        aten.hypot.default: _hypot,
        aten.copysign.Tensor: _copysign,
        aten.fmax.default: _fmax,
        aten.fmin.default: _fmin,
        aten.sort.stable: _sort,
        aten.kthvalue.default: _kthvalue,
    }


def unsigned_arithmetic(graph: Graph) -> str:
    """The first operator that calculates with unsigned integers, which the wheel takes for signed ones; empty where
    there is none."""
    for node in graph.nodes:
        if node.op != "call_function" or not any(_is_unsigned(n) for n in node.all_input_nodes):
            continue
        name = str(node.target).removeprefix("aten.").removeprefix("prims.").split(".")[0]
        if name not in _SIGNLESS and "getitem" not in name:
            return str(node.target)
    return ""


def _is_unsigned(node: Any) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype in _UNSIGNED


def _windows(size: int, outputs: int) -> Any:
    """Places of the window of each output, as many for all: the last is repeated, which changes no maximum."""
    most = max(-(-(i + 1) * size // outputs) - i * size // outputs for i in range(outputs))
    number = torch.arange(outputs).unsqueeze(-1)
    begin = torch.div(number * size, outputs, rounding_mode="trunc")
    end = torch.div((number + 1) * size + outputs - 1, outputs, rounding_mode="trunc")
    return torch.minimum(begin + torch.arange(most), end - 1)


def _adaptive_max_pool2d(x: Any, output_size: Sequence[int]) -> Any:
    """As torch.nn.functional.adaptive_max_pool2d: maxima, and their places in the plane of the image."""
    height, width = x.shape[-2:]
    high, wide = output_size
    if not all(isinstance(extent, int) for extent in (height, width, high, wide)):
        return NotImplemented
    rows, columns = _windows(height, high), _windows(width, wide)
    taken = x.index_select(-2, rows.flatten()).index_select(-1, columns.flatten())
    taken = taken.reshape(*x.shape[:-2], high, rows.shape[1], wide, columns.shape[1]).transpose(-3, -2)
    values, found = taken.flatten(-2).max(-1)
    places = (rows[:, None, :, None] * width + columns[None, :, None, :]).flatten(-2)
    return values, torch.gather(places.expand(*values.shape, places.shape[-1]), -1, found.unsqueeze(-1)).squeeze(-1)


def _adaptive_max_pool1d(x: Any, output_size: Sequence[int]) -> Any:
    found = _adaptive_max_pool2d(x.unsqueeze(-2), [1, output_size[0]])
    return found if found is NotImplemented else tuple(part.squeeze(-2) for part in found)


def _with_place(x: Any, dim: int, extreme: Callable[..., Any]) -> tuple[Any, Any]:
    """The extremes along `dim`, which stays, and where the first ones are: a NaN, where there is one, is the most."""
    if not x.dtype.is_floating_point or not x.ndim or not isinstance(x.shape[dim], int):
        return NotImplemented, NotImplemented
    values = extreme(x, dim, True)
    count = x.shape[dim]
    shape = [1] * x.ndim
    shape[dim] = count
    places = torch.arange(count, dtype=torch.int32, device=x.device).reshape(shape)
    found = (x == values) | torch.isnan(x)
    return values, torch.amin(torch.where(found, places, count), dim, True).to(torch.int64)


def _place(x: Any, dim: int | None, keepdim: bool, extreme: Callable[..., Any]) -> Any:
    if dim is not None:
        _, places = _with_place(x, dim, extreme)
        return places if places is NotImplemented or keepdim else places.squeeze(dim)
    _, places = _with_place(x.reshape(-1), 0, extreme)
    return places if places is NotImplemented else places.reshape([1] * x.ndim if keepdim else [])


def _argmax(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    return _place(x, dim, keepdim, torch.amax)


def _argmin(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    return _place(x, dim, keepdim, torch.amin)


def _both(x: Any, dim: int, keepdim: bool, extreme: Callable[..., Any]) -> Any:
    values, places = _with_place(x, dim, extreme)
    if values is NotImplemented:
        return NotImplemented
    return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))


def _max(x: Any, dim: int, keepdim: bool = False) -> Any:
    return _both(x, dim, keepdim, torch.amax)


def _min(x: Any, dim: int, keepdim: bool = False) -> Any:
    return _both(x, dim, keepdim, torch.amin)


def _roll(x: Any, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:
    """Without dimensions, all of it as one line."""
    return NotImplemented if dims else torch.roll(x.reshape(-1), shifts[0], 0).reshape(x.shape)


def _empty_strided(size: Sequence[int], stride: Sequence[int], *, dtype: Any = None, **where: Any) -> Any:
    return torch.ops.aten.empty.memory_format(size, dtype=dtype)


def _isclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    close = (a == b) | (((a - b).abs() <= atol + (rtol * b).abs()) & (b.abs() < float("inf")))
    return close | (torch.isnan(a) & torch.isnan(b)) if equal_nan and a.dtype.is_floating_point else close


def _fmod(a: Any, b: Any) -> Any:
    if a.dtype not in (torch.float16, torch.bfloat16):
        return NotImplemented
    return torch.fmod(a.float(), b.float() if isinstance(b, torch.Tensor) else b).to(a.dtype)


def _scan(x: Any, dim: int, join: Callable[[Any, Any], Any], neutral: float) -> Any:
    """All prefixes of `x` joined, in as many steps as the extent has binary digits (Hillis and Steele, 1986)."""
    dim %= max(1, x.ndim)
    done = 1
    while x.ndim and done < x.shape[dim]:
        head = torch.full_like(x.narrow(dim, 0, done), neutral)
        x = join(x, torch.cat([head, x.narrow(dim, 0, x.shape[dim] - done)], dim))
        done *= 2
    return x


def _accumulated(x: Any, dim: int, dtype: Any, join: Callable[[Any, Any], Any], neutral: float) -> Any:
    if not isinstance(x.shape[dim] if x.ndim else 1, int):
        return NotImplemented
    kind = dtype or (x.dtype if x.dtype.is_floating_point else torch.int64)
    wide = torch.float32 if kind in (torch.float16, torch.bfloat16) else kind
    return _scan(x.to(wide), dim, join, neutral).to(kind)


def _cumsum(x: Any, dim: int, *, dtype: Any = None) -> Any:
    return _accumulated(x, dim, dtype, torch.add, 0)


def _cumprod(x: Any, dim: int, *, dtype: Any = None) -> Any:
    return _accumulated(x, dim, dtype, torch.mul, 1)


def _sort(x: Any, *, stable: bool | None = None, dim: int = -1, descending: bool = False) -> Any:
    return torch.ops.aten.sort.default(x, dim, descending)  # which always is


def _kthvalue(x: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    if not x.ndim:
        return NotImplemented
    found = [torch.narrow(part, dim, k - 1, 1) for part in torch.ops.aten.sort.default(x, dim, False)]
    return tuple(part if keepdim else part.squeeze(dim) for part in found)


def _pow(x: Any, exponent: Any) -> Any:
    if x.dtype.is_floating_point or x.dtype == torch.bool or not isinstance(exponent, int) or not 1 <= exponent <= 64:
        return NotImplemented
    result = torch.ones_like(x)
    while exponent:
        if exponent % 2:
            result = result * x
        exponent //= 2
        x = x * x
    return result


def _all(x: Any, dim: Sequence[int] | None = None, keepdim: bool = False) -> Any:
    return ~_any(~x.to(torch.bool), dim, keepdim)


def _any(x: Any, dim: Sequence[int] | None = None, keepdim: bool = False) -> Any:
    found = x.to(torch.bool)
    for axis in sorted((d % max(1, x.ndim) for d in (dim or range(x.ndim))), reverse=True):
        found = torch.any(found, axis, keepdim)
    return found


def _hypot(a: Any, b: Any) -> Any:
    large, small = torch.maximum(a.abs(), b.abs()), torch.minimum(a.abs(), b.abs())
    ratio = torch.where(large == small, 1.0, small / large)
    found = torch.where(large == 0, 0.0, large * torch.sqrt(1 + ratio * ratio))
    return torch.where(torch.isinf(a) | torch.isinf(b), float("inf"), found).to(large.dtype)


def _copysign(a: Any, b: Any) -> Any:
    negative = (b < 0) | ((b == 0) & (1 / b < 0))
    return torch.where(negative, -a.abs(), a.abs())


def _fmax(a: Any, b: Any) -> Any:
    return torch.where(torch.isnan(a) | (b > a), b, a)


def _fmin(a: Any, b: Any) -> Any:
    return torch.where(torch.isnan(a) | (b < a), b, a)
