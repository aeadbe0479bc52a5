"""Discrete Fourier transforms. The last axis of complex tensors has the real and the imaginary part."""

from __future__ import annotations

import numpy as np

from motet.compiler.frontends.openvino.operation import OpenvinoOperation
from motet.compiler.frontends.openvino.writer import GraphWriter, Rule, Rules


def _transform(inverse: bool) -> Rule:
    def rule(op: OpenvinoOperation, w: GraphWriter) -> str:
        axes = op.axes(1, op.rank(0) - 1)
        sizes = op.numbers(2, "signal size") if op.has(2) else [-1] * len(axes)
        value = op.inputs[0]
        for axis, size in zip(axes, sizes, strict=True):
            value = _along(w, value, axis, size, inverse)
        return value

    return rule


def _along(w: GraphWriter, value: str, axis: int, size: int, inverse: bool, onesided: bool = False) -> str:
    return w.add("DFT", value, "" if size < 0 else w.ints(size), w.ints(axis), inverse=int(inverse),
                 onesided=int(onesided))


def _real(op: OpenvinoOperation, w: GraphWriter) -> str:
    """Of real numbers: half of the frequencies along the last axis, then all along the others."""
    rank = op.rank(0)
    axes = op.axes(1, rank)
    sizes = op.numbers(2, "signal size") if op.has(2) else [-1] * len(axes)
    value = _along(w, w.unsqueeze(op.inputs[0], rank), axes[-1], sizes[-1], False, onesided=True)
    for axis, size in zip(axes[:-1], sizes[:-1], strict=True):
        value = _along(w, value, axis, size, False)
    return value


def _inverse_real(op: OpenvinoOperation, w: GraphWriter) -> str:
    """Completes the frequencies along the last axis by the conjugates of the first ones."""
    rank = op.rank(0) - 1
    axes = op.axes(1, rank)
    sizes = op.numbers(2, "signal size") if op.has(2) else [-1] * len(axes)
    value, last = op.inputs[0], axes[-1]
    for axis, size in zip(axes[:-1], sizes[:-1], strict=True):
        value = _along(w, value, axis, size, True)
    held = op.shape(0)[last]
    size = sizes[-1] if sizes[-1] >= 0 else 2 * (held - 1)
    half = size // 2 + 1
    if held > half:
        value = w.slice(value, last, 0, half)
    elif held < half:
        pads = [0] * (2 * (rank + 1))
        pads[rank + 1 + last] = half - held
        value = w.add("Pad", value, w.ints(pads), w.constant(0, op.dtype(0)))
    mirrored = w.take(value, np.arange(size - half, 0, -1), last)
    conjugates = w.add("Mul", mirrored, w.constant([1, -1], op.dtype(0)))
    whole = w.add("Concat", value, conjugates, axis=last)
    return w.squeeze(w.slice(_along(w, whole, last, -1, True), rank, 0, 1), rank)


RULES: Rules = {
    "DFT": _transform(False), "IDFT": _transform(True), "RDFT": _real, "IRDFT": _inverse_real,
}
