"""Activations."""

from __future__ import annotations

import math

import numpy as np

from motet.compiler.frontends.openvino.operation import OpenvinoOperation
from motet.compiler.frontends.openvino.writer import GraphWriter, Rule, Rules

_SAME = {"Relu": "Relu", "Sigmoid": "Sigmoid", "SoftPlus": "Softplus", "SoftSign": "Softsign", "Mish": "Mish",
         "HSwish": "HardSwish"}


def _same(name: str) -> Rule:
    return lambda op, w: w.add(name, op.inputs[0])


def _clamp(op: OpenvinoOperation, w: GraphWriter) -> str:
    low, high, dtype = float(op.attribute("min")), float(op.attribute("max")), op.dtype(0)
    if dtype.kind in "iu":
        ends = np.iinfo(dtype)
        low, high = (min(max(bound, ends.min), ends.max) for bound in (math.ceil(low), math.floor(high)))
    return w.add("Clip", op.inputs[0], w.constant(low, dtype), w.constant(high, dtype))


def _elu(op: OpenvinoOperation, w: GraphWriter) -> str:
    return w.add("Elu", op.inputs[0], alpha=float(op.attribute("alpha", 1.0)))


def _selu(op: OpenvinoOperation, w: GraphWriter) -> str:
    """λ·x for x > 0, else λ·α·(eˣ − 1)."""
    zero, one = w.constant(0, op.dtype(0)), w.constant(1, op.dtype(0))
    x, alpha, scale = op.inputs
    bent = w.add("Mul", alpha, w.add("Sub", w.add("Exp", w.add("Min", x, zero)), one))
    return w.add("Mul", scale, w.add("Where", w.add("Greater", x, zero), x, bent))


def _swish(op: OpenvinoOperation, w: GraphWriter) -> str:
    x = op.inputs[0]
    scaled = w.add("Mul", x, op.inputs[1]) if op.has(1) else x
    return w.add("Mul", x, w.add("Sigmoid", scaled))


def _hard_sigmoid(op: OpenvinoOperation, w: GraphWriter) -> str:
    """max(0, min(1, α·x + β))."""
    x, alpha, beta = op.inputs
    zero, one = w.constant(0, op.dtype(0)), w.constant(1, op.dtype(0))
    return w.add("Clip", w.add("Add", w.add("Mul", x, alpha), beta), zero, one)


def _h_sigmoid(op: OpenvinoOperation, w: GraphWriter) -> str:
    """min(max(x + 3, 0), 6) / 6."""
    numbers = [w.constant(number, op.dtype(0)) for number in (3, 0, 6)]
    clipped = w.add("Clip", w.add("Add", op.inputs[0], numbers[0]), numbers[1], numbers[2])
    return w.add("Div", clipped, numbers[2])


def _gelu(op: OpenvinoOperation, w: GraphWriter) -> str:
    tanh = str(op.attribute("approximation_mode", "ERF")).upper() == "TANH"
    return w.add("Gelu", op.inputs[0], approximate="tanh" if tanh else "none")


def _prelu(op: OpenvinoOperation, w: GraphWriter) -> str:
    """A vector of slopes belongs to axis 1."""
    slope, rank = op.inputs[1], op.rank(0)
    extents = op.extents(1) or []
    if len(extents) == 1 and rank > 2 and extents[0] != 1:
        slope = w.unsqueeze(slope, *range(1, rank - 1))
    return w.add("PRelu", op.inputs[0], slope)


RULES: Rules = {
    **{kind: _same(name) for kind, name in _SAME.items()},
    "Clamp": _clamp, "Elu": _elu, "Selu": _selu, "Swish": _swish, "HardSigmoid": _hard_sigmoid, "HSigmoid": _h_sigmoid,
    "Gelu": _gelu, "PRelu": _prelu,
}
