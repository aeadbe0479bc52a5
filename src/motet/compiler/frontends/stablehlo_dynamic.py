"""StableHLO's reshapes to extents that are computed, as `tensor.reshape` of the numbers themselves.

    stablehlo.dynamic_reshape %x, %s     →     %a = tensor.extract %s[0]         %b = tensor.extract %s[1]
                                               tensor.reshape %x(tensor.from_elements %a, %b)

`resolve-extracts` and `resolve-reshapes` find the numbers among the extents of the program's inputs.
"""

from __future__ import annotations

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import find_operations


def write_dynamic_reshapes(module: ir.Module) -> None:
    """Rewrites each `stablehlo.dynamic_reshape`, in place."""
    for op in find_operations(module, "stablehlo.dynamic_reshape"):
        source, shape = op.operands
        numbers = [_number(op, shape, axis) for axis in range(ir.RankedTensorType(shape.type).shape[0])]
        extents = _create(
            op, "tensor.from_elements", ir.RankedTensorType.get([len(numbers)], ir.IndexType.get()), numbers
        )
        op.results[0].replace_all_uses_with(_create(op, "tensor.reshape", op.results[0].type, [source, extents]))
        op.erase()


def _number(op: ir.Operation, shape: ir.Value, axis: int) -> ir.Value:
    index = ir.IndexType.get()
    place = _create(op, "arith.constant", index, [], {"value": ir.IntegerAttr.get(index, axis)})
    element = ir.RankedTensorType(shape.type).element_type
    number = _create(op, "tensor.extract", element, [shape, place])
    return number if element == index else _create(op, "arith.index_cast", index, [number])


def extract_from_parts(module: ir.Module) -> None:
    """A constant element of a `tensor.concat` of one dimension is taken from the part that it is in."""
    for op in find_operations(module, "tensor.extract"):
        while (part := _part(op)) is not None:
            op.operands[0], place = part
            op.operands[1] = _create(
                op, "arith.constant", op.operands[1].type, [], {"value": ir.IntegerAttr.get(op.operands[1].type, place)}
            )


def _part(op: ir.Operation) -> tuple[ir.Value, int] | None:
    """The part that `op` extracts from, and its place there."""
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
