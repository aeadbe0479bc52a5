"""Rewrites StableHLO's reshapes to computed extents as `tensor.reshape` of scalars.

    stablehlo.dynamic_reshape %x, %s     →     %a = tensor.extract %s[0]         %b = tensor.extract %s[1]
                                               tensor.reshape %x(tensor.from_elements %a, %b)

`resolve-extracts` and `resolve-reshapes` then express the scalars by the extents of the program's inputs.
"""

from __future__ import annotations

from itertools import product
from math import prod

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import create
from motet.compiler.ir.find import find_operations
from motet.compiler.ir.sizes import as_index, constant_index, element_at

Extent = int | ir.Value  # an int if it is constant

_ARITHMETIC = {
    "stablehlo.add": "arith.addi", "stablehlo.subtract": "arith.subi", "stablehlo.multiply": "arith.muli",
    "stablehlo.divide": "arith.divsi", "stablehlo.maximum": "arith.maxsi", "stablehlo.minimum": "arith.minsi",
}  # fmt: skip


def write_dynamic_reshapes(module: ir.Module) -> None:
    """Rewrites each `stablehlo.dynamic_reshape` in place."""
    for op in find_operations(module, "stablehlo.dynamic_reshape"):
        source, shape = op.operands
        with op.context, op.location, ir.InsertionPoint(op):
            numbers = [number_of(shape, axis) for axis in range(ir.RankedTensorType(shape.type).shape[0])]
            kind = ir.RankedTensorType.get([len(numbers)], ir.IndexType.get())
            extents = create("tensor.from_elements", kind, numbers)
            op.results[0].replace_all_uses_with(create("tensor.reshape", op.results[0].type, [source, extents]))
        op.erase()


def number_of(shape: ir.Value, axis: int) -> ir.Value:
    """Element `axis` of a tensor of extents, as an index at the current insertion point."""
    number = numbers_of(shape)[axis]
    return constant_index(number) if isinstance(number, int) else number


def numbers_of(tensor: ir.Value) -> list[Extent]:
    """The elements of a tensor of extents in row-major order: ints if they are constant, otherwise indices at the
    current insertion point."""
    owner = None if isinstance(tensor.owner, ir.Block) else tensor.owner.operation
    name = owner.name if owner is not None else ""
    shape = ir.RankedTensorType(tensor.type).shape
    if owner is not None and name == "stablehlo.constant":
        values = ir.DenseIntElementsAttr(owner.attributes["value"])
        return [values[number] for number in range(prod(shape))]
    if owner is not None and name in ("stablehlo.reshape", "stablehlo.convert"):
        return numbers_of(owner.operands[0])
    if (
        owner is not None
        and name == "stablehlo.concatenate"
        and not ir.IntegerAttr(owner.attributes["dimension"]).value
    ):
        return [number for part in owner.operands for number in numbers_of(part)]
    places = product(*(range(size) for size in shape))
    return [as_index(element_at(tensor, [constant_index(axis) for axis in at])) for at in places]


def compute_with_numbers(module: ir.Module) -> None:
    """Converts arithmetic on tensors of one integer that depends on extents to arithmetic on integers."""
    for op in find_operations(module, *_ARITHMETIC, "stablehlo.reshape", "stablehlo.convert"):
        if any(_is_made_of_numbers(operand) for operand in op.operands):
            with op.context, op.location, ir.InsertionPoint(op):
                _compute(op)


def _compute(op: ir.Operation) -> None:
    kind = ir.RankedTensorType(op.results[0].type)
    element = kind.element_type
    if not isinstance(element, ir.IntegerType) or not element.is_signless or element.width < 32:
        return
    numbers = [_only_element(operand) for operand in op.operands]
    known = [number for number in numbers if number is not None]
    if len(known) != len(numbers) or not kind.has_static_shape or prod(kind.shape) != 1:
        return
    made = create(_ARITHMETIC[op.name], element, known) if op.name in _ARITHMETIC else known[0]
    if made.type != element:
        wider = element.width > ir.IntegerType(made.type).width
        made = create("arith.extsi" if wider else "arith.trunci", element, [made])
    op.results[0].replace_all_uses_with(create("tensor.from_elements", kind, [made]))
    op.erase()


def _is_made_of_numbers(value: ir.Value) -> bool:
    return not isinstance(value.owner, ir.Block) and value.owner.name == "tensor.from_elements"


def _only_element(value: ir.Value) -> ir.Value | None:
    """The element of a tensor of one signless integer of at least 32 bits made from it, or constant; None for
    others."""
    kind = ir.RankedTensorType(value.type)
    is_word = isinstance(kind.element_type, ir.IntegerType) and kind.element_type.is_signless
    if isinstance(value.owner, ir.Block) or not is_word or ir.IntegerType(kind.element_type).width < 32:
        return None
    owner = value.owner.operation
    if owner.name == "tensor.from_elements" and len(owner.operands) == 1:
        return owner.operands[0]
    if owner.name == "stablehlo.constant" and owner.attributes["value"].is_splat:
        number = owner.attributes["value"].get_splat_value()
        return create("arith.constant", kind.element_type, [], {"value": number})
    return None
