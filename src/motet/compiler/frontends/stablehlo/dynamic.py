"""Rewrites StableHLO's reshapes to computed extents as `tensor.reshape` of scalars.

    stablehlo.dynamic_reshape %x, %s     →     %a = tensor.extract %s[0]         %b = tensor.extract %s[1]
                                               tensor.reshape %x(tensor.from_elements %a, %b)

`resolve-extracts` and `resolve-reshapes` then express the scalars by the extents of the program's inputs.
"""

from __future__ import annotations

from math import prod

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import find_operations

_ARITHMETIC = {
    "stablehlo.add": "arith.addi", "stablehlo.subtract": "arith.subi", "stablehlo.multiply": "arith.muli",
    "stablehlo.divide": "arith.divsi", "stablehlo.maximum": "arith.maxsi", "stablehlo.minimum": "arith.minsi",
}  # fmt: skip


def write_dynamic_reshapes(module: ir.Module) -> None:
    """Rewrites each `stablehlo.dynamic_reshape` in place."""
    for op in find_operations(module, "stablehlo.dynamic_reshape"):
        source, shape = op.operands
        numbers = [number_of(op, shape, axis) for axis in range(ir.RankedTensorType(shape.type).shape[0])]
        extents = _create(
            op, "tensor.from_elements", ir.RankedTensorType.get([len(numbers)], ir.IndexType.get()), numbers
        )
        op.results[0].replace_all_uses_with(_create(op, "tensor.reshape", op.results[0].type, [source, extents]))
        op.erase()


def number_of(op: ir.Operation, shape: ir.Value, axis: int) -> ir.Value:
    """Element `axis` of a tensor of extents, as an index before `op`."""
    index = ir.IndexType.get()
    place = _create(op, "arith.constant", index, [], {"value": ir.IntegerAttr.get(index, axis)})
    element = ir.RankedTensorType(shape.type).element_type
    number = _create(op, "tensor.extract", element, [shape, place])
    return number if element == index else _create(op, "arith.index_cast", index, [number])


def compute_with_numbers(module: ir.Module) -> None:
    """Converts arithmetic on tensors of one integer that depends on extents to arithmetic on integers."""
    for op in find_operations(module, *_ARITHMETIC, "stablehlo.reshape", "stablehlo.convert"):
        kind = op.results[0].type
        element = ir.RankedTensorType(kind).element_type
        if not isinstance(element, ir.IntegerType) or not element.is_signless or element.width < 32:
            continue
        if not any(_is_made_of_numbers(operand) for operand in op.operands):
            continue
        numbers = [_only_element(op, operand) for operand in op.operands]
        known = [number for number in numbers if number is not None]
        if len(known) != len(numbers) or not ir.RankedTensorType(kind).has_static_shape:
            continue
        if prod(ir.RankedTensorType(kind).shape) != 1:
            continue
        made = _create(op, _ARITHMETIC[op.name], element, known) if op.name in _ARITHMETIC else known[0]
        if made.type != element:
            wider = element.width > ir.IntegerType(made.type).width
            made = _create(op, "arith.extsi" if wider else "arith.trunci", element, [made])
        op.results[0].replace_all_uses_with(_create(op, "tensor.from_elements", kind, [made]))
        op.erase()


def _is_made_of_numbers(value: ir.Value) -> bool:
    return not isinstance(value.owner, ir.Block) and value.owner.name == "tensor.from_elements"


def _only_element(op: ir.Operation, value: ir.Value) -> ir.Value | None:
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
        return _create(op, "arith.constant", kind.element_type, [], {"value": number})
    return None


def extract_from_parts(module: ir.Module) -> bool:
    """Rewrites extraction of a constant element of a one-dimensional `tensor.concat` to its part. Returns whether there
    was one."""
    found = False
    for op in find_operations(module, "tensor.extract"):
        while (part := _part(op)) is not None:
            found = True
            op.operands[0], place = part
            op.operands[1] = _create(
                op, "arith.constant", op.operands[1].type, [], {"value": ir.IntegerAttr.get(op.operands[1].type, place)}
            )
    return found


def _part(op: ir.Operation) -> tuple[ir.Value, int] | None:
    """The part of the concatenation that `op` extracts from, and the index in it."""
    source = op.operands[0].owner
    if isinstance(source, ir.Block) or source.name != "tensor.concat" or len(op.operands) != 2:
        return None
    place = op.operands[1].owner
    if isinstance(place, ir.Block) or place.name != "arith.constant":
        return None
    number = ir.IntegerAttr(place.attributes["value"]).value
    for part in source.operands:
        kind = ir.RankedTensorType(part.type)
        if not kind.has_static_shape:
            return None
        if number < kind.shape[0]:
            return part, number
        number -= kind.shape[0]
    return None


def _create(
    op: ir.Operation,
    name: str,
    result: ir.Type,
    operands: list[ir.Value],
    attributes: dict[str, ir.Attribute] | None = None,
) -> ir.Value:
    at = ir.InsertionPoint(op)
    return ir.Operation.create(
        name, results=[result], operands=operands, attributes=attributes or {}, loc=op.location, ip=at
    ).result
