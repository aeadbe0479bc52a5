"""Writes CumProd, which the torch-mlir wheel cannot import from ONNX, as the scan of its dialect `torch`.

    y = CumProd(x, 0, exclusive=1, reverse=1)   →   y = reversed(CumProd(Concat([1], reversed(x)[:-1]), 0))

    %1 = torch.operator "onnx.CumProd"(%0, %axis)   →   %1 = torch.aten.cumprod %0, 0, none

16-bit floats are multiplied in float32, integers in int64, whose low bits equal the narrower products. If the axis is
dynamic, a scan along each axis is computed, and one of them selected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.operator_node import OperatorNode
from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, Rule
from motet.compiler.frontends.torch.operands import new_integer, operators
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import create

if TYPE_CHECKING:
    import onnx

_AXIS = "scanned_axis"


def _cum_prod(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    import onnx

    rank, kind = facts.rank(node.input[0]), facts.types.get(node.input[0])
    if rank is None or kind is None or attribute(node, _AXIS, None) is not None:
        return None
    w = NodeWriter(node, facts)
    whole = facts.dtype(node.input[0]).kind in "iu"
    wide = onnx.TensorProto.INT64 if whole else onnx.TensorProto.FLOAT
    value = node.input[0] if kind == onnx.TensorProto.DOUBLE else w.cast(node.input[0], wide)
    axis = facts.model.constants.get(node.input[1])
    if axis is not None:
        return w.done([w.cast(_products(w, value, int(axis.item()) % rank), kind)])
    found = value
    # An invalid axis is out of bounds in this constant, which the call reports.
    given = w.add("Gather", w.constant(np.arange(rank), "axes"), w.reshape(node.input[1], []))
    for number in range(rank):
        chosen = w.add("Equal", given, w.constant(np.array(number), "axis"))
        found = w.add("Where", chosen, _products(w, value, number), found)
    return w.done([w.cast(found, kind)])


def _products(w: NodeWriter, value: str, axis: int) -> str:
    """The cumulative products of `value` along `axis`, with the attributes of the node."""
    reverse, exclusive = attribute(w.node, "reverse", 0), attribute(w.node, "exclusive", 0)
    value = _reversed(w, value, axis) if reverse else value
    if exclusive:
        first = w.slice(value, axis, 0, 1)  # empty if the axis is empty
        ones = w.add("CastLike", w.add("Not", w.add("Less", first, first)), first)
        value = w.add("Concat", ones, w.slice(value, axis, 0, -1), axis=axis)
    value = w.add("CumProd", value, w.constant(np.array(axis), "axis"), **{_AXIS: axis})
    return _reversed(w, value, axis) if reverse else value


def _reversed(w: NodeWriter, value: str, axis: int) -> str:
    extents = w.facts.extents(w.node.input[0])
    if extents is None or extents[axis] is None:
        return w.reverse(value, axis)
    return w.slice(value, axis, -1, np.iinfo(np.int64).min, -1)


def settle_products(module: ir.Module) -> None:
    """Converts the CumProd nodes that `RULES` made to the dialect `torch`, in place."""
    for op in operators(module, "onnx.CumProd"):
        with op.context, op.location, ir.InsertionPoint(op):
            axis = new_integer(OperatorNode(op).integer(_AXIS, 0))
            none = create("torch.constant.none", ir.Type.parse("!torch.none"), [])
            made = create("torch.aten.cumprod", op.results[0].type, [op.operands[0], axis, none])
        op.results[0].replace_all_uses_with(made)
        op.erase()


RULES: dict[str, Rule] = {"CumProd": _cum_prod}
