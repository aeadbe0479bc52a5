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
    extent = n.add("Shape", marks)
    order = n.sub(n.add("CumSum", marks, n.of(0)), n.of(1))
    every = n.add("Range", n.of(0), n.reshape(extent, []), n.of(1))
    # Unmarked elements write to one index past the others.
    target = n.choose(n.cast(marks, _BOOL), order, n.reshape(extent, [1]))
    room = n.add("ConstantOfShape", n.plus(extent, n.of([1])), value=_zero())
    found = n.add("ScatterElements", room, target, every)
    return n.add("Slice", found, n.of([0]), n.reshape(n.sum(marks, 0), [1]), n.of([0]), n.of([1]))


def _zero() -> onnx.TensorProto:
    import onnx

    return onnx.numpy_helper.from_array(np.zeros(1, np.int64))


def _flat(w: NodeWriter, value: str) -> str:
    return value if w.facts.rank(value) == 1 else w.reshape(value, [-1])


def _compress(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    n, axis, known = Numbers(node, facts), attribute(node, "axis", None), facts.model.constants.get(node.input[1])
    value = node.input[0] if axis is not None else _flat(n, node.input[0])
    places = _places(n, n.flag(node.input[1])) if known is None else n.of(np.flatnonzero(known))
    return n.done([n.add("Gather", value, places, axis=axis or 0)])


def _non_zero(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    rank, kind = facts.rank(node.input[0]), facts.types.get(node.input[0])
    if rank is None or kind is None:
        raise refused(node, facts, "an operand of unknown rank or type")
    n = Numbers(node, facts)
    known = facts.shapes.get(node.input[0])
    if known is not None and 0 in known:
        return n.done([n.of(np.zeros((rank, 0)))])
    value = _flat(n, node.input[0])
    marks = n.flag(value)
    if kind != _BOOL:
        zero = n.constant(np.zeros((), facts.dtype(node.input[0])), "zero")
        marks = n.flag(n.add("Not", n.add("Equal", value, zero)))
    places = _places(n, marks)
    shape = n.shape(node.input[0]) if rank else n.of([1])
    rows: list[str] = []
    for axis in reversed(range(max(rank, 1))):
        extent = n.add("Gather", shape, n.of(axis), axis=0)
        rows.insert(0, n.reshape(n.add("Mod", places, extent) if axis else places, [1, -1]))
        places = n.add("Div", places, extent)
    return n.done([n.add("Concat", *rows, axis=0) if len(rows) > 1 else rows[0]])


# -- different elements ----------------------------------------------------------------------------


def _unique(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """Unique: sorts elements, or slices along an axis; those that differ from their predecessor are the results."""
    rank, kind = facts.rank(node.input[0]), facts.types.get(node.input[0])
    axis = attribute(node, "axis", None)
    if rank is None or kind is None or (axis is not None and 0 in (facts.shapes.get(node.input[0]) or ())):
        raise refused(node, facts, "an operand of unknown rank or type, or along an axis of one without elements")
    n = Numbers(node, facts)
    value, along = node.input[0], 0 if axis is None else axis % rank
    extents = facts.extents(value)
    if extents is not None and all(extent == 1 for extent in (extents if axis is None else extents[along : along + 1])):
        return n.done([n.reshape(value, [1] if axis is None else [0] * rank), n.of([0]), n.of([0]), n.of([1])])
    compared = n.cast(value, _F32 if kind in (_F16, _BF16) else _I64 if kind == _BOOL else kind)
    if axis is None:
        value = _flat(n, value)
        compared = _flat(n, compared)
        count = n.add("Shape", compared)
        ordered, order = n.add_all("TopK", 2, compared, count, largest=0)
    else:
        rows = n.add("Transpose", compared, perm=[along, *(a for a in range(rank) if a != along)])
        rows = n.reshape(rows, [0, -1])
        count, order = n.reshape(n.add("Gather", n.add("Shape", rows), n.of([0]), axis=0), [1]), _order_of_rows(n, rows)
        ordered = n.add("Gather", rows, order, axis=0)
    every = n.add("Range", n.of(0), n.reshape(count, []), n.of(1))
    before = n.add("Max", n.sub(every, n.of(1)), n.of(0))
    same = n.add("Equal", ordered, n.add("Gather", ordered, before, axis=0))
    if axis is not None:
        same = n.add("Equal", n.over("ReduceMin", n.flag(same), [1], keepdims=0), n.of(1))
    first = n.flag(n.add("Or", n.add("Equal", every, n.of(0)), n.add("Not", same)))
    group = n.sub(n.add("CumSum", first, n.of(0)), n.of(1))
    found = n.add("Gather", order, _places(n, first), axis=0)
    zeros = n.add("ConstantOfShape", count, value=_zero())
    inverse = n.add("ScatterElements", zeros, order, group)
    if not attribute(node, "sorted", 1):
        marks = n.add("ScatterElements", zeros, found, _filled(n, found, 1))
        places, number = _places(n, marks), n.sub(n.add("CumSum", marks, n.of(0)), n.of(1))
        inverse = n.add("Gather", number, n.add("Gather", found, inverse, axis=0), axis=0)
        found = places
    counts = n.add("ScatterElements", _filled(n, found, 0), inverse, _filled(n, inverse, 1), reduction="add")
    return n.done([n.add("Gather", value, found, axis=along), found, inverse, counts])


def _filled(n: Numbers, like: str, number: int) -> str:
    return n.plus(n.mul(like, n.of(0)), n.of(number))


def _order_of_rows(n: Numbers, rows: str) -> str:
    """The indices that sort rows in ascending order. The rank of a row is the number of rows that are less, or equal
    and before it; two rows compare at the first column in which they differ."""
    left, right = n.over("Unsqueeze", rows, [1]), n.over("Unsqueeze", rows, [0])
    differs = n.flag(n.add("Not", n.add("Equal", left, right)))
    column = n.over("Unsqueeze", n.add("ArgMax", differs, axis=2, keepdims=0), [2])
    less = n.flag(n.add("Less", right, left))  # [i, j]: row j is less than row i
    less = n.reshape(n.add("GatherElements", less, column, axis=2), [0, -1])
    equal = n.sub(n.of(1), n.over("ReduceMax", differs, [2], keepdims=0))
    every = n.add("Range", n.of(0), n.extent(rows, 0), n.of(1))
    before = n.flag(n.less(n.reshape(every, [1, -1]), n.reshape(every, [-1, 1])))
    place = n.sum(n.plus(less, n.mul(equal, before)), 1)
    return n.add("ScatterElements", n.mul(every, n.of(0)), place, every)


# -- boxes -----------------------------------------------------------------------------------------


def _non_max_suppression(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """Visits boxes by descending score; a box is kept unless it overlaps with one already kept (`suppression.py`)."""
    import onnx

    scores, names = facts.shapes.get(node.input[1]), [*node.input, "", "", ""]
    if scores is None or 0 in scores:
        raise refused(node, facts, "numbers of batches, classes and boxes that a call decides, or that are 0")
    batches, classes, boxes = scores
    n = Numbers(node, facts)
    if not names[2]:  # the default: no boxes
        return n.done([n.of(np.zeros((0, 3)))])
    score, order = n.add_all("TopK", 2, node.input[1], n.of([boxes]))
    zero = n.constant(np.array(0, np.float32), "number")
    limits = [n.read(names[2], []), n.reshape(names[3], []) if names[3] else zero]
    limits += [n.reshape(names[4], [])] if names[4] else []
    centred = {"centred": 1} if attribute(node, "center_point_box", 0) else {}
    rows, count = n.add_all(SUPPRESS, 2, node.input[0], order, score, *limits, **centred)
    for name, extents in ((rows, (batches * classes * boxes, 3)), (count, (1,))):
        facts.model.proto.graph.value_info.append(onnx.helper.make_tensor_value_info(name, _I64, extents))
    places = n.add("Range", n.of(0), n.reshape(count, []), n.of(1))  # Slice lacks a lowering in set 11
    return n.done([n.add("Gather", rows, places, axis=0)])


RULES: dict[str, Rule] = {
    "Compress": _compress, "NonMaxSuppression": _non_max_suppression, "NonZero": _non_zero, "Unique": _unique,
}  # fmt: skip
