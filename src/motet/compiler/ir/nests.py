"""Writes loop nests, and what reads other tensors than before: operands of nests, views, and pads.

    nest(at, [%x], %empty, [same, same], lambda block: create("arith.truncf", half, [block.arguments[0]]))
      →  linalg.generic ins(%x : tensor<4xf32>) outs(%empty : tensor<4xf16>) { arith.truncf … }, before `at`
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import zero_attribute
from motet.compiler.ir.current import create
from motet.compiler.ir.sizes import extent_of

PRODUCT = ["arith.mulf", "arith.addf", "linalg.yield"]  # the steps of a sum of products of floats


def steps_of(generic: ir.Operation) -> list[str]:
    """The names of the operations in the body of a nest."""
    return [entry.operation.name for entry in generic.regions[0].blocks[0].operations]


def is_elementwise(operation: ir.Operation) -> bool:
    """Whether a nest writes each element of its one result once, in order."""
    if operation.name != "linalg.generic" or len(operation.results) != 1:
        return False
    if "reduction" in str(operation.attributes["iterator_types"]):
        return False
    output = ir.AffineMapAttr(list(ir.ArrayAttr(operation.attributes["indexing_maps"]))[-1]).value
    return output == ir.AffineMap.get_identity(output.n_dims, operation.context)


def copied(operation: ir.Operation | None) -> ir.Value | None:
    """The tensor or scalar that a nest broadcasts or transposes; None if it does anything else."""
    if operation is None or operation.name != "linalg.generic" or len(operation.operands) != 2:
        return None
    if len(operation.results) != 1 or steps_of(operation) != ["linalg.yield"]:
        return None
    block = operation.regions[0].blocks[0]
    return operation.operands[0] if block.operations[0].operation.operands[0] == block.arguments[0] else None


def is_product(operation: ir.Operation) -> bool:
    """Whether `operation` is a sum of products of two f32 tensors."""
    if operation.name != "linalg.generic" or "reduction" not in str(operation.attributes["iterator_types"]):
        return False
    if len(operation.operands) != 3 or steps_of(operation) != PRODUCT:
        return False
    product, total, _ = (entry.operation for entry in operation.regions[0].blocks[0].operations)
    left, right, accumulator = operation.regions[0].blocks[0].arguments
    factors, terms = {left, right}, {accumulator, product.result}
    return isinstance(left.type, ir.F32Type) and set(product.operands) == factors and set(total.operands) == terms


def loops(
    inputs: Sequence[ir.Value], output: ir.Value, maps: Sequence[ir.AffineMap], body: Callable[[ir.Block], ir.Value]
) -> ir.Value:
    """A loop nest at the current insertion point, with the body that `body` builds. Loops by which the map of the
    output, the last one, does not go are reductions."""
    kept = {ir.AffineDimExpr(place).position for place in maps[-1].results if isinstance(place, ir.AffineDimExpr)}
    parallel, reduction = (ir.Attribute.parse(f"#linalg.iterator_type<{kind}>") for kind in ("parallel", "reduction"))
    created = ir.Operation.create(
        "linalg.generic", results=[output.type], operands=[*inputs, output], regions=1, attributes={
            "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(each) for each in maps]),
            "iterator_types": ir.ArrayAttr.get([
                parallel if dim in kept else reduction for dim in range(maps[-1].n_dims)]),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inputs), 1]),
        },
    )  # fmt: skip
    types = [
        value.type.element_type if isinstance(value.type, ir.RankedTensorType) else value.type
        for value in (*inputs, output)
    ]
    block = ir.Block.create_at_start(created.regions[0], types, [created.location] * len(types))
    with created.location, ir.InsertionPoint(block):
        ir.Operation.create("linalg.yield", operands=[body(block)])
    return created.results[0]


def nest(
    at: ir.Operation, inputs: Sequence[ir.Value], output: ir.Value, maps: Sequence[ir.AffineMap],
    body: Callable[[ir.Block], ir.Value],
) -> ir.Value:
    """`loops` before `at`."""
    with at.location, ir.InsertionPoint(at):
        return loops(inputs, output, maps, body)


def empty_like(at: ir.Operation, value: ir.Value, element: ir.Type) -> ir.Value:
    """A tensor of `element`, with the extents of `value`, that is not written, before `at`."""
    kind = ir.RankedTensorType(value.type)
    with at.location, ir.InsertionPoint(at):
        sizes = [extent_of(value, axis) for axis in range(kind.rank) if kind.is_dynamic_dim(axis)]
        return create("tensor.empty", ir.RankedTensorType.get(kind.shape, element), sizes)


def converted(
    at: ir.Operation, value: ir.Value, element: ir.Type, body: Callable[[ir.Value], ir.Value]
) -> ir.Value:
    """A tensor of `element`, before `at`, of what `body` makes of each element of `value`."""
    output = empty_like(at, value, element)
    whole = ir.AffineMap.get_identity(ir.RankedTensorType(value.type).rank, at.context)
    return nest(at, [value], output, [whole, whole], lambda block: body(block.arguments[0]))


def read_instead(
    reader: ir.Operation, number: int, source: ir.Value, convert: Callable[[ir.Value, ir.Type], ir.Value]
) -> None:
    """Lets a nest read `source` as operand `number`; `convert` writes an element of `source` in the type of before."""
    block = reader.regions[0].blocks[0]
    argument = block.arguments[number]
    uses, kind = [(use.owner, use.operand_number) for use in argument.uses], argument.type
    reader.operands[number] = source
    argument.set_type(ir.RankedTensorType(source.type).element_type)
    with reader.location, ir.InsertionPoint.at_block_begin(block):
        value = convert(argument, kind)
    for owner, position in uses:
        owner.operation.operands[position] = value


def widened(value: ir.Value, kind: ir.Type) -> ir.Value:
    """A float as one of a type that is wider, or its own."""
    return value if value.type == kind else create("arith.extf", kind, [value])


def repeated(at: ir.Operation, view: ir.Operation, source: ir.Value, border: ir.Attribute | None = None) -> ir.Value:
    """The reshape, slice or pad `view` of `source`, before `at`. A pad has the number `border`, or zero, outside."""
    kind, element = ir.RankedTensorType(view.results[0].type), ir.RankedTensorType(source.type).element_type
    operands, attributes = [source, *list(view.operands)[1:]], {name: view.attributes[name] for name in view.attributes}
    with at.location, ir.InsertionPoint(at):
        result = ir.RankedTensorType.get(kind.shape, element, kind.encoding)
        if view.name == "tensor.pad":
            return _pad(result, operands, attributes, border)
        return create(view.name, result, operands, attributes)


def pad_with_zeros(
    result: ir.RankedTensorType, operands: Sequence[ir.Value], low: Sequence[int], high: Sequence[int]
) -> ir.Value:
    """A tensor with zeros around it, at the current insertion point. Further operands are what `high` does not know."""
    return _pad(result, operands, {
        "static_low": ir.DenseI64ArrayAttr.get(list(low)), "static_high": ir.DenseI64ArrayAttr.get(list(high)),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, len(operands) - 1]),
    })


def _pad(
    result: ir.RankedTensorType, operands: Sequence[ir.Value], attributes: dict[str, ir.Attribute],
    border: ir.Attribute | None = None,
) -> ir.Value:
    element = result.element_type
    number = create("arith.constant", element, [], {"value": border or zero_attribute(element)})
    pad = ir.Operation.create("tensor.pad", results=[result], operands=operands, attributes=attributes, regions=1)
    index = ir.IndexType.get(element.context)
    block = ir.Block.create_at_start(pad.regions[0], [index] * result.rank, [pad.location] * result.rank)
    ir.Operation.create("tensor.yield", operands=[number], ip=ir.InsertionPoint(block), loc=pad.location)
    return pad.results[0]


def border_of(pad: ir.Operation) -> ir.Value | None:
    """The number from outside that a `tensor.pad` writes around its operand; None if it computes one."""
    body = list(pad.regions[0].blocks[0].operations)
    return body[0].operation.operands[0] if len(body) == 1 else None
