"""Quantisation and products of quantised numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from tests.fuzz.dtypes import DTYPES
from tests.fuzz.operators.products import matrix_product
from tests.fuzz.registry import Attributes, Operands, drawn, given, meaning
from tests.fuzz.tracked import Invalid, Tracked, divide, exact, integer, multiply, step

if TYPE_CHECKING:
    from tests.fuzz.drawing import Drawer


def _along(x: Tracked | None, attributes: Attributes, rank: int) -> Tracked | None:
    """A scale or a zero point for each place of an axis, or for all."""
    if x is None or not x.shape:
        return x
    axis = attributes.get("axis", 1) % rank
    return x.moved(lambda array: array.reshape([-1 if k == axis else 1 for k in range(rank)]))


def _quantised(scaled: Tracked, zero: Tracked | None, dtype: str) -> Tracked:
    """Rounded to the nearest even, moved by the zero point, saturated."""
    whole = step(scaled, np.rint, scaled.dtype)
    shift = 0 if zero is None else zero.value.astype(np.float64)
    info = np.iinfo(DTYPES[dtype])
    value = np.clip(np.nan_to_num(whole.value + shift, nan=0.0), info.min, info.max)
    return integer(value.astype(DTYPES[dtype]), dtype, whole.unknown | np.isnan(whole.value))


@meaning("QuantizeLinear")
def _quantise(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x, scale = given(operands[0]), given(operands[1])
    zero = operands[2] if len(operands) > 2 else None
    along = _along(scale, attributes, len(x.shape))
    dtype = "u8" if zero is None else zero.dtype
    return [_quantised(divide(x, given(along)), _along(zero, attributes, len(x.shape)), dtype)]


@meaning("DequantizeLinear")
def _dequantise(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x, scale = given(operands[0]), given(operands[1])
    rank = len(x.shape)
    value = x.value.astype(np.float64)
    if len(operands) > 2 and operands[2] is not None:
        value = value - given(_along(operands[2], attributes, rank)).value.astype(np.float64)
    whole = Tracked(scale.dtype, value, np.zeros(value.shape), np.broadcast_to(x.unknown, value.shape))
    return [multiply(whole, given(_along(scale, attributes, rank)))]


def _zero_point(d: Drawer, dtype: str, shape: tuple[int, ...]) -> str:
    low, high = (0, 255) if dtype == "u8" else (-128, 127)
    return d.constant(d.numbers.integers(low, high, shape, endpoint=True).astype(DTYPES[dtype]))


@drawn("quantised", "QuantizeLinear")
def _draw_linear(d: Drawer) -> None:
    dtype = d.rng.choice(("u8", "i8"))
    if d.rng.random() < 0.5:
        x = d.pick(("f32",), (1, 4))
        shape, axis = _scale_shape(d, x)
        scale = d.constant(2.0 ** d.numbers.integers(-4, 2, shape) * d.rng.choice((1.0, 0.7)), "f32")
        d.node("QuantizeLinear", [x, scale, _zero_point(d, dtype, shape)], axis=axis)
        return
    x = d.pick((dtype,), (1, 4))
    shape, axis = _scale_shape(d, x)
    scale = d.constant(d.numbers.uniform(0.01, 2, shape), "f32")
    zero = [_zero_point(d, dtype, shape)] if d.rng.random() < 0.7 else []
    d.node("DequantizeLinear", [x, scale, *zero], axis=axis)


def _scale_shape(d: Drawer, x: str) -> tuple[tuple[int, ...], int]:
    shape = d.shape(x)
    axis = d.rng.randrange(len(shape))
    return ((shape[axis],), axis) if d.rng.random() < 0.4 else ((), axis)


def _wide(x: Tracked, zero: Tracked | None, column: bool) -> Tracked:
    """In 32 bits, without the zero point: one for all, or, of a matrix, for each row or column."""
    value = x.value.astype(np.int32)
    if zero is not None:
        shift = zero.value.astype(np.int32)
        if shift.ndim == 1 and shift.size > 1:
            shift = shift[None, :] if column else shift[:, None]
        value = value - shift
    return integer(value, "i32", x.unknown)


@meaning("MatMulInteger")
def _integer_product(attributes: Attributes, operands: Operands) -> list[Tracked]:
    a, b = given(operands[0]), given(operands[1])
    if not a.shape or not b.shape:
        raise Invalid("of a scalar")
    first = _wide(a, operands[2] if len(operands) > 2 else None, False)
    second = _wide(b, operands[3] if len(operands) > 3 else None, True)
    value = matrix_product(first.value, second.value)
    touched = matrix_product(first.unknown.astype(np.int32), np.ones(second.shape, np.int32))
    return [integer(value, "i32", touched > 0)]


@drawn("quantised", "MatMulInteger")
def _draw_integer_product(d: Drawer) -> None:
    a = d.pick(("u8", "i8"), (2, 3))
    b = d.fresh(d.rng.choice(("u8", "i8")), (d.shape(a)[-1], d.extent()), constant=0.5)
    zeros = [_zero_point(d, d.dtype(a), ()), _zero_point(d, d.dtype(b), ())] if d.rng.random() < 0.6 else []
    d.node("MatMulInteger", [a, b, *zeros])


@meaning("DynamicQuantizeLinear")
def _dynamic(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x = given(operands[0])
    if not x.value.size or not np.isfinite(x.value).all() or x.unknown.any():
        return _anything(x.shape)  # of nothing, or of numbers that are not finite
    high, low = max(float(x.value.max()), 0.0), min(float(x.value.min()), 0.0)
    spread = float(x.error.max())
    if high - low < 1e-3 or high - low > 1e30:
        return _anything(x.shape)  # a scale of nothing
    reach = np.array(2 * spread / 255 + 4e-7 * (high - low) / 255)
    scale = Tracked("f32", np.array((high - low) / 255), reach, np.array(False))
    start = divide(exact(np.array(-low), "f32"), scale)
    start = Tracked("f32", start.value, start.error + 2 * spread * 255 / (high - low), start.unknown)
    zero = _quantised(start, None, "u8")
    scaled = divide(x, scale)
    value = _quantised(scaled, exact(zero.value, "u8"), "u8")
    return [Tracked("u8", value.value, value.error, value.unknown | zero.unknown), scale, zero]


def _anything(shape: tuple[int, ...]) -> list[Tracked]:
    """Results of which none is defined: no call is wrong by its numbers, and the extents stay known."""
    scale = Tracked("f32", np.array(1.0), np.array(0.0), np.array(True))
    return [integer(np.zeros(shape), "u8", True), scale, integer(np.zeros(()), "u8", True)]


@drawn("quantised", "DynamicQuantizeLinear")
def _draw_dynamic(d: Drawer) -> None:
    d.node("DynamicQuantizeLinear", [d.pick(("f32",), (1, 3))], outputs=3)


