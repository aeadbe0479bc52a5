"""Numbers with a bound of how far a right implementation may be from them.

A `Tracked` holds the exact result in float64 (integers as they are), for each element the largest error that roundings
in the declared type can have made, and whether the element is undefined, or decided by roundings alone (such as the
floor of a sum near an integer), so that every value is right.

Every operation of the reference is built of the functions here: each carries the errors of its operands on, then adds
its own rounding. Bounds are first computed on intervals, so they hold for errors of any size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tests.fuzz.dtypes import DTYPES, LARGEST, LOST, MANTISSA, ROUNDING, TINY, is_float

Array = np.ndarray[Any, Any]

_LEAST_NORMAL = float(np.finfo(np.float32).tiny)  # of f32 and bf16


class Invalid(Exception):
    """A call or a program that the definition of an operator does not allow: it must be refused."""


class Undefined(Invalid):
    """A call of which the definition does not say what is to come: anything but a crash is right."""


@dataclass(frozen=True)
class Tracked:
    """`value` is float64 for floats; `error` float64; `unknown` says where every result is right, but an infinity alone
    where `error` is infinite and `value` beyond the range of `dtype`."""

    dtype: str
    value: Array
    error: Array
    unknown: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def is_float(self) -> bool:
        return is_float(self.dtype)

    def moved(self, move: Callable[[Array], Array]) -> Tracked:
        """The elements at other places: `move` is done to the values and to all that is known of them."""
        return Tracked(self.dtype, move(self.value), move(self.error), move(self.unknown))

    @property
    def overflows(self) -> Array:
        """Where an infinity alone is right, as a result; `as_operand` is unknown."""
        if not self.is_float:
            return np.zeros(self.shape, bool)
        return self.unknown & np.isinf(self.error) & (np.abs(self.value) > LARGEST[self.dtype])

    def as_operand(self) -> Tracked:
        """As what reads it sees it: an operation that is fused with the next one, as in `fma(a, b, c)`, or computed in
        a wider type, does not overflow."""
        return replace(self, error=np.where(np.isinf(self.error), 0.0, self.error))

    def low(self) -> Array:
        return self.value - self.error

    def high(self) -> Array:
        return self.value + self.error


def exact(array: Array, dtype: str) -> Tracked:
    """The elements of an input or a constant."""
    value = array.astype(np.float64) if is_float(dtype) else array
    return Tracked(dtype, value, np.zeros(array.shape), np.zeros(array.shape, bool))


def integer(value: Array, dtype: str, unknown: Array | bool = False) -> Tracked:
    """Integers or booleans, wrapped to `dtype`."""
    value = np.asarray(value)
    if value.dtype != DTYPES[dtype]:
        value = value.astype(DTYPES[dtype])
    return Tracked(dtype, value, np.zeros(value.shape), np.broadcast_to(np.asarray(unknown, bool), value.shape))


def rounded(
    dtype: str, value: Array, error: Array | float, unknown: Array | bool, ulps: float = 1.0, absolute: float = 0.0,
    overflown: Array | bool = False,
) -> Tracked:
    """`value` after an operation of its own: an error of `ulps` roundings, and of `absolute` of them at 1, is added.

    What overflows is an infinity as a result, and unknown to what reads it. `overflown` says where float64 has."""
    value = np.asarray(value, np.float64)
    with np.errstate(all="ignore"):
        before = np.broadcast_to(np.asarray(error, np.float64), value.shape)
        spread = np.abs(value) + before
        error = before + ulps * (ROUNDING[dtype] * spread + TINY[dtype]) + absolute * ROUNDING[dtype]
        finite = np.isfinite(value)
        over = finite & ~(spread * (1 + 2 * ROUNDING[dtype]) < LARGEST[dtype])
        unknown = np.broadcast_to(np.asarray(unknown, bool), value.shape)
        certain = finite & (np.abs(value) - error > LARGEST[dtype] * (1 + 2 * ROUNDING[dtype]))
        certain = ~unknown & (certain | (np.asarray(overflown) & (before == 0)))
        unknown = unknown | over | overflown | (finite & ~np.isfinite(error))
        error = np.where(finite & np.isfinite(error), error, 0.0)
    return Tracked(dtype, value, np.where(certain, np.inf, error), unknown)


def settled(result: Tracked, *operands: Tracked) -> Tracked:
    """`result` of sums, differences and products, without error where all that there is are small integers."""
    if not result.is_float or not all(_is_whole(operand) for operand in operands):
        return result
    limit = 2.0 ** MANTISSA[result.dtype]
    with np.errstate(all="ignore"):
        whole = (np.abs(result.value) <= limit) & (result.value == np.rint(result.value)) & (result.value != 0)
    return replace(result, error=np.where(whole, 0.0, result.error))


def _is_whole(operand: Tracked) -> bool:
    if not operand.is_float:
        return False
    return not operand.error.any() and bool(np.all(operand.value == np.rint(operand.value)))


def unknown_of(*operands: Tracked) -> Array:
    """Where one of the operands, broadcast, is unknown."""
    found: Array = operands[0].unknown
    for operand in operands[1:]:
        found = found | operand.unknown
    return found


def broadcast(*operands: Tracked) -> list[Tracked]:
    try:
        shape = np.broadcast_shapes(*(operand.shape for operand in operands))
    except ValueError as error:
        raise Invalid(str(error)) from None
    return [operand.moved(lambda array: np.broadcast_to(array, shape)) for operand in operands]


def _overflown(value: Array, *operands: Tracked) -> Array:
    """Where finite numbers overflow in float64."""
    found = np.isinf(value)
    for operand in operands:
        found = found & np.isfinite(operand.value)
    return found


def add(a: Tracked, b: Tracked) -> Tracked:
    a, b = broadcast(a, b)
    value = a.value + b.value
    if not a.is_float:
        return integer(value, a.dtype, unknown_of(a, b))
    overflown = _overflown(value, a, b)
    return settled(rounded(a.dtype, value, a.error + b.error, unknown_of(a, b), overflown=overflown), a, b)


def subtract(a: Tracked, b: Tracked) -> Tracked:
    a, b = broadcast(a, b)
    value = a.value - b.value
    if not a.is_float:
        return integer(value, a.dtype, unknown_of(a, b))
    overflown = _overflown(value, a, b)
    return settled(rounded(a.dtype, value, a.error + b.error, unknown_of(a, b), overflown=overflown), a, b)


def multiply(a: Tracked, b: Tracked) -> Tracked:
    a, b = broadcast(a, b)
    value = a.value * b.value
    if not a.is_float:
        return integer(value, a.dtype, unknown_of(a, b))
    error = _product_error(a.value, a.error, b.value, b.error, np.multiply)
    unknown = unknown_of(a, b) | _may_be_nothing(a, b) | _may_be_nothing(b, a)
    return settled(rounded(a.dtype, value, error, unknown, overflown=_overflown(value, a, b)), a, b)


def _may_be_nothing(factor: Tracked, other: Tracked) -> Array:
    """Where `other` is infinite and `factor`, within its error, 0 or of the other sign: as a product that underflows,
    which makes the product NaN, or the other infinity."""
    return np.isinf(other.value) & (factor.error > 0) & (np.abs(factor.value) <= factor.error)


def _vanishing(factor: Tracked) -> Array:
    """1 where a factor may be 0 within its error, as a number that underflows; else 0."""
    return ((factor.error > 0) & (np.abs(factor.value) <= factor.error)).astype(np.float64)


def divide(a: Tracked, b: Tracked, ulps: float = 2.0) -> Tracked:
    """Floats; by 0 the sign of what comes out is that of a zero, which sums may change."""
    a, b = broadcast(a, b)
    near = np.abs(b.value) - b.error
    value = a.value / b.value
    error = np.where(b.error + a.error > 0, (np.abs(a.value) + a.error) / near - np.abs(a.value) / np.abs(b.value), 0.0)
    error = np.where(np.isinf(b.value) & np.isfinite(a.value), 0.0, np.abs(error))
    unknown = unknown_of(a, b) | ((near <= 0) & ~np.isnan(a.value))
    return rounded(a.dtype, value, error, unknown, ulps, overflown=_overflown(value, a, b))


def _product_error(a: Array, ea: Array, b: Array, eb: Array, product: Callable[[Array, Array], Array]) -> Array:
    """How far a product of two intervals may be from that of their middles."""
    a, b = _finite(a), _finite(b)
    if not ea.any() and not eb.any():
        return np.zeros(product(ea, eb).shape)
    return product(a, eb) + product(ea, b) + product(ea, eb)


def _finite(array: Array) -> Array:
    return np.where(np.isfinite(array), np.abs(array), 0.0)


def contract(a: Tracked, b: Tracked, product: Callable[[Array, Array], Array], terms: int, dtype: str = "") -> Tracked:
    """A sum of `terms` products for each element: `product` is bilinear, such as a matrix product."""
    dtype = dtype or a.dtype
    touched = product(a.unknown.astype(np.float64), np.ones(b.shape)) + product(
        np.ones(a.shape), b.unknown.astype(np.float64)
    )
    if not a.is_float:
        return integer(product(a.value.astype(DTYPES[dtype]), b.value.astype(DTYPES[dtype])), dtype, touched > 0)
    value = product(a.value, b.value)
    scale = product(_finite(a.value) + a.error, _finite(b.value) + b.error)
    error = _product_error(a.value, a.error, b.value, b.error, product) + terms * ROUNDING[dtype] * scale
    # A product below the normal numbers is rounded to a multiple of the smallest one; sums of such are exact.
    error = error + TINY[dtype] * product((a.value != 0).astype(np.float64), (b.value != 0).astype(np.float64))
    vanish = product(_vanishing(a), np.isinf(b.value) * 1.0) + product(np.isinf(a.value) * 1.0, _vanishing(b))
    if a.dtype == "bf16":  # CPUs' instructions for it take subnormal operands for zeros
        small, other = (np.where(np.abs(each.value) < _LEAST_NORMAL, np.abs(each.value), 0.0) for each in (a, b))
        error = error + product(small, _finite(b.value)) + product(_finite(a.value), other)
        vanish = vanish + product((small > 0) * 1.0, np.isinf(b.value) * 1.0)
        vanish = vanish + product(np.isinf(a.value) * 1.0, (other > 0) * 1.0)
    unknown = (touched > 0) | (vanish > 0) | (scale > LARGEST[dtype] / 2)
    found = rounded(dtype, value, error, unknown)
    if _is_whole(a) and _is_whole(b):
        small = (scale <= 2.0 ** MANTISSA[dtype]) & (value != 0)
        found = replace(found, error=np.where(small, 0.0, found.error))
    return found


def biased(products: Tracked, bias: Tracked, a: Tracked, b: Tracked, scale: Array, terms: int) -> Tracked:
    """Sums of products of `a` and `b`, and a bias that sums may begin with; `scale` is what the products reach."""
    found = add(products, bias)
    if not found.is_float or (_is_whole(a) and _is_whole(b) and _is_whole(bias)):
        return found
    reach = scale + np.abs(_finite(bias.value)) + bias.error
    more = (terms + 1) * ROUNDING[found.dtype] * reach
    error = np.where(np.isfinite(found.value), found.error + more, 0.0)
    return replace(found, error=error, unknown=found.unknown | (reach > LARGEST[found.dtype] / 2))


def magnitude(a: Tracked, b: Tracked, product: Callable[[Array, Array], Array]) -> Array:
    """What the sums of products of absolute values reach."""
    return product(_finite(a.value.astype(np.float64)) + a.error, _finite(b.value.astype(np.float64)) + b.error)


def total(a: Tracked, axes: tuple[int, ...], keep: bool) -> Tracked:
    """The sum over axes."""
    unknown = a.unknown.any(axis=axes, keepdims=keep)
    if not a.is_float:
        return integer(a.value.sum(axis=axes, keepdims=keep, dtype=a.value.dtype), a.dtype, unknown)
    terms = count(a.shape, axes)
    value = a.value.sum(axis=axes, keepdims=keep)
    scale = (_finite(a.value) + a.error).sum(axis=axes, keepdims=keep)
    error = a.error.sum(axis=axes, keepdims=keep) + max(terms - 1, 0) * ROUNDING[a.dtype] * scale
    found = rounded(a.dtype, value, error, unknown | (scale > LARGEST[a.dtype] / 2))
    if _is_whole(a):
        small = (scale <= 2.0 ** MANTISSA[a.dtype]) & (value != 0)
        found = replace(found, error=np.where(small, 0.0, found.error))
    return found


def count(shape: Sequence[int], axes: Sequence[int]) -> int:
    found = 1
    for axis in axes:
        found *= shape[axis]
    return found


def apply(
    a: Tracked, function: Callable[[Array], Array], ulps: float = 8.0, absolute: float = 0.0,
    slope: float | None = None,
) -> Tracked:
    """A function of floats that is monotone within the errors, or changes by at most `slope` times its argument."""
    value = function(a.value)
    unknown = a.unknown
    if slope is not None:
        error = a.error * slope
    elif not a.error.any():
        error = np.zeros(a.shape)
    else:
        low, high = function(a.low()), function(a.high())
        error = np.maximum(np.abs(low - value), np.abs(high - value))
        error = np.where(a.error > 0, error, 0.0)
        settled_nan = np.isnan(a.value) | (np.isnan(low) & np.isnan(high))  # not just near the edge of the domain
        unknown = unknown | ((a.error > 0) & ~np.isfinite(error) & ~settled_nan)
    error = np.nan_to_num(error, nan=0.0, posinf=0.0) + LOST[a.dtype]
    return rounded(a.dtype, value, error, unknown, ulps, absolute)


def step(a: Tracked, function: Callable[[Array], Array], dtype: str) -> Tracked:
    """A function with steps, exact but where the error of its argument reaches another one."""
    value = function(a.value)
    unknown = a.unknown
    if a.error.any():
        low, high = function(a.low()), function(a.high())
        differs = ~((low == value) & (high == value)) & (a.error > 0)
        unknown = unknown | differs
    if is_float(dtype):
        return Tracked(dtype, value.astype(np.float64), np.zeros(a.shape), unknown)
    return integer(value, dtype, unknown)


def compare(a: Tracked, b: Tracked, relation: Callable[[Array, Array], Array]) -> Tracked:
    a, b = broadcast(a, b)
    value = relation(a.value, b.value)
    unknown = unknown_of(a, b)
    if a.is_float:
        reach = a.error + b.error
        unknown = unknown | ((reach > 0) & (np.abs(a.value - b.value) <= reach))
    return integer(value, "bool", unknown)


def choose(condition: Tracked, a: Tracked, b: Tracked) -> Tracked:
    condition, a, b = broadcast(condition, a, b)
    which = condition.value.astype(bool)
    taken = np.where(which, a.unknown, b.unknown) | condition.unknown
    return Tracked(a.dtype, np.where(which, a.value, b.value), np.where(which, a.error, b.error), taken)


def extremum(a: Tracked, b: Tracked, largest: bool) -> Tracked:
    """The larger or smaller of two, NaN where one is; a zero may have either sign."""
    a, b = broadcast(a, b)
    value = np.maximum(a.value, b.value) if largest else np.minimum(a.value, b.value)
    error = np.maximum(a.error, b.error)
    if a.is_float:
        error = np.where(value == 0, np.maximum(error, TINY[a.dtype]), error)
        error = np.where(np.isfinite(value), error, 0.0)
    return Tracked(a.dtype, value, error, unknown_of(a, b))


def cast(a: Tracked, dtype: str) -> Tracked:
    """From any type to any; a float that does not fit an integer is undefined."""
    if dtype == a.dtype:
        return a
    if dtype == "bool":
        nonzero = integer(a.value != 0, dtype, a.unknown)
        near = (np.abs(a.value) <= a.error) & (a.error > 0) if a.is_float else np.zeros(a.shape, bool)
        return replace(nonzero, unknown=nonzero.unknown | near)
    if is_float(dtype):
        value = a.value.astype(np.float64)
        finer = a.dtype != "f64" and ROUNDING[dtype] <= ROUNDING.get(a.dtype, 0.0)
        fits = finer and LARGEST[dtype] >= LARGEST[a.dtype]  # float16 has more digits than bfloat16, and less range
        if fits:
            return Tracked(dtype, value, a.error, a.unknown)
        found = rounded(dtype, value, a.error, a.unknown)
        same = (value.astype(DTYPES[dtype]).astype(np.float64) == value) & (a.error == 0) & (np.abs(value) < 2.0**53)
        return replace(found, error=np.where(same, 0.0, found.error))
    if not a.is_float:
        return integer(a.value, dtype, a.unknown)
    info = np.iinfo(DTYPES[dtype])
    inside = (np.trunc(a.low()) >= float(info.min)) & (np.trunc(a.high()) < float(info.max) + (info.bits < 64))
    safe = np.where(inside, a.value, 0.0)
    whole = replace(a, value=safe, error=np.where(inside, a.error, 0.0))
    found = step(whole, np.trunc, "f64")
    return integer(found.value.astype(DTYPES[dtype]), dtype, found.unknown | ~inside)
