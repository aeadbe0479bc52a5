"""Operators that find elements by places that a call gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from tests.fuzz.dtypes import ALL, DTYPES, FLOATS, LARGEST, ROUNDING, is_float
from tests.fuzz.registry import Attributes, Operands, Rejected, drawn, given, meaning
from tests.fuzz.tracked import Array, Invalid, Tracked, Undefined, integer, rounded

if TYPE_CHECKING:
    from tests.fuzz.drawing import Drawer


def _places(indices: Tracked, extent: int) -> Array:
    """Places from the front; Invalid where one is outside."""
    found = indices.value.astype(np.int64)
    if ((found < -extent) | (found >= extent)).any():
        raise Invalid(f"an index is outside {extent}")
    return np.where(found < 0, found + extent, found)


def _known(indices: Tracked) -> None:
    if indices.unknown.any():
        raise Undefined("places that rounding decides")


def _index(d: Drawer, shape: tuple[int, ...], extent: int) -> str:
    """An input or a constant of places in `extent`."""
    if extent < 1:
        raise Rejected("no places")
    low = -extent if d.rng.random() < 0.4 else 0
    dtype = d.rng.choice(("i32", "i64"))
    return d.fresh(dtype, shape, low, extent - 1, index=True, constant=0.3)


@meaning("Gather")
def _gather(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x, indices = given(operands[0]), given(operands[1])
    _known(indices)
    axis = attributes.get("axis", 0) % len(x.shape)
    places = _places(indices, x.shape[axis])
    return [x.moved(lambda array: np.take(array, places, axis))]


@drawn("index", "Gather")
def _draw_gather(d: Drawer) -> None:
    x = d.pick(ALL, (1, 4))
    shape = d.shape(x)
    axis = d.rng.randrange(len(shape))
    indices = _index(d, d.any_shape(0, 2), shape[axis])
    d.node("Gather", [x, indices], axis=axis - len(shape) if d.rng.random() < 0.3 else axis)


@meaning("GatherElements")
def _gather_elements(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x, indices = given(operands[0]), given(operands[1])
    _known(indices)
    axis = attributes.get("axis", 0) % len(x.shape)
    _within(x, indices, axis)
    places = _places(indices, x.shape[axis])
    where = tuple(slice(0, e) if k != axis else slice(None) for k, e in enumerate(indices.shape))
    return [x.moved(lambda array: np.take_along_axis(array[where], places, axis))]


def _within(x: Tracked, indices: Tracked, axis: int) -> None:
    if len(x.shape) != len(indices.shape):
        raise Invalid("ranks differ")
    if any(i > e for k, (i, e) in enumerate(zip(indices.shape, x.shape, strict=True)) if k != axis):
        raise Invalid("more indices than data")


def _smaller(d: Drawer, shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return tuple(
        d.rng.choice((1, 2, 3, e)) if k == axis else d.rng.choice((e, e, max(e - 1, 0), min(e, 1)))
        for k, e in enumerate(shape)
    )


@drawn("index", "GatherElements")
def _draw_gather_elements(d: Drawer) -> None:
    x = d.pick(ALL, (1, 4))
    shape = d.shape(x)
    axis = d.rng.randrange(len(shape))
    d.node("GatherElements", [x, _index(d, _smaller(d, shape, axis), shape[axis])], axis=axis)


@meaning("ScatterElements")
def _scatter_elements(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x, indices, updates = (given(operand) for operand in operands)
    _known(indices)
    axis = attributes.get("axis", 0) % len(x.shape)
    _within(x, indices, axis)
    if indices.shape != updates.shape:
        raise Invalid("indices and updates differ")
    places = _places(indices, x.shape[axis])
    grid = list(np.indices(indices.shape))
    grid[axis] = places
    return [_scatter(x, tuple(grid), updates, attributes.get("reduction", "none"))]


def _scatter(x: Tracked, where: tuple[Array, ...], updates: Tracked, reduction: str) -> Tracked:
    hits = np.zeros(x.shape, np.int64)
    np.add.at(hits, where, 1)
    unknown = x.unknown.copy()
    value, error = x.value.copy(), x.error.copy()
    touched = np.zeros(x.shape, bool)
    np.logical_or.at(touched, where, updates.unknown)
    if reduction == "none":
        unknown[where] = False
        value[where], error[where] = updates.value, updates.error
        return Tracked(x.dtype, value, error, unknown | touched | (hits > 1))
    if reduction in ("max", "min"):
        (np.maximum if reduction == "max" else np.minimum).at(value, where, updates.value)
        np.maximum.at(error, where, updates.error)
        return Tracked(x.dtype, value, np.where(np.isfinite(value.astype(np.float64)), error, 0.0), unknown | touched)
    (np.add if reduction == "add" else np.multiply).at(value, where, updates.value)
    if not is_float(x.dtype):
        return integer(value, x.dtype, unknown | touched)
    size, moved = np.abs(x.value), np.abs(updates.value)
    scale = np.where(np.isfinite(size), size, 0.0) + x.error
    reach = np.where(np.isfinite(moved), moved, 0.0) + updates.error
    (np.add if reduction == "add" else np.multiply).at(scale, where, reach)
    if reduction == "mul" and (x.error.any() or updates.error.any()):
        error = np.where(hits > 0, scale - np.abs(value), error)
    else:
        np.add.at(error, where, updates.error)
    error = np.nan_to_num(error, nan=0.0, posinf=0.0, neginf=0.0) + hits * ROUNDING[x.dtype] * scale
    # Of several products, and of sums out of range, the order decides.
    lost = hits > 1 if reduction == "mul" else scale > LARGEST[x.dtype] / 2
    return rounded(x.dtype, value, error, unknown | touched | lost)


_REDUCTIONS = ("none", "none", "add", "mul", "max", "min")


@drawn("index", "ScatterElements")
def _draw_scatter_elements(d: Drawer) -> None:
    reduction = d.rng.choice(_REDUCTIONS)
    x = d.pick(ALL if reduction == "none" else (*FLOATS, "i32", "i64"), (1, 3))
    shape = d.shape(x)
    axis = d.rng.randrange(len(shape))
    which = _smaller(d, shape, axis)
    operands = [x, _index(d, which, shape[axis]), d.fresh(d.dtype(x), which)]
    d.node("ScatterElements", operands, axis=axis, reduction=reduction)


@meaning("GatherND")
def _gather_nd(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x, indices = given(operands[0]), given(operands[1])
    _known(indices)
    batch = attributes.get("batch_dims", 0)
    depth = indices.shape[-1]
    if x.shape[:batch] != indices.shape[:batch]:
        raise Invalid("batches differ")
    where: list[Array] = list(np.indices((*indices.shape[:-1],)))[:batch]
    for k in range(depth):
        column = integer(indices.value[..., k], indices.dtype)
        where.append(_places(column, x.shape[batch + k]))
    return [x.moved(lambda array: array[tuple(where)])]


@drawn("index", "GatherND")
def _draw_gather_nd(d: Drawer) -> None:
    x = d.pick(ALL, (1, 4), lambda n: 0 not in d.shape(n))
    shape = d.shape(x)
    batch = d.rng.choice((0, 0, 1)) if len(shape) > 1 else 0
    depth = d.rng.randint(1, len(shape) - batch)
    count = d.rng.choice((1, 2, 5))
    least = min(shape[batch : batch + depth])
    low = -least if d.rng.random() < 0.3 else 0
    where = d.fresh("i64", (*shape[:batch], count, depth), low, least - 1, index=True, constant=0.3)
    d.node("GatherND", [x, where], batch_dims=batch)


@meaning("ScatterND")
def _scatter_nd(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x, indices, updates = (given(operand) for operand in operands)
    _known(indices)
    depth = indices.shape[-1]
    if updates.shape != (*indices.shape[:-1], *x.shape[depth:]):
        raise Invalid("updates do not fit")
    where = [_places(integer(indices.value[..., k], indices.dtype), x.shape[k]) for k in range(depth)]
    rest = x.shape[depth:]
    grid = [w.reshape(w.shape + (1,) * len(rest)) for w in where]
    tails = np.indices(rest)
    full = tuple(np.broadcast_to(part, updates.shape) for part in [*grid, *tails])
    return [_scatter(x, full, updates, attributes.get("reduction", "none"))]


@drawn("index", "ScatterND")
def _draw_scatter_nd(d: Drawer) -> None:
    reduction = d.rng.choice(_REDUCTIONS)
    x = d.pick(ALL if reduction == "none" else (*FLOATS, "i32", "i64"), (1, 3), lambda n: 0 not in d.shape(n))
    shape = d.shape(x)
    depth = d.rng.randint(1, len(shape))
    count = d.rng.choice((1, 2, 3))
    where = d.fresh("i64", (count, depth), 0, min(shape[:depth]) - 1, index=True, constant=0.3)
    d.node("ScatterND", [x, where, d.fresh(d.dtype(x), (count, *shape[depth:]))], reduction=reduction)


@meaning("OneHot")
def _one_hot(attributes: Attributes, operands: Operands) -> list[Tracked]:
    indices, depth, values = (given(operand) for operand in operands)
    _known(indices)
    size = int(depth.value.reshape(-1)[0])
    axis = attributes.get("axis", -1)
    places = np.where(indices.value < 0, indices.value + size, indices.value)
    hot = np.moveaxis(places[..., None] == np.arange(size), -1, axis)
    which = hot.astype(np.int64)
    return [values.moved(lambda array: array[which])]


@drawn("index", "OneHot")
def _draw_one_hot(d: Drawer) -> None:
    size = d.rng.choice((1, 2, 5, 7))
    indices = d.fresh("i64", d.any_shape(0, 3), -size - 1, size, constant=0.2)
    dtype = d.rng.choice(("f32", "i32", "i64", "f32"))
    values = d.constant(np.array([0, d.rng.choice((1, 3))], DTYPES[dtype]))
    d.node("OneHot", [indices, d.constant(np.array(size, np.int64)), values],
           axis=d.rng.randint(-1, len(d.shape(indices))))
