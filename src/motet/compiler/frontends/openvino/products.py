"""Products of matrices, and attention."""

from __future__ import annotations

import numpy as np

from motet.compiler.frontends.openvino.operation import OpenvinoOperation
from motet.compiler.frontends.openvino.writer import GraphWriter, Rules


def _matmul(op: OpenvinoOperation, w: GraphWriter) -> str:
    operands: list[str] = []
    for place, flag in enumerate(("transpose_a", "transpose_b")):
        value, rank = op.inputs[place], op.rank(place)
        if op.attribute(flag, False) and rank > 1:
            value = w.transpose(value, [*range(rank - 2), rank - 1, rank - 2])
        operands.append(value)
    return w.add("MatMul", *operands)


def _einsum(op: OpenvinoOperation, w: GraphWriter) -> str:
    return w.add("Einsum", *op.inputs, equation=str(op.attribute("equation")))


def _attention(op: OpenvinoOperation, w: GraphWriter) -> str:
    """softmax(scale · q·kᵀ + mask)·v, with a mask of numbers or booleans; with `causal` a query attends to the keys up
    to its own place."""
    query, key, value = op.inputs[:3]
    rank, dtype = op.rank(1), op.dtype(0)
    turned = w.transpose(key, [*range(rank - 2), rank - 1, rank - 2])
    scores = w.add("Mul", w.add("MatMul", query, turned), _scale(op, w))
    lowest = w.constant(-np.inf, dtype)
    if op.attribute("causal", False):
        scores = w.add("Where", _not_after(w, query, key), scores, lowest)
    elif op.has(3):
        mask = op.inputs[3]
        if op.dtype(3).kind == "b":
            scores = w.add("Where", mask, scores, lowest)
        else:
            scores = w.add("Add", scores, mask if op.dtype(3) == dtype else w.cast(mask, dtype))
    if op.has(5):
        return w.add("MatMul", _with_sink(op, w, scores), value)
    return w.add("MatMul", w.add("Softmax", scores, axis=-1), value)


def _scale(op: OpenvinoOperation, w: GraphWriter) -> str:
    """The factor given, or 1/√E for queries of E elements."""
    if op.has(4):
        return op.inputs[4]
    width = (op.extents(0) or [None])[-1]
    if width is not None:
        return w.constant(width**-0.5, op.dtype(0))
    extent = w.cast(w.squeeze(w.extent(op.inputs[0], -1), 0), op.dtype(0))
    return w.add("Reciprocal", w.add("Sqrt", extent))


def _not_after(w: GraphWriter, query: str, key: str) -> str:
    """Which keys [S] a query [L] attends to."""
    rows, columns = (
        w.add("Range", w.ints(0), w.squeeze(w.extent(each, -2), 0), w.ints(1)) for each in (query, key)
    )
    return w.add("LessOrEqual", w.unsqueeze(columns, 0), w.unsqueeze(rows, 1))


def _with_sink(op: OpenvinoOperation, w: GraphWriter, scores: str) -> str:
    """Softmax of the scores and one more, which is then left out."""
    shape = w.add("Concat", w.add("Shape", scores, end=-1), w.ints([1]), axis=0)
    joined = w.add("Concat", scores, w.add("Expand", op.inputs[5], shape), axis=-1)
    return w.slice(w.add("Softmax", joined, axis=-1), -1, 0, -1)


RULES: Rules = {"MatMul": _matmul, "Einsum": _einsum, "ScaledDotProductAttention": _attention}
