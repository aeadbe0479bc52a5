"""Writes activations whose lowering is wrong or imprecise.

- Hardmax before operator set 13, and Sign of NaN.
- Selu before operator set 18, whose factors the wheel rounds.
- Softplus of float64, which the wheel takes for its operand beyond 20, as PyTorch does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, Rule

if TYPE_CHECKING:
    import onnx


def _hardmax(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """Before operator set 13 it is over all axes from `axis` on together."""
    axis, rank = attribute(node, "axis", 1), facts.rank(node.input[0])
    if facts.version >= 13 or rank is None or axis % rank == rank - 1:
        return None
    w = NodeWriter(node, facts)
    flat = w.add("Flatten", node.input[0], axis=axis % rank)
    return w.done([w.like(w.add("Hardmax", flat, axis=1), node.input[0])])


def _selu(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """Before operator set 18, from which on it is defined by others: the wheel rounds its factors to five digits."""
    import onnx

    wide = facts.types.get(node.input[0]) in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)
    if facts.version >= 18 or not wide:
        return None
    w = NodeWriter(node, facts)
    gamma = attribute(node, "gamma", 1.05070102214813232421875)
    bent = w.add("Elu", node.input[0], alpha=attribute(node, "alpha", 1.67326319217681884765625))
    return w.done([w.add("Mul", bent, w.constant(np.array(gamma, facts.dtype(node.input[0])), "gamma"))])


def _sign(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """NaN stays, where the wheel has 0."""
    if facts.version < 13 or node.input[0] not in facts.types or facts.dtype(node.input[0]).kind in "iu":
        return None
    w = NodeWriter(node, facts)
    value = node.input[0]
    return w.done([w.add("Where", w.add("IsNaN", value), value, w.add("Sign", value))])


def _softplus(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """max(x, 0) + log(1 + exp(-|x|)), which is exact at either side: what is left out beyond 20 is 2e-9, less than
    float32 has digits for."""
    import onnx

    if facts.types.get(node.input[0]) != onnx.TensorProto.DOUBLE:
        return None
    w, x = NodeWriter(node, facts), node.input[0]
    return w.done([w.add("Add", w.add("Relu", x), w.add("Softplus", w.add("Neg", w.add("Abs", x))))])


RULES: dict[str, Rule] = {"Hardmax": _hardmax, "Selu": _selu, "Sign": _sign, "Softplus": _softplus}
