"""Sorted selections and searches."""

from __future__ import annotations

import numpy as np

from motet.compiler.frontends.openvino.operation import OpenvinoOperation
from motet.compiler.frontends.openvino.writer import GraphWriter, Rules


def _top_k(op: OpenvinoOperation, w: GraphWriter) -> list[str]:
    """Results in the order of values, or of places (`sort=index`)."""
    axis = int(op.attribute("axis")) % op.rank(0)
    count = op.value(1)
    k = w.ints([int(count.reshape(()))]) if count is not None else w.reshape(w.cast(op.inputs[1], np.int64), [1])
    largest = int(str(op.attribute("mode", "max")).lower() == "max")
    value, places = w.add_all("TopK", 2, op.inputs[0], k, axis=axis, largest=largest, sorted=1)
    if str(op.attribute("sort", "value")).lower() == "index":
        places = w.add_all("TopK", 2, places, k, axis=axis, largest=0, sorted=1)[0]
        value = w.add("GatherElements", op.inputs[0], places, axis=axis)
    return [value, places if op.results < 2 or op.result_dtype(1) == np.int64 else w.cast(places, op.result_dtype(1))]


def _bucketize(op: OpenvinoOperation, w: GraphWriter) -> str:
    """The number of boundaries below each element, or not above it."""
    below = "Less" if op.attribute("with_right_bound", True) else "LessOrEqual"
    return _counted(op, w, below, op.inputs[1], w.unsqueeze(op.inputs[0], op.rank(0)), (1, 0))


def _search_sorted(op: OpenvinoOperation, w: GraphWriter) -> str:
    """The same for each row of sorted boundaries."""
    below = "LessOrEqual" if op.attribute("right_mode", False) else "Less"
    boundaries = op.inputs[0]
    if op.rank(0) > 1:
        boundaries = w.unsqueeze(boundaries, op.rank(0) - 1)
    return _counted(op, w, below, boundaries, w.unsqueeze(op.inputs[1], op.rank(1)), (0, 1))


def _counted(
    op: OpenvinoOperation, w: GraphWriter, below: str, boundaries: str, values: str, places: tuple[int, int]
) -> str:
    """How many boundaries, the operand `places[0]`, along the last axis are `below` each of the values."""
    kinds = [op.dtype(place) for place in places]
    common = np.result_type(*kinds)
    one, other = (each if kind == common else w.cast(each, common)
                  for each, kind in zip((boundaries, values), kinds, strict=True))
    smaller = w.cast(w.add(below, one, other), np.int64)
    return w.cast(w.reduce("ReduceSum", smaller, [-1], keep=False), op.result_dtype())


def _unique(op: OpenvinoOperation, w: GraphWriter) -> list[str]:
    axis = {"axis": int(op.known(1, "axis").reshape(()))} if op.has(1) else {}
    found = w.add_all("Unique", 4, op.inputs[0], sorted=int(bool(op.attribute("sorted", True))), **axis)
    return [found[0], *(w.cast(each, op.result_dtype(place)) for place, each in enumerate(found[1:], 1))]


RULES: Rules = {"TopK": _top_k, "Bucketize": _bucketize, "SearchSorted": _search_sorted, "Unique": _unique}
