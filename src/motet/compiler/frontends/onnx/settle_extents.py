"""Adds the checks and broadcasts of dynamic extents that ONNX specifies and the torch-mlir wheel omits.

What operators demand of extents is asserted (`operator_demands.py`). Operands that broadcast are expanded
(`broadcasts.py`). Forms that the wheel lowers wrongly are replaced (`extent_lowerings.py`). Indices along an axis of
one element are checked (`single_gathers.py`). Products along dynamic axes become reductions of `linalg`
(`reduced_products.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from motet.compiler.frontends.onnx import broadcasts, extent_lowerings, reduced_products, single_gathers
from motet.compiler.frontends.onnx.bodies import all_nodes
from motet.compiler.frontends.onnx.extent_demands import Counted, Tie
from motet.compiler.frontends.onnx.model import OnnxModel
from motet.compiler.frontends.onnx.operator_demands import IN_TORCH
from motet.compiler.frontends.onnx.tensors import know_operations
from motet.compiler.frontends.onnx.torch_operands import NodeOperands, assert_demand
from motet.compiler.frontends.onnx.writing import symbolic_shapes
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import find_operations

_RULES: dict[str, Callable[[NodeOperands], None]] = (
    broadcasts.RULES | extent_lowerings.RULES | single_gathers.RULES | reduced_products.SETTLED
)


def settle_extents(module: ir.Module, model: OnnxModel) -> None:
    """Rewrites the module, `model` in the dialect `torch` with ONNX operators, in place."""
    named = [(op, ir.StringAttr(op.attributes["name"]).value.removeprefix("onnx."))
             for op in find_operations(module, "torch.operator")]  # fmt: skip
    work = [(op, operator) for op, operator in named if operator in _RULES or operator in IN_TORCH]
    if not work:
        return
    know_operations(module)
    nodes, extents = {node.name: node for node in all_nodes(model.proto.graph)}, symbolic_shapes(model)
    for op, operator in work:
        with op.context, op.location, ir.InsertionPoint(op):
            if (node := NodeOperands.of(op, model, nodes, extents)) is None:
                continue
            if operator in IN_TORCH:
                _assert_demands(node)
            if (rule := _RULES.get(operator)) is not None:
                rule(node)


def _assert_demands(node: NodeOperands) -> None:
    for demand in node.demands():
        if isinstance(demand, Tie) and not demand.at_most and demand.times == 1:
            # Not `either`, for the wheel does not broadcast the axes of ellipses.
            demand = Tie(demand.of, demand.along, demand.number, demand.axis)
        if not isinstance(demand, Counted) or not demand.multiple:  # which the lowering of Reshape asserts
            assert_demand(node, demand)
