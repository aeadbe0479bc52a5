"""Rewrites normalisations whose lowering is imprecise, slow or wrong.

MeanVarianceNormalization and GroupNormalization are specified with E[x²] − E[x]², which cancels if the mean is large
compared with the deviation; here the variance is the mean of squared deviations. The torch-mlir wheel computes the
variance of GroupNormalization of images in f64, and InstanceNormalization and GroupNormalization of dynamic extents
wrongly; they are rewritten likewise. LRN over an even number of channels sums the wrong window. LpNormalization divides
zeros by their norm of 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, Rule

if TYPE_CHECKING:
    import onnx

_TO_THE_END = np.iinfo(np.int64).max


def _number(w: NodeWriter, value: float) -> str:
    """A constant of the type of the computation."""
    import onnx

    double = w.facts.types[w.node.input[0]] == onnx.TensorProto.DOUBLE
    return w.constant(np.array(value, np.float64 if double else np.float32), "number")


def _deviations(w: NodeWriter, value: str, axes: list[int]) -> tuple[str, str]:
    """Deviations from the mean over `axes`, and the mean of their squares."""
    deviations = w.add("Sub", value, w.over("ReduceMean", value, axes, keepdims=1))
    return deviations, w.over("ReduceMean", w.add("Mul", deviations, deviations), axes, keepdims=1)


def _group_normalization(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    rank = facts.rank(node.input[0])
    if rank is None or node.input[0] not in facts.types:
        return None
    w = NodeWriter(node, facts)
    value, kind = w.widened(node.input[0]), facts.types[node.input[0]]
    grouped = w.reshape(value, [0, attribute(node, "num_groups", 1), -1])
    deviations, variance = _deviations(w, grouped, [2])
    root = w.add("Sqrt", w.add("Add", variance, _number(w, attribute(node, "epsilon", 1e-5))))
    unit = w.add("Div", deviations, root)
    of_channels = facts.version >= 21  # before, a scale for each group
    if of_channels:
        unit = w.like(unit, node.input[0])
    places = [-1, *[1] * (rank - 2)] if of_channels else [-1, 1]
    scale, shift = (w.reshape(w.widened(name), places) for name in node.input[1:3])
    result = w.add("Add", w.add("Mul", unit, scale), shift)
    return w.done([w.cast(result if of_channels else w.like(result, node.input[0]), kind)])


def _instance_normalization(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    extents = facts.extents(node.input[0])
    if extents is None or None not in extents[2:] or node.input[0] not in facts.types:
        return None
    w = NodeWriter(node, facts)
    value, kind = w.widened(node.input[0]), facts.types[node.input[0]]
    deviations, variance = _deviations(w, value, list(range(2, len(extents))))
    root = w.add("Sqrt", w.add("Add", variance, _number(w, attribute(node, "epsilon", 1e-5))))
    places = [-1, *[1] * (len(extents) - 2)]
    scale, shift = (w.reshape(w.widened(name), places) for name in node.input[1:3])
    return w.done([w.cast(w.add("Add", w.add("Mul", w.add("Div", deviations, root), scale), shift), kind)])


def _lp_normalization(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """LpNormalization; a row of zeros along the axis stays zero."""
    if node.input[0] not in facts.types:
        return None
    w, value = NodeWriter(node, facts), node.input[0]
    power = attribute(node, "p", 2)
    terms = w.add("Abs", value) if power == 1 else w.add("Mul", value, value)
    norm = w.over("ReduceSum", terms, [attribute(node, "axis", -1)], keepdims=1)
    if power != 1:
        norm = w.add("Sqrt", norm)
    none = w.add("Equal", norm, _number(w, 0.0))
    divisor = w.add("Where", none, _number(w, 1.0), norm)
    return w.done([w.add("Div", value, divisor)])


def _mean_variance(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    if node.input[0] not in facts.types:
        return None
    w = NodeWriter(node, facts)
    value, kind = w.widened(node.input[0]), facts.types[node.input[0]]
    deviations, variance = _deviations(w, value, list(attribute(node, "axes", [0, 2, 3])))
    root = w.add("Add", w.add("Sqrt", variance), _number(w, 1e-9))
    return w.done([w.cast(w.add("Div", deviations, root), kind)])


def _local_response(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    size, rank = attribute(node, "size", 1), facts.rank(node.input[0])
    if size % 2 or rank is None or node.input[0] not in facts.types:
        return None
    w = NodeWriter(node, facts)
    value, kind = w.widened(node.input[0]), facts.types[node.input[0]]
    around = np.zeros((2, rank), np.int64)
    around[:, 1] = (size - 1) // 2, size // 2
    squares = w.add("Pad", w.add("Mul", value, value), w.constant(around.reshape(-1), "pads"))
    total = w.slice(squares, 1, 0, 1 - size)
    for start in range(1, size):
        stop = start + 1 - size
        total = w.add("Add", total, w.slice(squares, 1, start, stop or _TO_THE_END))
    scaled = w.add("Mul", total, _number(w, attribute(node, "alpha", 1e-4) / size))
    base = w.add("Add", scaled, _number(w, attribute(node, "bias", 1.0)))
    return w.done([w.cast(w.add("Div", value, w.add("Pow", base, _number(w, attribute(node, "beta", 0.75)))), kind)])


RULES: dict[str, Rule] = {
    "GroupNormalization": _group_normalization,
    "InstanceNormalization": _instance_normalization,
    "LRN": _local_response,
    "LpNormalization": _lp_normalization,
    "MeanVarianceNormalization": _mean_variance,
}
