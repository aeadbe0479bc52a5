"""Operators of PyTorch written with others, where the wheel's own lowering is wrong or missing.

Wrong: products of bytes, and bytes with numbers, isclose of NaN, fmod, where the largest and the smallest number are if
there is a NaN, integers negated or divided in floats, and tensors of several types that are joined, chosen from or
compared, which it converts as if all integers were signed.

Missing: rolls of all dimensions and of dynamic ones, tensors of given strides, padding with what is on the other side,
powers of integers and quotients of narrow ones, or and xor by a number, shifts by their Python operators, all over
several dimensions, distances, isfinite, signbit, hypot, copysign, fmax and fmin of tensors that are broadcast.

Scans and what is found by sorting are in `orders.py`, writes to chosen elements in `writes.py`.
"""

# torch may not be installed, and much of it has no types.
# pyright: reportMissingImports=false

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch._decomp.decompositions


def decompositions() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    return {
        aten.argmax.default: _argmax,
        aten.argmin.default: _argmin,
        aten.max.dim: _max,
        aten.min.dim: _min,
        aten.roll.default: _roll,
        aten.empty_strided.default: _empty_strided,
        aten.as_strided.default: _as_strided,
        aten.arange.start_step: _arange,
        aten.isclose.default: _isclose,
        aten.cat.default: _cat,
        aten.where.self: _where,
        **{getattr(aten, name).Tensor: functools.partial(_of_one_type, getattr(torch, name))
           for name in ("eq", "ne", "lt", "le", "gt", "ge")},
        aten.maximum.default: functools.partial(_of_one_type, torch.maximum),
        aten.minimum.default: functools.partial(_of_one_type, torch.minimum),
        aten.neg.default: _neg,
        aten.fmod.Tensor: _fmod,
        aten.fmod.Scalar: _fmod,
        aten.div.Tensor_mode: _divide,
        aten.div.Scalar_mode: _divide,
        aten.floor_divide.default: functools.partial(_divide, rounding_mode="floor"),
        aten.remainder.Scalar: _remainder,
        aten.mul.Tensor: _mul,
        aten.mul.Scalar: _mul,
        aten.sub.Tensor: _sub,
        aten.sub.Scalar: _sub,
        aten.addcmul.default: _addcmul,
        aten.max.default: _largest,
        aten.min.default: _smallest,
        aten.bitwise_or.Scalar: _or,
        aten.bitwise_xor.Scalar: _xor,
        aten.__lshift__.Tensor: torch.bitwise_left_shift,
        aten.__rshift__.Tensor: torch.bitwise_right_shift,
        aten.pow.Tensor_Scalar: _pow,
        aten.pad.default: _pad,
        **{pad.default: functools.partial(_edge_pad, pad.default) for pad in (
            aten.reflection_pad1d, aten.reflection_pad2d, aten.reflection_pad3d,
            aten.replication_pad1d, aten.replication_pad2d, aten.replication_pad3d,
        )},
        aten.isfinite.default: _isfinite,
        aten.signbit.default: _signbit,
        aten.dist.default: _dist,
        aten._cdist_forward.default: _cdist,
        aten._pdist_forward.default: _pdist,
        aten.all.dims: _all,
        aten.any.dims: _any,
        aten.hypot.default: _hypot,
        aten.copysign.Tensor: _copysign,
        aten.fmax.default: _fmax,
        aten.fmin.default: _fmin,
        aten.mm.default: _mm,
        aten.addmv.default: _addmv,
        aten.bmm.default: _bmm,
        aten.split_with_sizes.default: _split,
        aten._scaled_mm.default: _scaled_mm,
    }


def _with_place(x: Any, dim: int, extreme: Callable[..., Any]) -> tuple[Any, Any]:
    """The extremes along `dim`, which stays, and where the first ones are: a NaN, where there is one, is the most."""
    if not x.dtype.is_floating_point or not x.ndim:
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
    """Without dimensions, all of it as one line; dimensions of dynamic extent by the places that are read, for the
    wheel cuts them where it is not known that the parts are as long together. Nor does it know that a roll by the
    extent is none."""
    if not dims:
        return torch.roll(x.reshape(-1), shifts[0], 0).reshape(x.shape)
    if all(isinstance(x.shape[dim], int) for dim in dims):
        within = [shift % max(x.shape[dim], 1) for shift, dim in zip(shifts, dims, strict=True)]
        return torch.roll(x, within, dims) if within != list(shifts) else NotImplemented
    for shift, dim in zip(shifts, dims, strict=True):
        extent = x.shape[dim]
        x = x.index_select(dim, torch.remainder(torch.arange(extent, device=x.device) - shift, extent))
    return x


def _empty_strided(size: Sequence[int], stride: Sequence[int], *, dtype: Any = None, **where: Any) -> Any:
    return torch.ops.aten.empty.memory_format(size, dtype=dtype)


def _as_strided(x: Any, size: Sequence[Any], stride: Sequence[Any], storage_offset: Any = None) -> Any:
    """Of extents that differ from call to call, by the places that are read; the wheel takes what is known."""
    offset = storage_offset or 0
    if all(isinstance(number, int) for number in (*size, *stride, offset, *x.shape)) or not x.is_contiguous():
        return NotImplemented
    places = torch.full((), offset, dtype=torch.int64, device=x.device) if isinstance(offset, int) else offset
    for axis, (extent, step) in enumerate(zip(size, stride, strict=True)):
        line = torch.arange(extent, device=x.device) * step
        places = places + line.reshape([-1] + [1] * (len(size) - 1 - axis))
    return x.reshape(-1).index_select(0, places.reshape(-1)).reshape(list(size))


def _arange(start: Any, end: Any, step: Any = 1, *, dtype: Any = None, **where: Any) -> Any:
    """Of bytes, of which the wheel's pass dies."""
    if dtype not in (torch.int8, torch.uint8):
        return NotImplemented
    return torch.arange(start, end, step, dtype=torch.int32, device=where.get("device")).to(dtype)


def _isclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    close = (a == b) | (((a - b).abs() <= atol + (rtol * b).abs()) & (b.abs() < float("inf")))
    return close | (torch.isnan(a) & torch.isnan(b)) if equal_nan and a.dtype.is_floating_point else close


def _cat(tensors: Sequence[Any], dim: int = 0) -> Any:
    kinds = [tensor.dtype for tensor in tensors]
    if len(set(kinds)) == 1:
        return NotImplemented
    kind = functools.reduce(torch.promote_types, kinds)
    return torch.cat([tensor.to(kind) for tensor in tensors], dim)


def _where(condition: Any, a: Any, b: Any) -> Any:
    return _of_one_type(functools.partial(torch.where, condition), a, b)


def _of_one_type(operator: Callable[..., Any], a: Any, b: Any) -> Any:
    if a.dtype == b.dtype:
        return NotImplemented
    kind = torch.result_type(a, b)
    return operator(a.to(kind), b.to(kind))


def _neg(x: Any) -> Any:
    return torch.rsub(x, 0) if _is_whole(x) else NotImplemented


def _fmod(a: Any, b: Any) -> Any:
    """By the remainder of positive numbers, which is exact and the same; the wheel subtracts a multiple."""
    if not isinstance(b, torch.Tensor):
        return torch.fmod(*_with_number(a, b))
    kind = torch.result_type(a, b)
    if not kind.is_floating_point:
        return NotImplemented
    wide = torch.float32 if kind in (torch.float16, torch.bfloat16) else kind
    found = torch.remainder(a.to(wide).abs(), b.to(wide).abs())
    return torch.where((a == 0) & (found == 0), a.to(wide), torch.where(a < 0, -found, found)).to(kind)


def _with_number(a: Any, number: Any) -> tuple[Any, Any]:
    """A tensor and a number, both as tensors of the type that PyTorch calculates with."""
    kind = torch.result_type(a, number)
    return a.to(kind), torch.full((), number, dtype=kind, device=a.device)


def _or(a: Any, b: Any) -> Any:
    return torch.bitwise_or(*_with_number(a, b))


def _xor(a: Any, b: Any) -> Any:
    return torch.bitwise_xor(*_with_number(a, b))


def _bytes(*factors: Any) -> bool:
    """Whether the first is a tensor of signed bytes, and none of the others makes something else of the result."""
    first, *others = factors
    return isinstance(first, torch.Tensor) and first.dtype == torch.int8 and not any(
        b.dtype not in (torch.int8, torch.bool) if isinstance(b, torch.Tensor) else isinstance(b, float) for b in others
    )


def _mul(a: Any, b: Any) -> Any:
    """Of bytes and a number, or with truth values, of which the wheel's pass dies."""
    if isinstance(b, torch.Tensor) and a.dtype != b.dtype:
        return _of_one_type(torch.mul, a, b)
    return (a.to(torch.int32) * b).to(a.dtype) if _bytes(a, b) and isinstance(b, int) else NotImplemented


def _sub(a: Any, b: Any, *, alpha: Any = 1) -> Any:
    if not isinstance(a, torch.Tensor):  # an extent, from which the wheel subtracts no tensors
        return torch.add(torch.mul(b, -alpha), a)
    if not _bytes(a, b, alpha) or (isinstance(b, torch.Tensor) and alpha == 1):
        return NotImplemented
    return torch.sub(a.to(torch.int32), b, alpha=alpha).to(a.dtype)


def _addcmul(x: Any, a: Any, b: Any, *, value: Any = 1) -> Any:
    if not _bytes(x, a, b, value):
        return NotImplemented
    return torch.addcmul(x.to(torch.int32), a.to(torch.int32), b.to(torch.int32), value=value).to(x.dtype)


def _largest(x: Any) -> Any:
    return torch.amax(x) if x.dtype == torch.int8 else NotImplemented


def _smallest(x: Any) -> Any:
    return torch.amin(x) if x.dtype == torch.int8 else NotImplemented


def _narrow(x: Any) -> bool:
    return x.dtype in (torch.int8, torch.int16)


def _is_whole(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and not x.dtype.is_floating_point and not x.dtype.is_complex


def _divide(a: Any, b: Any, *, rounding_mode: str | None = None) -> Any:
    """Of integers that the wheel divides by no mode."""
    if rounding_mode == "floor" and a.dtype == torch.int64 and (isinstance(b, int) or _is_whole(b)):
        toward_zero = torch.div(a, b, rounding_mode="trunc")  # the wheel rounds down in floats, which have 53 bits
        rest = a - toward_zero * b
        return toward_zero - ((rest != 0) & ((rest < 0) != (b < 0))).to(a.dtype)
    of_narrow = _narrow(a) and (isinstance(b, int) or (isinstance(b, torch.Tensor) and b.dtype == a.dtype))
    if not of_narrow or rounding_mode is None:
        return NotImplemented
    wide = b if isinstance(b, int) else b.to(torch.int32)
    return torch.div(a.to(torch.int32), wide, rounding_mode=rounding_mode).to(a.dtype)


def _remainder(a: Any, b: Any) -> Any:
    return torch.remainder(a.to(torch.int32), b).to(a.dtype) if _narrow(a) and isinstance(b, int) else NotImplemented


def _pow(x: Any, exponent: Any) -> Any:
    if isinstance(exponent, (torch.SymInt, torch.SymFloat)):  # made of an extent: the wheel has no powers by it
        return torch.pow(x, torch.full((), exponent, dtype=x.dtype, device=x.device))
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


def _signbit(x: Any) -> Any:
    """That of a NaN is taken for none."""
    return (x < 0) | ((x == 0) & (1 / x < 0)) if x.dtype.is_floating_point else x < 0


def _copysign(a: Any, b: Any) -> Any:
    return torch.where(_signbit(b), -a.abs(), a.abs())


def _edge_pad(pad: Any, x: Any, padding: Sequence[Any]) -> Any:
    """As PyTorch decomposes it if extents are dynamic or amounts negative. torch-mlir copies mirrored lines and planes
    piece by piece; here others are made of such pieces."""
    if not all(isinstance(number, int) for number in (*x.shape, *padding)) or min(padding) < 0:
        return torch._decomp.decomposition_table[pad](x, padding)
    aten = torch.ops.aten
    if pad in (aten.reflection_pad1d.default, aten.reflection_pad2d.default):
        return NotImplemented
    piece = _mirrored if pad == aten.reflection_pad3d.default else _repeated
    for number in range(len(padding) // 2):
        before, after = padding[2 * number : 2 * number + 2]
        axis = x.ndim - 1 - number
        parts = [piece(x, axis, 0, before)] if before else []
        parts += [x] + ([piece(x, axis, x.shape[axis] - 1, after)] if after else [])
        x = torch.cat(parts, axis) if len(parts) > 1 else x
    return x


def _repeated(x: Any, axis: int, end: int, count: int) -> Any:
    """The element `end` of an axis, `count` times."""
    shape = list(x.shape)
    shape[axis] = count
    return x.narrow(axis, end, 1).expand(shape)


def _mirrored(x: Any, axis: int, end: int, count: int) -> Any:
    """The `count` elements next to the element `end` of an axis, which is the first or the last, in reverse order."""
    return x.narrow(axis, end - count if end else 1, count).flip(axis)


def _isfinite(x: Any) -> Any:
    return x.abs() < float("inf") if x.dtype.is_floating_point else torch.ones_like(x, dtype=torch.bool)


def _fmax(a: Any, b: Any) -> Any:
    return torch.where(torch.isnan(a) | (b > a), b, a)


def _fmin(a: Any, b: Any) -> Any:
    return torch.where(torch.isnan(a) | (b < a), b, a)


def _pad(x: Any, pad: Sequence[Any], mode: str = "constant", value: float | None = None) -> Any:
    """By what is on the other side: PyTorch's own way writes the result piece by piece."""
    if mode == "constant":
        return torch.ops.aten.constant_pad_nd.default(x, pad, value or 0)
    if mode != "circular":
        kind = "reflection" if mode == "reflect" else "replication"
        return getattr(torch.ops.aten, f"{kind}_pad{len(pad) // 2}d").default(x, pad)
    if not all(isinstance(extent, int) for extent in pad):
        return NotImplemented
    for number in range(len(pad) // 2):
        before, after = pad[2 * number : 2 * number + 2]
        axis, cut = x.ndim - 1 - number, (max(0, -before), max(0, -after))
        kept = x.narrow(axis, cut[0], x.shape[axis] - cut[0] - cut[1])
        parts = [kept.narrow(axis, kept.shape[axis] - before, before)] if before > 0 else []
        parts += [kept] + ([kept.narrow(axis, 0, after)] if after > 0 else [])
        x = torch.cat(parts, axis) if len(parts) > 1 else kept
    return x


def _dist(a: Any, b: Any, p: float = 2) -> Any:
    return torch.linalg.vector_norm(a - b, p)


def _cdist(a: Any, b: Any, p: float, compute_mode: int | None) -> Any:
    """Between all rows of `a` and all of `b`, never by a product, whose sums would cancel."""
    return torch.linalg.vector_norm(a.unsqueeze(-2) - b.unsqueeze(-3), p, -1)


def _pdist(x: Any, p: float = 2) -> Any:
    """Between each row and all later ones."""
    if not isinstance(x.shape[0], int):
        return NotImplemented
    first, second = torch.triu_indices(x.shape[0], x.shape[0], 1, device=x.device)
    return torch.linalg.vector_norm(x.index_select(0, first) - x.index_select(0, second), p, -1)


def _mm(a: Any, b: Any) -> Any:
    """As torch.mm, for signed bytes, of which the wheel's pass dies: sums wrap, as do those of 32 bits that are cut."""
    return torch.mm(a.int(), b.int()).to(torch.int8) if a.dtype == b.dtype == torch.int8 else NotImplemented


def _addmv(x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    product = torch.mv(a, b) * alpha
    return product if beta == 0 else x * beta + product


def _bmm(a: Any, b: Any) -> Any:
    return torch.bmm(a.int(), b.int()).to(torch.int8) if a.dtype == b.dtype == torch.int8 else NotImplemented


def _split(x: Any, sizes: Sequence[Any], dim: int = 0) -> Any:
    """The wheel splits no dynamic dimensions."""
    if isinstance(x.shape[dim], int):
        return NotImplemented
    begins = [sum(sizes[:number]) for number in range(len(sizes))]
    return [x.narrow(dim, begin, size) for begin, size in zip(begins, sizes, strict=True)]


# Parameters: those of aten._scaled_mm.
def _scaled_mm(
    a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any = None, scale_result: Any = None, out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> Any:
    """A product of 8-bit floats with a scale for each matrix, or for each row of `a` and column of `b`."""
    one = [(), (1,), (1, 1)]
    if tuple(scale_a.shape) not in [*one, (a.shape[0], 1)] or tuple(scale_b.shape) not in [*one, (1, b.shape[1])]:
        return NotImplemented  # scales of blocks
    made = (a.to(torch.float32) @ b.to(torch.float32)) * scale_a * scale_b
    made = made if bias is None else made + bias
    kind = out_dtype or a.dtype
    return (made * scale_result if scale_result is not None and kind.itemsize == 1 else made).to(kind)
