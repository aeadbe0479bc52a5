"""Extents, ranges, and tensors made from them."""

from __future__ import annotations

import numpy as np

from motet.compiler.frontends.openvino.operation import OpenvinoOperation
from motet.compiler.frontends.openvino.writer import GraphWriter, Rules


def _shape_of(op: OpenvinoOperation, w: GraphWriter) -> str:
    extents = op.extents(0)
    if extents is not None and None not in extents:
        return w.constant(np.array(extents), op.result_dtype())
    shape = w.add("Shape", op.inputs[0])
    return shape if op.result_dtype() == np.int64 else w.cast(shape, op.result_dtype())


def _range(op: OpenvinoOperation, w: GraphWriter) -> str:
    dtype = op.result_dtype()
    scalars: list[str] = []
    for place, name in enumerate(op.inputs):
        scalar = name if op.extents(place) == [] else w.reshape(name, [])
        scalars.append(scalar if op.dtype(place) == dtype else w.cast(scalar, dtype))
    if dtype.name in ("float32", "float64", "int16", "int32", "int64"):
        return w.add("Range", *scalars)
    middle = np.dtype(np.float32 if dtype.name in ("float16", "bfloat16") else np.int64)
    return w.cast(w.add("Range", *(w.cast(each, middle) for each in scalars)), dtype)


def _one_hot(op: OpenvinoOperation, w: GraphWriter) -> str:
    """Compares indices with the places along the new axis: an index outside is hot nowhere."""
    depth = int(op.known(1, "depth").reshape(()))
    rank = op.rank(0) + 1
    axis = int(op.attribute("axis", -1)) % rank
    places = np.arange(depth).reshape([-1 if each == axis else 1 for each in range(rank)])
    indices = w.unsqueeze(op.inputs[0], axis)
    if str(op.attribute("negative_indices_mode", "ignore_negative")).lower() == "normalize":
        below = w.add("Less", indices, w.constant(0, op.dtype(0)))
        indices = w.add("Where", below, w.add("Add", indices, w.constant(depth, op.dtype(0))), indices)
    hot = w.add("Equal", indices, w.constant(places, op.dtype(0)))
    return w.add("Where", hot, op.inputs[2], op.inputs[3])


def _eye(op: OpenvinoOperation, w: GraphWriter) -> str:
    rows, columns, diagonal = (int(op.known(place, "extents").reshape(())) for place in range(3))
    batch = op.numbers(3, "extents") if op.has(3) else []
    one = np.eye(rows, columns, diagonal)
    return w.constant(np.broadcast_to(one, [*batch, rows, columns]), op.result_dtype())


def _non_zero(op: OpenvinoOperation, w: GraphWriter) -> str:
    found = w.add("NonZero", op.inputs[0])
    return found if op.result_dtype() == np.int64 else w.cast(found, op.result_dtype())


RULES: Rules = {
    "ShapeOf": _shape_of, "Range": _range, "OneHot": _one_hot, "Eye": _eye, "NonZero": _non_zero,
}
