"""Writes operators of very many operands as trees of operators of few.

    y = Sum(x0, …, x99)    →    a = Sum(x0, …, x31); b = Sum(x32, …, x63); …; y = Sum(a, b, c, d)

A group of operands that occurs again is computed once, so that a model that repeats operands needs few nodes. A flat
sum is lowered to a chain as long as its operands; the depth of a tree is the logarithm of their number, and errors of
rounding are smaller. A concatenation becomes a tree only if its operands repeat, because each level of a tree copies
all elements again.

Operands of several shapes are combined in pairs, because the wheel's lowering gives each step of a chain
the type of the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, Rule

if TYPE_CHECKING:
    import onnx

_GROUP = 32  # operands of a node of a tree
_MEAN_OPERANDS = 2  # that the wheel's lowering of Mean takes in every model


def _grouped(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """Sum, Max or Min."""
    group = _group(node, facts)
    if len(node.input) <= group:
        return None
    w = NodeWriter(node, facts)
    return w.done([_tree(w, node.op_type, node.input, group)])


def _mean(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """The quotient of the sum and the number of operands, both in float32 if the operands are narrower."""
    import onnx

    kind = facts.types.get(node.input[0])
    if len(node.input) <= _MEAN_OPERANDS or not kind:
        return None
    w, dtype = NodeWriter(node, facts), facts.dtype(node.input[0])
    narrow = dtype.itemsize < 4
    wide = {name: w.cast(name, onnx.TensorProto.FLOAT) if narrow else name for name in dict.fromkeys(node.input)}
    total = _tree(w, "Sum", [wide[name] for name in node.input], _group(node, facts))
    count = w.constant(np.array(len(node.input), np.float32 if narrow else dtype), "count")
    mean = w.add("Div", total, count)
    return w.done([w.cast(mean, kind) if narrow else mean])


def _group(node: onnx.NodeProto, facts: ModelFacts) -> int:
    """The number of operands for each node of the tree that replaces an element-wise operator."""
    return 2 if len({str(facts.extents(name)) for name in node.input}) > 1 else _GROUP


def _concatenated(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    if len(node.input) <= _GROUP:
        return None
    w = NodeWriter(node, facts)
    made = _tree(w, "Concat", node.input, _GROUP, axis=attribute(node, "axis", 1))
    return w.done([made]) if 2 * sum(len(each.input) for each in w.nodes) <= len(node.input) else None


def _tree(w: NodeWriter, op: str, operands: Sequence[str], size: int, **attributes: Any) -> str:
    """`op` of all operands, by nodes of at most `size` operands; equal groups share a node."""
    values, made = list(operands), dict[tuple[str, ...], str]()
    while len(values) > 1:
        groups = [tuple(values[first : first + size]) for first in range(0, len(values), size)]
        for group in dict.fromkeys(groups):
            made[group] = made.get(group) or (group[0] if len(group) == 1 else w.add(op, *group, **attributes))
        values = [made[group] for group in groups]
    return values[0]


RULES: dict[str, Rule] = {
    **dict.fromkeys(("Max", "Min", "Sum"), _grouped), "Mean": _mean, "Concat": _concatenated,
}  # fmt: skip
