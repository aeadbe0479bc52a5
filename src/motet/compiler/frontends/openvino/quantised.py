"""Fake quantisation."""

from __future__ import annotations

import numpy as np

from motet.compiler.frontends.openvino.operation import OpenvinoOperation
from motet.compiler.frontends.openvino.writer import GraphWriter, Rules, rounded, wide, widened


def _fake_quantize(op: OpenvinoOperation, w: GraphWriter) -> str:
    """round((x − il) / (ih − il) · (levels − 1)) / (levels − 1) · (oh − ol) + ol, for x in [il, ih]."""
    dtype = wide(op.dtype(0))
    steps = w.constant(int(op.attribute("levels")) - 1, dtype)
    value, low, high, below, above = (widened(op, w, place) for place in range(5))
    least, most = w.add("Min", low, high), w.add("Max", low, high)
    clipped = w.add("Max", w.add("Min", value, most), least)
    scale = w.add("Div", steps, w.add("Sub", high, low))
    step = w.add("Round", w.add("Mul", w.add("Sub", clipped, low), scale))
    found = w.add("Add", w.add("Mul", step, w.add("Div", w.add("Sub", above, below), steps)), below)
    same = w.add("Equal", low, high)  # a range of one number: the ends of the result's
    if (ends := op.value(1)) is not None and (others := op.value(2)) is not None and np.all(ends != others):
        return rounded(op, w, found)
    outer = w.add("Where", w.add("LessOrEqual", value, least), below, above)
    return rounded(op, w, w.add("Where", same, outer, found))


RULES: Rules = {"FakeQuantize": _fake_quantize}
