"""Rewrites activations that the torch-mlir wheel lowers wrongly or imprecisely.

- Hardmax before operator set 13, and Sign of NaN.
- HardSwish of float64, whose function in ONNX has 1/6 in float32.
- Selu before operator set 18, whose constants the wheel rounds.
- Softplus of float64, for which the wheel returns the operand above 20, as PyTorch does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, Rule

if TYPE_CHECKING:
    import onnx


def _hardmax(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """Hardmax before operator set 13: over all axes from `axis` on, flattened."""
    axis, rank = attribute(node, "axis", 1), facts.rank(node.input[0])
    if facts.version >= 13 or rank is None or axis % rank == rank - 1:
        return None
    w = NodeWriter(node, facts)
    flat = w.add("Flatten", node.input[0], axis=axis % rank)
    return w.done([w.like(w.add("Hardmax", flat, axis=1), node.input[0])])


def _selu(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """Selu before operator set 18, where it became a function: the wheel rounds its constants to five digits."""
    import onnx

    wide = facts.types.get(node.input[0]) in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)
    if facts.version >= 18 or not wide:
        return None
    w = NodeWriter(node, facts)
    gamma = attribute(node, "gamma", 1.05070102214813232421875)
    bent = w.add("Elu", node.input[0], alpha=attribute(node, "alpha", 1.67326319217681884765625))
    return w.done([w.add("Mul", bent, w.constant(np.array(gamma, facts.dtype(node.input[0])), "gamma"))])


def _sign(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """Sign that propagates NaN; the wheel returns 0."""
    if facts.version < 13 or node.input[0] not in facts.types or facts.dtype(node.input[0]).kind in "iu":
        return None
    w = NodeWriter(node, facts)
    value = node.input[0]
    return w.done([w.add("Where", w.add("IsNaN", value), value, w.add("Sign", value))])


def _softplus(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """max(x, 0) + log(1 + exp(-|x|)), which does not overflow. The term that the wheel drops above 20 is at most 2e-9,
    below float32's precision but not float64's."""
    import onnx

    if facts.types.get(node.input[0]) != onnx.TensorProto.DOUBLE:
        return None
    w, x = NodeWriter(node, facts), node.input[0]
    return w.done([w.add("Add", w.add("Relu", x), w.add("Softplus", w.add("Neg", w.add("Abs", x))))])


def _hard_swish(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    import onnx

    x = node.input[0]
    if facts.types.get(x) != onnx.TensorProto.DOUBLE:
        return None
    w = NodeWriter(node, facts)
    zero, half, one, six = (w.constant(np.array(number), "number") for number in (0.0, 0.5, 1.0, 6.0))
    return w.done([w.add("Mul", x, w.add("Clip", w.add("Add", w.add("Div", x, six), half), zero, one))])


RULES: dict[str, Rule] = {
    "HardSwish": _hard_swish, "Hardmax": _hardmax, "Selu": _selu, "Sign": _sign, "Softplus": _softplus,
}
