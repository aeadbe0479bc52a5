"""Adds the checks and broadcasts of dynamic extents that ONNX specifies and the torch-mlir wheel omits.

What operators demand of extents is asserted (`operator_demands.py`), and so is what a Where demands whose name has
REQUIRE (`Numbers.require`):

    %1 = "onnx.Shape"(%x)                          %d = tensor.dim %x, 1
    %2 = "onnx.Gather"(%1, 1)                 →    %e = arith.cmpi eq, %d, 9
    %3 = "onnx.Equal"(%2, 9)                       cf.assert %e
    %4 = "onnx.Where"(%3, %y, %y)

Assertions of such conditions become constraints of the function (`scheduling/assertions.py`); those about elements of
tensors are checked in every call.

Operands that broadcast are expanded
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
from motet.compiler.frontends.onnx.tensors import kind_of, know_operations
from motet.compiler.frontends.onnx.torch_operands import NodeOperands, assert_demand, assert_that, builtin, write
from motet.compiler.frontends.onnx.writing import REQUIRE, symbolic_shapes
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import create
from motet.compiler.ir.find import find_operations
from motet.compiler.ir.sizes import constant_index, extent_of
from motet.compiler.ir.source_names import names_of

_WRITTEN = {"Add": "+", "And": "&", "Div": "//", "Equal": "==", "Greater": ">", "Mod": "%", "Mul": "*", "Or": "|"}
_SAME = ("Identity", "Reshape")  # that keep the one element
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
            if operator == "Where" and (said := next((name for name in names_of(op.location) if REQUIRE in name), "")):
                _assert_required(node, said)
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


def _assert_required(node: NodeOperands, name: str) -> None:
    """Converts a Where that encodes an assertion into one."""
    source, said = name.split(REQUIRE, 1)
    operator, text = said.split(": ", 1)
    with ir.Location.fused([ir.Location.name(source)], ir.StringAttr.get(operator)):
        condition = _number(node.op.operands[0])
        if condition is None or not isinstance(condition.type, ir.IntegerType):
            condition = create("tensor.extract", node.operands[0].kind.scalar, [builtin(node.operands[0])])
        assert_that(condition, text)
    node.op.results[0].replace_all_uses_with(node.op.operands[1])
    node.op.erase()


def _number(value: ir.Value) -> ir.Value | None:
    """An extent or a constant as an index, a condition, or what is calculated from them; None for other values."""
    op, operator = _operator(value)
    if op is None:
        return None
    if operator == "Constant":
        number = _constant(op)
        return None if number is None else constant_index(number)
    if operator == "Gather":
        return _extent(op)
    if operator in _SAME:
        return _number(op.operands[0])
    sides = [_number(operand) for operand in op.operands] if operator in _WRITTEN else []
    return None if len(sides) != 2 or sides[0] is None or sides[1] is None else write(_WRITTEN[operator], *sides)


def _extent(gather: ir.Operation) -> ir.Value | None:
    """The extent that `gather` takes from a shape; None for other operations."""
    shape, operator = _operator(gather.operands[0])
    place, _ = _operator(gather.operands[1])
    axis = None if place is None else _constant(place)
    source = None if shape is None or operator != "Shape" else kind_of(shape.operands[0])
    if shape is None or source is None or axis is None or not 0 <= axis < len(source.extents):
        return None
    if any(f"torch.onnx.{name}" in shape.attributes for name in ("start", "end")):
        return None
    return extent_of(create("torch_c.to_builtin_tensor", source.builtin, [shape.operands[0]]), axis)


def _constant(op: ir.Operation) -> int | None:
    value = op.attributes.get("torch.onnx.value", None)
    if not isinstance(value, ir.DenseIntElementsAttr) or len(value) != 1:
        return None
    return int(value[0])


def _operator(value: ir.Value) -> tuple[ir.Operation | None, str]:
    """The operation that makes `value`, and its ONNX operator."""
    if isinstance(value.owner, ir.Block) or value.owner.operation.name != "torch.operator":
        return None, ""
    op = value.owner.operation
    return op, ir.StringAttr(op.attributes["name"]).value.removeprefix("onnx.")
