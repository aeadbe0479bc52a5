"""Normalisations. Short floats are normalised in f32 and rounded once."""

from __future__ import annotations

import numpy as np

from motet.compiler.frontends.openvino.operation import OpenvinoOperation
from motet.compiler.frontends.openvino.writer import GraphWriter, Rules, rounded, wide, widened


def _epsilon(op: OpenvinoOperation, w: GraphWriter, name: str = "eps") -> str:
    return w.constant(float(op.attribute(name)), wide(op.dtype(0)))


def _mvn(op: OpenvinoOperation, w: GraphWriter) -> str:
    """(x − mean) / √(variance + eps), or / (√variance + eps); operator set 2 has its axes in attributes."""
    rank = op.rank(0)
    if op.has(1):
        axes = op.axes(1, rank, "reduction axes")
    else:
        across = bool(op.attribute("across_channels", True))
        axes = [int(each) % rank for each in op.attribute("reduction_axes") or range(1 if across else 2, rank)]
    value = widened(op, w)
    centred = w.add("Sub", value, w.reduce("ReduceMean", value, axes))
    if not op.attribute("normalize_variance", True):
        return rounded(op, w, centred)
    variance = w.reduce("ReduceMean", w.add("Mul", centred, centred), axes)
    inside = not op.has(1) or str(op.attribute("eps_mode", "inside_sqrt")).lower() == "inside_sqrt"
    if inside:
        deviation = w.add("Sqrt", w.add("Add", variance, _epsilon(op, w)))
    else:
        deviation = w.add("Add", w.add("Sqrt", variance), _epsilon(op, w))
    return rounded(op, w, w.add("Div", centred, deviation))


def _normalize_l2(op: OpenvinoOperation, w: GraphWriter) -> str:
    axes, value = op.axes(1, op.rank(0)), widened(op, w)
    total = w.add("Mul", value, value)
    if axes:
        total = w.reduce("ReduceSum", total, axes)
    bounded = "Max" if str(op.attribute("eps_mode", "add")).lower() == "max" else "Add"
    return rounded(op, w, w.add("Div", value, w.add("Sqrt", w.add(bounded, total, _epsilon(op, w)))))


def _lrn(op: OpenvinoOperation, w: GraphWriter) -> str:
    """x / (bias + alpha / sizeᵏ · s)^beta, where s is the sum of squares in a window of `size` along k axes."""
    axes, rank = op.axes(1, op.rank(0)), op.rank(0)
    size = int(op.attribute("size"))
    alpha, beta, bias = (float(op.attribute(name)) for name in ("alpha", "beta", "bias"))
    if axes == [1] and rank > 2:
        return w.add("LRN", op.inputs[0], alpha=alpha, beta=beta, bias=bias, size=size)
    value, dtype = widened(op, w), wide(op.dtype(0))
    total = w.add("Mul", value, value)
    for axis in axes:
        pads = [0] * (2 * rank)
        pads[axis], pads[rank + axis] = size // 2, size - 1 - size // 2
        padded = w.add("Pad", total, w.ints(pads), w.constant(0, dtype))
        windows = [w.slice(padded, axis, at, at - size + 1) if at < size - 1 else w.slice(padded, axis, at)
                   for at in range(size)]
        total = w.joined("Add", windows)
    scaled = w.add("Mul", total, w.constant(alpha / float(size) ** len(axes), dtype))
    power = w.add("Pow", w.add("Add", scaled, w.constant(bias, dtype)), w.constant(beta, dtype))
    return rounded(op, w, w.add("Div", value, power))


def _batch_norm(op: OpenvinoOperation, w: GraphWriter) -> str:
    """Operator set 1 has the data in the third place."""
    order = (2, 0, 1, 3, 4) if op.version == 1 else range(5)
    inputs = [op.inputs[place] for place in order]
    return w.add("BatchNormalization", *inputs, epsilon=float(op.attribute("epsilon")))


def _group_norm(op: OpenvinoOperation, w: GraphWriter) -> str:
    return w.add("GroupNormalization", *op.inputs[:3], num_groups=int(op.attribute("num_groups")),
                 epsilon=float(op.attribute("epsilon")))


def _rms(op: OpenvinoOperation, w: GraphWriter) -> str:
    """x / √(mean(x²) + epsilon) · scale, along the last axis."""
    value = widened(op, w)
    mean = w.reduce("ReduceMean", w.add("Mul", value, value), [op.rank(0) - 1])
    found = w.add("Div", value, w.add("Sqrt", w.add("Add", mean, _epsilon(op, w, "epsilon"))))
    if op.has(1):
        found = w.add("Mul", found, w.cast(op.inputs[1], np.float32) if op.dtype(1) != wide(op.dtype(0))
                      else op.inputs[1])
    return found if op.result_dtype() == wide(op.dtype(0)) else w.cast(found, op.result_dtype())


def _grn(op: OpenvinoOperation, w: GraphWriter) -> str:
    """x / √(Σ x² + bias), along axis 1."""
    value = widened(op, w)
    total = w.reduce("ReduceSum", w.add("Mul", value, value), [1])
    bias = w.constant(float(op.attribute("bias")), wide(op.dtype(0)))
    return rounded(op, w, w.add("Div", value, w.add("Sqrt", w.add("Add", total, bias))))


RULES: Rules = {
    "MVN": _mvn, "NormalizeL2": _normalize_l2, "LRN": _lrn, "BatchNormInference": _batch_norm,
    "GroupNormalization": _group_norm, "RMS": _rms, "RMSNorm": _rms, "GRN": _grn,
}
