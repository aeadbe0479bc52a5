"""Operators that make one element of many."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from tests.fuzz.dtypes import FLOATS, NUMBERS, ROUNDING, TINY, is_float
from tests.fuzz.registry import Attributes, Operands, drawn, given, meaning
from tests.fuzz.tracked import (
    Array,
    Invalid,
    Tracked,
    Undefined,
    add,
    apply,
    count,
    divide,
    exact,
    integer,
    multiply,
    rounded,
    subtract,
    total,
)

if TYPE_CHECKING:
    from tests.fuzz.drawing import Drawer


def normalised(axes: Array, rank: int) -> tuple[int, ...]:
    found = tuple(int(axis) for axis in axes.reshape(-1))
    if any(not -rank <= axis < rank for axis in found):
        raise Invalid(f"axes {found} of rank {rank}")
    return tuple(sorted({axis % rank for axis in found}))


def extreme(x: Tracked, axes: tuple[int, ...], keep: bool, largest: bool) -> Tracked:
    """The largest or smallest along axes, NaN where there is one."""
    if not count(x.shape, axes):
        raise Undefined("of nothing")
    reduce = np.max if largest else np.min
    if not x.is_float:
        return integer(reduce(x.value, axis=axes, keepdims=keep), x.dtype, x.unknown.any(axis=axes, keepdims=keep))
    value = reduce(x.value, axis=axes, keepdims=keep)
    error = x.error.max(axis=axes, keepdims=keep)
    error = np.where(np.isfinite(value), np.maximum(error, np.where(value == 0, TINY[x.dtype], 0.0)), 0.0)
    return Tracked(x.dtype, value, error, x.unknown.any(axis=axes, keepdims=keep))


def product(x: Tracked, axes: tuple[int, ...], keep: bool) -> Tracked:
    unknown = x.unknown.any(axis=axes, keepdims=keep)
    if not x.is_float:
        return integer(np.prod(x.value, axis=axes, keepdims=keep, dtype=x.value.dtype), x.dtype, unknown)
    value = np.prod(x.value, axis=axes, keepdims=keep)
    size = np.where(np.isfinite(x.value), np.abs(x.value), 1.0)
    least = np.prod(size, axis=axes, keepdims=keep)
    terms = count(x.shape, axes)
    most = np.prod(size + x.error, axis=axes, keepdims=keep)
    # A partial product may leave the range of the type though the whole does not.
    reach = np.prod(np.maximum(size + x.error, 1.0), axis=axes, keepdims=keep)
    depth = np.prod(np.minimum(np.maximum(size - x.error, 0.0), 1.0), axis=axes, keepdims=keep)
    limit = {"f32": 1e37, "f64": 1e300, "bf16": 1e37, "f16": 6e4}[x.dtype]
    low = {"f32": 1e-36, "f64": 1e-300, "bf16": 1e-36, "f16": 1e-4}[x.dtype]
    lost = (reach > limit) | ((depth < low) & ~((size == 0) & (x.error == 0)).any(axis=axes, keepdims=keep))
    lost = lost | ((reach > limit) | ~np.isfinite(value)) & (size <= x.error).any(axis=axes, keepdims=keep)
    return rounded(x.dtype, value, most - least + terms * ROUNDING[x.dtype] * most, unknown | lost)


def mean(x: Tracked, axes: tuple[int, ...], keep: bool) -> Tracked:
    terms = count(x.shape, axes)
    if not x.is_float:
        if not terms:
            raise Undefined("of nothing")
        # Of Python's integers, which do not wrap; over all axes the sum is one of these, no array.
        summed = np.asarray(x.value.astype(object).sum(axis=axes, keepdims=keep), object)
        # The standard leaves open how an integer's mean is rounded, and what happens where the sum does not fit.
        unsettled = np.asarray((summed % terms != 0) | (np.abs(summed) > np.iinfo(x.value.dtype).max), bool)
        unknown = x.unknown.any(axis=axes, keepdims=keep) | unsettled
        return integer(np.asarray(summed // terms, object), x.dtype, unknown)
    return divide(total(x, axes, keep), exact(np.array(float(terms)), x.dtype))


def _root(x: Tracked) -> Tracked:
    return apply(x, np.sqrt, 2)


def _log_sum_exp(x: Tracked, axes: tuple[int, ...], keep: bool) -> Tracked:
    largest = extreme(x, axes, True, True)
    finite = np.where(np.isfinite(largest.value), largest.value, 0.0)
    # The largest is taken off and added again, whatever its rounding was.
    middle = Tracked(x.dtype, finite, np.zeros(finite.shape), largest.unknown)
    logged = apply(total(apply(subtract(x, middle), np.exp), axes, True), np.log, absolute=8)
    found = add(logged, middle)
    return found if keep else found.moved(lambda array: array.reshape(_without(array.shape, axes)))


def _without(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(e for axis, e in enumerate(shape) if axis not in axes)


def _absolute(x: Tracked) -> Tracked:
    return Tracked(x.dtype, np.abs(x.value), x.error, x.unknown)


Reduce = Callable[[Tracked, tuple[int, ...], bool], Tracked]
REDUCTIONS: dict[str, Reduce] = {
    "ReduceSum": total, "ReduceMean": mean, "ReduceProd": product,
    "ReduceMax": lambda x, axes, keep: extreme(x, axes, keep, True),
    "ReduceMin": lambda x, axes, keep: extreme(x, axes, keep, False),
    "ReduceL1": lambda x, axes, keep: total(_absolute(x), axes, keep),
    "ReduceL2": lambda x, axes, keep: _root(total(multiply(x, x), axes, keep)),
    "ReduceSumSquare": lambda x, axes, keep: total(multiply(x, x), axes, keep),
    "ReduceLogSum": lambda x, axes, keep: apply(total(x, axes, keep), np.log, absolute=8),
    "ReduceLogSumExp": _log_sum_exp,
}  # fmt: skip


def _meaning_of(reduce: Reduce) -> Callable[[Attributes, Operands], list[Tracked]]:
    def evaluate(attributes: Attributes, operands: Operands) -> list[Tracked]:
        x = given(operands[0])
        axes = operands[1] if len(operands) > 1 else None
        keep = bool(attributes.get("keepdims", 1))
        if axes is None or not axes.value.size:
            if attributes.get("noop_with_empty_axes", 0):
                raise Undefined("without axes: the standard was changed in this")
            which = tuple(range(len(x.shape)))
        else:
            which = normalised(axes.value, len(x.shape))
        return [reduce(x, which, keep)]

    return evaluate


for _name, _reduce in REDUCTIONS.items():
    meaning(_name)(_meaning_of(_reduce))


@drawn("reduction", "Reduce")
def _draw_reduction(d: Drawer) -> None:
    op = d.rng.choice((*REDUCTIONS, "ReduceSum", "ReduceMax"))
    kinds = FLOATS if op in ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp") else NUMBERS
    x = d.pick(kinds, (1, 5))
    if op == "ReduceLogSum":
        x = d.pick((d.dtype(x),), (1, 4), low=0.2, high=5)
    rank = len(d.shape(x))
    axes = sorted(d.rng.sample(range(rank), d.rng.randint(1, rank)))
    axes = [axis - rank if d.rng.random() < 0.3 else axis for axis in axes]
    inputs = [x] if d.rng.random() < 0.15 else [x, d.integers(axes)]
    d.node(op, inputs, keepdims=d.rng.choice((0, 1)))


@drawn("reduction", "CumSum")
def _draw_cumulative_sum(d: Drawer) -> None:
    x = d.pick((*FLOATS, "i32", "i64", "u32", "u64"), (1, 4))
    axis = d.rng.randrange(-len(d.shape(x)), len(d.shape(x)))
    exclusive = d.rng.choice((0, 0, 1))
    d.node("CumSum", [x, d.constant(np.array(axis, d.rng.choice((np.int32, np.int64))))],
           exclusive=exclusive, reverse=d.rng.choice((0, 0, 1)))


@meaning("CumSum")
def _cumulative_sum(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x = given(operands[0])
    axis = normalised(given(operands[1]).value, len(x.shape))[0]
    if attributes.get("reverse", 0):
        x = x.moved(lambda array: np.flip(array, axis))
    if attributes.get("exclusive", 0):
        x = x.moved(lambda array: _delayed(array, axis))
    unknown = np.logical_or.accumulate(x.unknown, axis)
    if is_float(x.dtype):
        value = np.cumsum(x.value, axis)
        finite = np.cumsum(np.where(np.isfinite(x.value), np.abs(x.value), 0.0) + x.error, axis)
        terms = np.arange(x.shape[axis]).reshape([-1 if k == axis else 1 for k in range(len(x.shape))])
        limit = {"f32": 1e38, "f64": 1e307, "bf16": 1e38, "f16": 3e4}[x.dtype]
        error = np.cumsum(x.error, axis) + terms * ROUNDING[x.dtype] * finite
        found = rounded(x.dtype, value, error, unknown | (finite > limit))
    else:
        found = integer(np.cumsum(x.value, axis, dtype=x.value.dtype), x.dtype, unknown)
    return [found.moved(lambda array: np.flip(array, axis)) if attributes.get("reverse", 0) else found]


def _delayed(array: Array, axis: int) -> Array:
    if not array.shape[axis]:
        return array
    first = np.zeros_like(np.take(array, [0], axis))
    return np.concatenate([first, np.take(array, range(array.shape[axis] - 1), axis)], axis)


@drawn("reduction", "ArgMax")
def _draw_arg(d: Drawer) -> None:
    x = d.pick(NUMBERS, (1, 4))
    axis = d.rng.randrange(-len(d.shape(x)), len(d.shape(x)))
    d.node(d.rng.choice(("ArgMax", "ArgMin")), [x], axis=axis, keepdims=d.rng.choice((0, 1)),
           select_last_index=d.rng.choice((0, 0, 1)))


@meaning("ArgMax", "ArgMin")
def _unused(attributes: Attributes, operands: Operands) -> list[Tracked]:
    raise AssertionError("replaced below")


def _arg(largest: bool) -> Callable[[Attributes, Operands], list[Tracked]]:
    def evaluate(attributes: Attributes, operands: Operands) -> list[Tracked]:
        x = given(operands[0])
        axis = attributes.get("axis", 0) % len(x.shape)
        if not x.shape[axis]:
            raise Undefined("of nothing")
        keep = bool(attributes.get("keepdims", 1))
        last = attributes.get("select_last_index", 0)
        find = np.argmax if largest else np.argmin
        value = np.flip(x.value, axis) if last else x.value
        found = find(value, axis=axis, keepdims=True)
        place = x.shape[axis] - 1 - found if last else found
        unknown = x.unknown.any(axis=axis, keepdims=True)
        if x.is_float and x.error.any():
            best = np.take_along_axis(x.value, place, axis)
            reach = np.take_along_axis(x.error, place, axis) + x.error
            unknown = unknown | ((np.abs(x.value - best) <= reach).sum(axis=axis, keepdims=True) > 1)
        place, unknown = (place, unknown) if keep else (place.squeeze(axis), unknown.squeeze(axis))
        return [integer(place, "i64", unknown)]

    return evaluate


meaning("ArgMax")(_arg(True))
meaning("ArgMin")(_arg(False))
