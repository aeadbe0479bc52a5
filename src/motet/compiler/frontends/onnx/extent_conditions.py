"""Converts conditions about extents, which `Numbers` writes as ONNX nodes, to arithmetic on indices.

    %1 = "onnx.Shape"(%x)                          %d = tensor.dim %x, 1
    %2 = "onnx.Gather"(%1, 1)                 →    %e = arith.cmpi eq, %d, 9
    %3 = "onnx.Equal"(%2, 9)

An assertion of such a condition becomes a constraint of the function (`scheduling/assertions.py`); an assertion about
elements of tensors is checked in every call.
"""

from __future__ import annotations

from motet.compiler.frontends.onnx.tensors import kind_of
from motet.compiler.frontends.onnx.torch_operands import write
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import create
from motet.compiler.ir.sizes import constant_index, extent_of

_WRITTEN = {"Add": "+", "And": "&", "Div": "//", "Equal": "==", "Greater": ">", "Mod": "%", "Mul": "*", "Or": "|"}
_SAME = ("Identity", "Reshape")  # that keep the one element


def condition_of(value: ir.Value) -> ir.Value | None:
    """The condition about extents in the single element of `value`, in the dialect `torch`; None for other values."""
    condition = _number(value)
    return condition if condition is not None and isinstance(condition.type, ir.IntegerType) else None


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
