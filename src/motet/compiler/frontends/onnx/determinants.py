"""Writes Det as Gaussian elimination with partial pivoting; the torch-mlir wheel's lowering does not pivot.

In each step, the row whose first element is largest in magnitude is swapped with the first one, and multiples of it are
subtracted from the others. The determinant is the product of the pivots, negated for an odd number of swaps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, Rule

if TYPE_CHECKING:
    import onnx

_LARGEST = 32  # rows; each is a step


def _determinant(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    import onnx

    extents, kind = facts.extents(node.input[0]), facts.types.get(node.input[0])
    size = (extents or [None])[-1]
    if extents is not None and len(extents) > 1 and size is None and extents[-2] is None:
        return None  # the wheel's lowering checks in the call whether it needs to pivot, and refuses then
    if extents is None or len(extents) < 2 or size is None or size > _LARGEST or kind is None or 0 in extents:
        raise facts.model.error(
            f"node {node.name!r}: Det is supported for matrices of at most {_LARGEST} rows, whose number is known when "
            f"compiling; its operand has extents {extents}"
        )
    w = NodeWriter(node, facts)
    double = kind == onnx.TensorProto.DOUBLE
    dtype = np.dtype(np.float64 if double else np.float32)
    rest = w.reshape(node.input[0] if double else w.cast(node.input[0], onnx.TensorProto.FLOAT), [-1, size, size])
    product = ""
    for step in range(size):
        pivot, rest = _eliminated(w, rest, size - step, dtype)
        product = w.add("Mul", product, pivot) if product else pivot
    batch = extents[:-2]
    if batch.count(None) > 1:
        lead = w.slice(w.add("Shape", node.input[0]), 0, 0, len(batch))
        product = w.add("Reshape", product, lead)
    else:
        product = w.reshape(product, [-1 if extent is None else extent for extent in batch])
    return w.done([w.cast(product, kind)])


def _eliminated(w: NodeWriter, matrices: str, size: int, dtype: np.dtype[np.floating]) -> tuple[str, str]:
    """The pivots of `matrices` ([batch, size, size]), [batch, 1, 1], negated where rows are swapped, and the remaining
    submatrices."""
    if size == 1:
        return matrices, ""
    number = [w.constant(np.array(value, dtype), "number") for value in (0, 1, -1)]
    column = w.slice(matrices, 2, 0, 1)
    best = w.add("ArgMax", w.add("Abs", column), axis=1, keepdims=1)
    places = w.constant(np.arange(size).reshape(1, size, 1), "rows")
    chosen = w.add("Equal", places, best)
    row = w.over("ReduceSum", w.add("Where", chosen, matrices, number[0]), [1], keepdims=1)
    others = w.slice(w.add("Where", chosen, w.slice(matrices, 1, 0, 1), matrices), 1, 1, size)
    pivot = w.slice(row, 2, 0, 1)
    none = w.add("Equal", pivot, number[0])
    factors = w.add("Div", w.slice(others, 2, 0, 1), w.add("Where", none, number[1], pivot))
    left = w.add("Sub", w.slice(others, 2, 1, size), w.add("Mul", factors, w.slice(row, 2, 1, size)))
    first = w.add("Equal", best, w.constant(np.array(0), "first"))
    return w.add("Mul", pivot, w.add("Where", first, number[1], number[2])), left


RULES: dict[str, Rule] = {"Det": _determinant}
