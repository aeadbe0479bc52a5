"""Sums and means of rows of a table, in bags of indices."""

from __future__ import annotations

import numpy as np

from motet.compiler.frontends.openvino.operation import OpenvinoOperation
from motet.compiler.frontends.openvino.writer import GraphWriter, Rules


def _packed(op: OpenvinoOperation, w: GraphWriter) -> str:
    """Each row of indices [B, N] is a bag."""
    rows = w.add("Gather", op.inputs[0], op.inputs[1], axis=0)
    if op.has(2):
        trailing = op.rank(0) - 1
        rows = w.add("Mul", rows, w.unsqueeze(op.inputs[2], *range(2, 2 + trailing)) if trailing else op.inputs[2])
    mean = str(op.attribute("reduction", "sum")).lower() == "mean"
    return w.reduce("ReduceMean" if mean else "ReduceSum", rows, [1], keep=False)


def _offsets(op: OpenvinoOperation, w: GraphWriter) -> str:
    """Bag b has the indices from offsets[b] to the next bag's."""
    offsets = w.cast(op.inputs[2], np.int64)
    places = w.add("Range", w.ints(0), w.squeeze(w.extent(op.inputs[1], 0), 0), w.ints(1))
    begun = w.cast(w.add("LessOrEqual", w.unsqueeze(offsets, 1), w.unsqueeze(places, 0)), np.int64)
    number = w.add("Sub", w.reduce("ReduceSum", begun, [0], keep=False), w.ints(1))
    bags = w.add("Range", w.ints(0), w.squeeze(w.extent(op.inputs[2], 0), 0), w.ints(1))
    return _bags(op, w, (number, bags), (3, 4))


def _segments(op: OpenvinoOperation, w: GraphWriter) -> str:
    """Index i belongs to the bag segment_ids[i]."""
    count = w.reshape(w.cast(op.inputs[3], np.int64), [])
    bags = w.add("Range", w.ints(0), count, w.ints(1))
    return _bags(op, w, (w.cast(op.inputs[2], np.int64), bags), (4, 5))


def _bags(op: OpenvinoOperation, w: GraphWriter, segments: tuple[str, str], places: tuple[int, int]) -> str:
    """The product of a matrix [bags, indices] of weights with the rows. `segments` are each index's bag and all bags'
    numbers; `places` those of the operands default index and weights. An empty bag is the default row, or zeros."""
    default, weights = places
    dtype, trailing = op.dtype(0), op.rank(0) - 1
    of_bag = w.add("Equal", w.unsqueeze(segments[1], 1), w.unsqueeze(segments[0], 0))
    matrix = w.cast(of_bag, dtype)
    count = w.reduce("ReduceSum", matrix, [1])
    if op.has(weights):
        matrix = w.add("Mul", matrix, w.unsqueeze(op.inputs[weights], 0))
    if str(op.attribute("reduction", "sum")).lower() == "mean":
        matrix = w.add("Div", matrix, w.add("Max", count, w.constant(1, dtype)))
    found = _weighted(w, matrix, w.add("Gather", op.inputs[0], op.inputs[1], axis=0), trailing)
    if not op.has(default):
        return found
    index = op.value(default)
    if index is not None and int(index.reshape(())) < 0:
        return found
    row = w.unsqueeze(w.add("Gather", op.inputs[0], w.reshape(op.inputs[default], []), axis=0), 0)
    empty = w.add("Equal", w.squeeze(count, 1), w.constant(0, dtype))
    return w.add("Where", w.unsqueeze(empty, *range(1, trailing + 1)) if trailing else empty, row, found)


def _weighted(w: GraphWriter, matrix: str, rows: str, trailing: int) -> str:
    """matrix [B, N] · rows [N, …]."""
    if trailing == 1:
        return w.add("MatMul", matrix, rows)
    names = "cdefgh"[:trailing]
    return w.add("Einsum", matrix, rows, equation=f"ab,b{names}->a{names}")


RULES: Rules = {
    "EmbeddingBagOffsetsSum": _offsets, "EmbeddingBagOffsets": _offsets, "EmbeddingBagPackedSum": _packed,
    "EmbeddingBagPacked": _packed, "EmbeddingSegmentsSum": _segments,
}
