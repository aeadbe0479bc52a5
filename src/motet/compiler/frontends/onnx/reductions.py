"""Rewrites reductions whose lowering in the torch-mlir wheel overflows, is wrong or crashes.

- ReduceLogSumExp overflows: the maximum is subtracted before and added after.
- ReduceLogSum along axes of extent 1 crashes.
- ReduceL1 of unsigned integers treats them as signed.
- ReduceL2 of float64 is computed in float32, and also crashes. On integers, these are computed in float64.
- ReduceMean of integers has no lowering.
- Some crash along an axis that is given twice.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx import reduced_products
from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import Chain, ModelFacts, NodeWriter, Rule

if TYPE_CHECKING:
    import onnx


def _reduced(w: NodeWriter, op: str, value: str, keep: bool) -> str:
    """`op` of `value` along the axes of the node."""
    node = w.node
    more = {"keepdims": int(keep)}
    if attribute(node, "noop_with_empty_axes", 0):
        more["noop_with_empty_axes"] = 1
    axes = attribute(node, "axes", None)
    if axes is not None:
        return w.over(op, value, axes, **more)
    return w.add(op, value, *(name for name in node.input[1:] if name and w.facts.shapes.get(name) != (0,)), **more)


def _asks_for_axes(node: onnx.NodeProto, facts: ModelFacts) -> bool:
    """Whether the axes are dynamic."""
    name = node.input[1] if len(node.input) > 1 else ""
    return bool(name) and name not in facts.model.constants and facts.shapes.get(name) != (0,)


def _operand(w: NodeWriter) -> str | None:
    """The operand, integers as float64; None if its type is unknown or the axes are dynamic."""
    import onnx

    value = w.node.input[0]
    if value not in w.facts.types or _asks_for_axes(w.node, w.facts):
        return None
    return w.cast(value, onnx.TensorProto.DOUBLE) if w.facts.dtype(value).kind in "iu" else value


def _done(w: NodeWriter, value: str) -> list[onnx.NodeProto]:
    """`value` as the result, converted to an integer if the node's result is one."""
    source = w.node.input[0]
    return w.done([w.cast(value, w.facts.types[source]) if w.facts.dtype(source).kind in "iu" else value])


def _log_sum(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    w = NodeWriter(node, facts)
    if (value := _operand(w)) is None:
        return None
    return _done(w, w.add("Log", _reduced(w, "ReduceSum", value, bool(attribute(node, "keepdims", 1)))))


def _log_sum_exp(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    w = NodeWriter(node, facts)
    if (value := _operand(w)) is None:
        return None
    own = facts.dtype(node.input[0])
    kind = np.dtype(np.float64) if own.kind in "iu" else own
    most = _reduced(w, "ReduceMax", value, True)
    finite = w.add("Less", w.add("Abs", most), w.constant(np.array(np.inf, kind), "infinity"))
    most = w.add("Where", finite, most, w.constant(np.zeros((), kind), "zero"))
    powers = w.add("Exp", w.add("Sub", value, most))
    keep = bool(attribute(node, "keepdims", 1))
    total = w.add("Log", _reduced(w, "ReduceSum", powers, keep))
    return _done(w, w.add("Add", total, most if keep else _reduced(w, "ReduceMax", most, keep)))


def _reduce_l2(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    w = NodeWriter(node, facts)
    if (value := _operand(w)) is None:
        return None
    return _done(w, w.add("Sqrt", _reduced(w, "ReduceSumSquare", value, bool(attribute(node, "keepdims", 1)))))


def _reduce_l1(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """ReduceL1 of unsigned integers: their sum, since the wheel takes absolute values as of signed integers."""
    if node.input[0] not in facts.types or facts.dtype(node.input[0]).kind != "u":
        return None
    axes = list(node.input[1:])
    given = attribute(node, "axes", None)
    moved = given is not None and facts.version >= 13  # since 13 the axes of ReduceSum are an input
    if moved:
        axes = [facts.constant(node, "axes", np.array(given, np.int64))]
    chain = Chain(node).then("ReduceSum", *axes)
    chain.nodes[0].attribute.extend(item for item in node.attribute if item.name != "axes" or not moved)
    return chain.done()


def _reduce_mean(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """ReduceMean of integers: their sum, divided by the count."""
    shape, result = facts.shapes.get(node.input[0]), facts.shapes.get(node.output[0])
    if shape is None or result is None or node.input[0] not in facts.types or 0 in (*shape, *result):
        return None
    if facts.dtype(node.input[0]).kind not in "iu":
        return None
    count = np.array(math.prod(shape) // math.prod(result), facts.dtype(node.input[0]))
    chain = Chain(node).then("ReduceSum", *node.input[1:])
    chain.nodes[0].attribute.extend(node.attribute)
    return chain.then("Div", facts.constant(node, "count", count)).done()


def _each_axis_once(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """Gives each of the axes once, as in ONNX Runtime, if one is given twice."""
    rank, given = facts.rank(node.input[0]), attribute(node, "axes", None)
    axes = facts.model.constants.get(node.input[1]) if len(node.input) > 1 else np.array(given or [], np.int64)
    if not rank or axes is None or len(once := np.unique(axes % rank)) == axes.size:
        return None
    w = NodeWriter(node, facts)
    return w.done([w.over(node.op_type, node.input[0], once.tolist(), keepdims=attribute(node, "keepdims", 1))])


RULES: dict[str, Rule] = {
    **reduced_products.RULES,
    "ReduceL1": _reduce_l1, "ReduceL2": _reduce_l2, "ReduceLogSum": _log_sum, "ReduceLogSumExp": _log_sum_exp,
    "ReduceMean": _reduce_mean,
}  # fmt: skip
BEFORE: dict[str, Rule] = dict.fromkeys((*RULES, "ReduceMax", "ReduceMin"), _each_axis_once)
