"""Gathers and scatters."""

from __future__ import annotations

from typing import Any

import numpy as np

from motet.compiler.frontends.openvino.operation import NoLowering, OpenvinoOperation
from motet.compiler.frontends.openvino.writer import GraphWriter, Rules


def _gather(op: OpenvinoOperation, w: GraphWriter) -> str:
    rank, indexed = op.rank(0), op.rank(1)
    axis = op.axes(2, rank, "axis")[0]
    batch = int(op.attribute("batch_dims", 0))
    batch += indexed if batch < 0 else 0
    if batch == 0:
        return w.add("Gather", op.inputs[0], op.inputs[1], axis=axis)
    # The axis follows the batch, the slices are gathered, and the axes between return to their places.
    order = [*range(batch), axis, *(each for each in range(batch, rank) if each != axis)]
    places = w.unsqueeze(w.cast(op.inputs[1], np.int64), indexed)
    found = w.add("GatherND", w.transpose(op.inputs[0], order), places, batch_dims=batch)
    new, between = indexed - batch, axis - batch
    last = len(order) - 1 + new
    back = [*range(batch), *range(batch + new, batch + new + between), *range(batch, batch + new),
            *range(batch + new + between, last)]
    return w.transpose(found, back)


def _gather_elements(op: OpenvinoOperation, w: GraphWriter) -> str:
    return w.add("GatherElements", op.inputs[0], op.inputs[1], axis=int(op.attribute("axis")))


def _gather_nd(op: OpenvinoOperation, w: GraphWriter) -> str:
    """Operator set 5 merges the axes of the batch in the result."""
    batch = int(op.attribute("batch_dims", 0))
    found = w.add("GatherND", op.inputs[0], w.cast(op.inputs[1], np.int64), batch_dims=batch)
    if op.version == 5 and batch > 1:
        merged = op.result_extents()
        if merged is None or sum(extent is None for extent in merged) > 1:
            raise NoLowering("several axes of the batch, with dynamic extents; expected known ones")
        return w.reshape(found, [-1 if extent is None else extent for extent in merged])
    return found


def _scatter_update(op: OpenvinoOperation, w: GraphWriter) -> str:
    """Slices along an axis: a scatter along the first axis, of which the others are parts."""
    rank, indexed = op.rank(0), op.rank(1)
    axis = op.axes(3, rank, "axis")[0]
    order = [axis, *(each for each in range(rank) if each != axis)]
    updates = op.inputs[2]
    if op.rank(2) != rank - 1 + indexed:
        raise NoLowering(f"updates of rank {op.rank(2)}; expected {rank - 1 + indexed}")
    moved = [*range(axis, axis + indexed), *range(axis), *range(axis + indexed, rank - 1 + indexed)]
    places = w.unsqueeze(w.cast(op.inputs[1], np.int64), indexed)
    places = _from_first(w, places, w.extent(op.inputs[0], axis))
    found = w.add("ScatterND", w.transpose(op.inputs[0], order), places, w.transpose(updates, moved))
    return w.transpose(found, [order.index(each) for each in range(rank)])


def _from_first(w: GraphWriter, places: str, extent: str) -> str:
    """Indices, of which negative ones count from the end."""
    return w.add("Where", w.add("Less", places, w.ints(0)), w.add("Add", places, extent), places)


_REDUCTIONS = {"none": "none", "sum": "add", "prod": "mul", "min": "min", "max": "max"}


def _scatter_elements(op: OpenvinoOperation, w: GraphWriter) -> str:
    axis = op.axes(3, op.rank(0), "axis")[0]
    reduction = str(op.attribute("reduction", "none")).lower()
    data, indices, updates = op.inputs[0], op.inputs[1], op.inputs[2]
    if reduction == "mean":
        return _scatter_mean(op, w, axis)
    if reduction != "none" and not op.attribute("use_init_val", True):
        neutral = _neutral(reduction, op.dtype(0))
        erased = w.add("Expand", w.constant(neutral, op.dtype(0)), w.add("Shape", updates))
        data = w.add("ScatterElements", data, indices, erased, axis=axis)
    return w.add("ScatterElements", data, indices, updates, axis=axis, reduction=_REDUCTIONS[reduction])


def _neutral(reduction: str, dtype: np.dtype[Any]) -> float:
    """The number that a reduction starts from."""
    if reduction in ("sum", "prod"):
        return 0 if reduction == "sum" else 1
    if dtype.kind not in "iu":
        return float("inf") if reduction == "min" else float("-inf")
    ends = np.iinfo(dtype)
    return ends.max if reduction == "min" else ends.min


def _scatter_mean(op: OpenvinoOperation, w: GraphWriter, axis: int) -> str:
    """The sum over the number of summands, which includes the first value if that is used."""
    dtype = op.dtype(0)
    if dtype.kind in "iu":
        raise NoLowering("the mean of integers; expected floats")
    data, indices, updates = op.inputs[0], op.inputs[1], op.inputs[2]
    zeros, ones = (w.add("Expand", w.constant(number, dtype), w.add("Shape", updates)) for number in (0, 1))
    counts = w.add("Expand", w.constant(1, dtype), w.add("Shape", data))
    if not op.attribute("use_init_val", True):
        data, counts = (w.add("ScatterElements", each, indices, zeros, axis=axis) for each in (data, counts))
    total = w.add("ScatterElements", data, indices, updates, axis=axis, reduction="add")
    number = w.add("ScatterElements", counts, indices, ones, axis=axis, reduction="add")
    return w.add("Div", total, w.add("Max", number, w.constant(1, dtype)))


def _scatter_nd(op: OpenvinoOperation, w: GraphWriter) -> str:
    reduction = str(op.attribute("reduction", "none")).lower()
    updates = op.inputs[2]
    if reduction == "sub":
        updates, reduction = w.add("Neg", updates), "sum"
    places = w.cast(op.inputs[1], np.int64)
    return w.add("ScatterND", op.inputs[0], places, updates, reduction=_REDUCTIONS[reduction])


RULES: Rules = {
    "Gather": _gather, "GatherElements": _gather_elements, "GatherND": _gather_nd, "ScatterUpdate": _scatter_update,
    "ScatterElementsUpdate": _scatter_elements, "ScatterNDUpdate": _scatter_nd,
}
