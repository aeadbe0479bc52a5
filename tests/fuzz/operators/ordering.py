"""Operators that order elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from tests.fuzz.dtypes import FLOATS
from tests.fuzz.registry import Attributes, Operands, drawn, given, meaning
from tests.fuzz.tracked import Array, Invalid, Tracked, integer

if TYPE_CHECKING:
    from tests.fuzz.drawing import Drawer


def order(value: Array, axis: int, largest: bool) -> Array:
    """The places of elements in order, those of equal ones as they were; NaN counts as larger than every number."""
    if value.dtype.kind == "f":
        rank = np.where(np.isnan(value), np.inf, value)
        keys = (np.isnan(value), rank)
        signed = [~keys[0], -keys[1]] if largest else list(keys)
        return np.lexsort((signed[1], signed[0]), axis=axis)
    wide = value.astype(object)
    unsigned = np.unique(value, return_inverse=True)[1].reshape(value.shape) if value.size else wide.astype(np.int64)
    return np.argsort(-unsigned if largest else unsigned, axis=axis, kind="stable")


@meaning("TopK")
def _top(attributes: Attributes, operands: Operands) -> list[Tracked]:
    x, count = given(operands[0]), int(given(operands[1]).value.reshape(-1)[0])
    axis = attributes.get("axis", -1) % len(x.shape)
    if not 0 <= count <= x.shape[axis]:
        raise Invalid("more than there are")
    places = order(x.value, axis, bool(attributes.get("largest", 1)))
    ordered = x.moved(lambda array: np.take_along_axis(array, places, axis))
    unknown = np.broadcast_to(ordered.unknown.any(axis=axis, keepdims=True), ordered.shape)
    unclear = _unclear(ordered, axis)
    head = tuple(slice(0, count) if k == axis else slice(None) for k in range(len(x.shape)))
    spread = np.broadcast_to(ordered.error.max(axis=axis, keepdims=True, initial=0.0), ordered.shape)
    error = np.where(np.isfinite(ordered.value.astype(np.float64)), spread, 0.0)
    values = Tracked(x.dtype, ordered.value, error, unknown)
    where = integer(places, "i64", unknown | unclear)
    return [values.moved(lambda array: array[head]), where.moved(lambda array: array[head])]


def _unclear(ordered: Tracked, axis: int) -> Array:
    """Where a neighbour in the order is within the errors."""
    found = np.zeros(ordered.shape, bool)
    if not ordered.error.any() or ordered.shape[axis] < 2:
        return found
    with np.errstate(all="ignore"):
        value, error = np.moveaxis(ordered.value, axis, -1), np.moveaxis(ordered.error, axis, -1)
        widest = error.max(axis=-1, keepdims=True)
        near = np.abs(np.diff(value, axis=-1)) <= 2 * widest
    unclear = np.moveaxis(found, axis, -1)
    unclear[..., 1:] |= near
    unclear[..., :-1] |= near
    return found


@drawn("order", "TopK")
def _draw_top(d: Drawer) -> None:
    x = d.pick((*FLOATS, "i32", "i64", "u8", "i8", "u32"), (1, 4))
    shape = d.shape(x)
    axis = d.rng.randrange(len(shape))
    count = d.rng.choice([k for k in (0, 1, 1, 2, 3, shape[axis], shape[axis]) if k <= shape[axis]])
    d.node("TopK", [x, d.integers([count])], outputs=2, axis=axis - len(shape) if d.rng.random() < 0.3 else axis,
           largest=d.rng.choice((0, 1)), sorted=1)
