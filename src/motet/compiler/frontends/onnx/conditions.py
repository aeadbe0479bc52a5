"""Converts conditions about extents, which `Numbers` writes as ONNX nodes, to arithmetic on indices.

    %1 = "onnx.Shape"(%x)                          %d = tensor.dim %x, 1
    %2 = "onnx.Gather"(%1, 1)                 →    %e = arith.cmpi eq, %d, 9
    %3 = "onnx.Equal"(%2, 9)

An assertion of such a condition becomes a constraint of the function (`scheduling/assertions.py`); an assertion about
elements of tensors is checked in every call.
"""

from __future__ import annotations

from motet.compiler.frontends.onnx.places import ABOVE, EQUAL, compare, on_indices
from motet.compiler.frontends.onnx.tensors import kind_of
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import create
from motet.compiler.ir.sizes import constant_index, extent_of

_COMPARING = {"Equal": EQUAL, "Greater": ABOVE}
_JOINING = {"And": "arith.andi", "Or": "arith.ori"}
_ARITHMETIC = {"Add": "arith.addi", "Div": "arith.floordivsi"}  # of non-negative numbers
_SAME = ("Identity", "Reshape")  # that keep the one element


def condition_of(value: ir.Value) -> ir.Value | None:
    """The condition in the single element of `value`, in the dialect `torch`; None for other values."""
    op, operator = _operator(value)
    if op is None:
        return None
    if operator in _SAME:
        return condition_of(op.operands[0])
    if operator in _COMPARING:
        sizes = [_number(operand) for operand in op.operands]
        predicate = _COMPARING[operator]
        return compare(predicate, sizes[0], sizes[1]) if sizes[0] is not None and sizes[1] is not None else None
    if operator not in _JOINING:
        return None
    sides = [condition_of(operand) for operand in op.operands]
    if sides[0] is None or sides[1] is None:
        return None
    return create(_JOINING[operator], sides[0].type, [sides[0], sides[1]])


def _number(value: ir.Value) -> ir.Value | None:
    """An extent, a constant, or arithmetic on them, as an index; None for other values."""
    op, operator = _operator(value)
    if op is None:
        return None
    if operator == "Constant":
        number = _constant(op)
        return None if number is None else constant_index(number)
    if operator in _SAME:
        return _number(op.operands[0])
    if operator == "Gather":
        return _extent(op)
    if operator not in _ARITHMETIC:
        return None
    sides = [_number(operand) for operand in op.operands]
    return None if sides[0] is None or sides[1] is None else on_indices(_ARITHMETIC[operator], sides[0], sides[1])


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
