"""Writes operators whose number of results depends on data: NonZero, Compress, Unique and NonMaxSuppression.

    NonZero(x)    →    a mark (0 or 1) for each element; the rank of each marked element (CumSum); indices in this
                       order (ScatterElements); a Slice of as many as there are marks

`read_value_extents` makes the calls compute the number of elements before the rest of the program runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.numbers import Numbers, refused
from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.suppression import OPERATOR as SUPPRESS
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, Rule

if TYPE_CHECKING:
    import onnx

_F32, _I64, _F16, _BF16 = 1, 7, 10, 16  # element types
_BOOL = 9
_LARGE = (1 << 31) - 1  # the end of an axis of any extent


def _places(n: Numbers, marks: str) -> str:
    """The indices of the ones in `marks`, a vector of zeros and ones, in order."""
    w = n.w
    extent = w.add("Shape", marks)
    order = n.sub(w.add("CumSum", marks, n.of(0)), n.of(1))
    every = w.add("Range", n.of(0), w.reshape(extent, []), n.of(1))
    # Unmarked elements write to one index past the others.
    target = n.choose(w.cast(marks, _BOOL), order, w.reshape(extent, [1]))
    room = w.add("ConstantOfShape", n.add(extent, n.of([1])), value=_zero())
    found = w.add("ScatterElements", room, target, every)
    return w.add("Slice", found, n.of([0]), w.reshape(n.sum(marks, 0), [1]), n.of([0]), n.of([1]))


def _zero() -> onnx.TensorProto:
    import onnx

    return onnx.numpy_helper.from_array(np.zeros(1, np.int64))


def _flat(w: NodeWriter, value: str) -> str:
    return value if w.facts.rank(value) == 1 else w.reshape(value, [-1])


def _compress(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    if node.input[1] in facts.model.constants:
        return None
    w, axis = NodeWriter(node, facts), attribute(node, "axis", None)
    n = Numbers(w)
    value = node.input[0] if axis is not None else _flat(w, node.input[0])
    places = _places(n, n.flag(node.input[1]))
    return w.done([w.add("Gather", value, places, axis=axis or 0)])


def _non_zero(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    rank, kind = facts.rank(node.input[0]), facts.types.get(node.input[0])
    if rank is None or kind is None:
        raise refused(node, facts, "an operand of unknown rank or type")
    w = NodeWriter(node, facts)
    n = Numbers(w)
    known = facts.shapes.get(node.input[0])
    if known is not None and 0 in known:
        return w.done([n.of(np.zeros((rank, 0)))])
    value = _flat(w, node.input[0])
    marks = n.flag(value)
    if kind != _BOOL:
        zero = w.constant(np.zeros((), facts.dtype(node.input[0])), "zero")
        marks = n.flag(w.add("Not", w.add("Equal", value, zero)))
    places = _places(n, marks)
    shape = n.shape(node.input[0]) if rank else n.of([1])
    rows: list[str] = []
    for axis in reversed(range(max(rank, 1))):
        extent = w.add("Gather", shape, n.of(axis), axis=0)
        rows.insert(0, w.reshape(w.add("Mod", places, extent) if axis else places, [1, -1]))
        places = w.add("Div", places, extent)
    return w.done([w.add("Concat", *rows, axis=0) if len(rows) > 1 else rows[0]])


# -- different elements ----------------------------------------------------------------------------


def _unique(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """Unique: sorts elements, or slices along an axis; those that differ from their predecessor are the results."""
    rank, kind = facts.rank(node.input[0]), facts.types.get(node.input[0])
    axis = attribute(node, "axis", None)
    if rank is None or kind is None or (axis is not None and 0 in (facts.shapes.get(node.input[0]) or ())):
        raise refused(node, facts, "an operand of unknown rank or type, or along an axis of one without elements")
    w = NodeWriter(node, facts)
    n = Numbers(w)
    value, along = node.input[0], 0 if axis is None else axis % rank
    extents = facts.extents(value)
    if extents is not None and all(extent == 1 for extent in (extents if axis is None else extents[along : along + 1])):
        return w.done([w.reshape(value, [1] if axis is None else [0] * rank), n.of([0]), n.of([0]), n.of([1])])
    compared = w.cast(value, _F32 if kind in (_F16, _BF16) else _I64 if kind == _BOOL else kind)
    if axis is None:
        value = _flat(w, value)
        compared = _flat(w, compared)
        count = w.add("Shape", compared)
        ordered, order = w.add_all("TopK", 2, compared, count, largest=0)
    else:
        rows = w.add("Transpose", compared, perm=[along, *(a for a in range(rank) if a != along)])
        rows = w.reshape(rows, [0, -1])
        count, order = w.reshape(w.add("Gather", w.add("Shape", rows), n.of([0]), axis=0), [1]), _order_of_rows(n, rows)
        ordered = w.add("Gather", rows, order, axis=0)
    every = w.add("Range", n.of(0), w.reshape(count, []), n.of(1))
    before = w.add("Max", n.sub(every, n.of(1)), n.of(0))
    same = w.add("Equal", ordered, w.add("Gather", ordered, before, axis=0))
    if axis is not None:
        same = w.add("Equal", w.over("ReduceMin", n.flag(same), [1], keepdims=0), n.of(1))
    first = n.flag(w.add("Or", w.add("Equal", every, n.of(0)), w.add("Not", same)))
    group = n.sub(w.add("CumSum", first, n.of(0)), n.of(1))
    found = w.add("Gather", order, _places(n, first), axis=0)
    zeros = w.add("ConstantOfShape", count, value=_zero())
    inverse = w.add("ScatterElements", zeros, order, group)
    if not attribute(node, "sorted", 1):
        marks = w.add("ScatterElements", zeros, found, _filled(n, found, 1))
        places, number = _places(n, marks), n.sub(w.add("CumSum", marks, n.of(0)), n.of(1))
        inverse = w.add("Gather", number, w.add("Gather", found, inverse, axis=0), axis=0)
        found = places
    counts = w.add("ScatterElements", _filled(n, found, 0), inverse, _filled(n, inverse, 1), reduction="add")
    return w.done([w.add("Gather", value, found, axis=along), found, inverse, counts])


def _filled(n: Numbers, like: str, number: int) -> str:
    return n.add(n.mul(like, n.of(0)), n.of(number))


def _order_of_rows(n: Numbers, rows: str) -> str:
    """The indices that sort rows in ascending order. The rank of a row is the number of rows that are less, or equal
    and before it; two rows compare at the first column in which they differ."""
    w = n.w
    left, right = w.over("Unsqueeze", rows, [1]), w.over("Unsqueeze", rows, [0])
    differs = n.flag(w.add("Not", w.add("Equal", left, right)))
    column = w.over("Unsqueeze", w.add("ArgMax", differs, axis=2, keepdims=0), [2])
    less = n.flag(w.add("Less", right, left))  # [i, j]: row j is less than row i
    less = w.reshape(w.add("GatherElements", less, column, axis=2), [0, -1])
    equal = n.sub(n.of(1), w.over("ReduceMax", differs, [2], keepdims=0))
    every = w.add("Range", n.of(0), w.add("Gather", w.add("Shape", rows), n.of(0), axis=0), n.of(1))
    before = n.flag(n.less(w.reshape(every, [1, -1]), w.reshape(every, [-1, 1])))
    place = n.sum(n.add(less, n.mul(equal, before)), 1)
    return w.add("ScatterElements", n.mul(every, n.of(0)), place, every)


# -- boxes -----------------------------------------------------------------------------------------


def _non_max_suppression(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """Visits boxes by descending score; a box is kept unless it overlaps with one already kept (`suppression.py`)."""
    import onnx

    scores, names = facts.shapes.get(node.input[1]), [*node.input, "", "", ""]
    if scores is None or 0 in scores:
        raise refused(node, facts, "numbers of batches, classes and boxes that a call decides, or that are 0")
    batches, classes, boxes = scores
    w = NodeWriter(node, facts)
    n = Numbers(w)
    if not names[2]:  # the default: no boxes
        return w.done([n.of(np.zeros((0, 3)))])
    score, order = w.add_all("TopK", 2, node.input[1], n.of([boxes]))
    zero = w.constant(np.array(0, np.float32), "number")
    limits = [n.read(names[2], []), w.reshape(names[3], []) if names[3] else zero]
    limits += [w.reshape(names[4], [])] if names[4] else []
    centred = {"centred": 1} if attribute(node, "center_point_box", 0) else {}
    rows, count = w.add_all(SUPPRESS, 2, node.input[0], order, score, *limits, **centred)
    for name, extents in ((rows, (batches * classes * boxes, 3)), (count, (1,))):
        facts.model.proto.graph.value_info.append(onnx.helper.make_tensor_value_info(name, _I64, extents))
    places = w.add("Range", n.of(0), w.reshape(count, []), n.of(1))  # Slice lacks a lowering in set 11
    return w.done([w.add("Gather", rows, places, axis=0)])


RULES: dict[str, Rule] = {
    "Compress": _compress, "NonMaxSuppression": _non_max_suppression, "NonZero": _non_zero, "Unique": _unique,
}  # fmt: skip
