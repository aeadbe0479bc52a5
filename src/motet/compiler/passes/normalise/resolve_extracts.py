"""resolve-extracts: makes elements that bodies extract from tensors at the loops' positions operands.

    linalg.generic outs(%0) {                             linalg.generic ins(%x) outs(%0), %x read by
      %i = linalg.index 0 ; %j = linalg.index 1           (d0, d1, d2) -> (d0, d1, 0) {
      %same = arith.cmpi eq, %dim, %c1              →       ^bb0(%in, %out): yield %in
      %k = arith.select %same, %c0, %i
      yield tensor.extract %x[%k, %j, %c0]

Frontends write this form for broadcasts along dynamic extents: if an extent is 1, the position is 0 anyway, and the
select is redundant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import constant_number
from motet.compiler.passes.base import OperationPass


@dataclass(frozen=True)
class ResolveExtracts(OperationPass):
    """Elements at other positions are left unchanged."""

    name = "resolve-extracts"
    takes = ("linalg.generic",)

    def rewrite(self, operation: ir.Operation) -> bool:
        found: list[_Element] = []
        for number, entry in enumerate(operation.regions[0].blocks[0].operations):
            if entry.operation.name == "tensor.extract":
                tensor, *indices = entry.operation.operands
                map_ = _map(operation, indices)
                if map_ is not None and _is_all_of_it(operation, tensor, map_):
                    found.append(_Element(number, tensor, entry.operation.results[0].type, map_))
        if found:
            _rebuild(operation, found)
        return bool(found)


@dataclass(frozen=True)
class _Element:
    """The element that the `tensor.extract` number `number` of a body reads: `tensor` at `map` of the loops."""

    number: int
    tensor: ir.Value
    kind: ir.Type
    map: ir.AffineMap


def _map(operation: ir.Operation, indices: Sequence[ir.Value]) -> ir.AffineMap | None:
    """The map from loops to `indices`; None if there is none."""
    rank = len(list(ir.ArrayAttr(operation.attributes["iterator_types"])))
    results: list[ir.AffineExpr] = []
    for index in indices:
        position = _position(operation, index)
        if position is None:
            return None
        loop, constant = position
        expression = ir.AffineExpr.get_constant(constant) if loop is None else ir.AffineExpr.get_dim(loop)
        results.append(expression)
    return ir.AffineMap.get(rank, 0, results)


def _is_all_of_it(operation: ir.Operation, tensor: ir.Value, map_: ir.AffineMap) -> bool:
    """Whether loops cover the tensor exactly, as far as known, which is required of an operand."""
    ends: dict[int, int] = {}
    maps = [ir.AffineMapAttr(attribute).value for attribute in ir.ArrayAttr(operation.attributes["indexing_maps"])]
    for operand, own in zip(operation.operands, maps, strict=True):
        ends |= {loop: size for loop, size in _ends(operand, own) if size is not None}
    return all(size is None or ends.get(loop, size) == size for loop, size in _ends(tensor, map_))


def _ends(operand: ir.Value, map_: ir.AffineMap) -> list[tuple[int, int | None]]:
    """The loops along dimensions of `operand`, with the extents of these; None for dynamic ones."""
    if not isinstance(operand.type, ir.RankedTensorType):
        return []
    kind = ir.RankedTensorType(operand.type)
    return [
        (expression.position, None if kind.is_dynamic_dim(axis) else kind.get_dim_size(axis))
        for axis, expression in enumerate(map_.results)
        if isinstance(expression, ir.AffineDimExpr)
    ]


def _position(operation: ir.Operation, value: ir.Value) -> tuple[int | None, int] | None:
    """The loop of `operation`, or the number, that `value` in its body is; None otherwise."""
    if isinstance(value.owner, ir.Block):
        return None
    owner = value.owner.operation
    if owner.name == "linalg.index":
        return ir.IntegerAttr(owner.attributes["dim"]).value, 0
    if owner.name == "arith.constant":
        number = constant_number(owner)
        return None if number is None else (None, int(number))
    if owner.name == "arith.index_cast":
        return _position(operation, owner.operands[0])
    if owner.name != "arith.select":
        return None
    first, second = (_position(operation, operand) for operand in list(owner.operands)[1:])
    if first != (None, 0) or second is None or second[0] is None:
        return None
    return second if _is_extent_one(operation, owner.operands[0], second[0]) else None


def _is_extent_one(operation: ir.Operation, condition: ir.Value, loop: int) -> bool:
    """Whether `condition` states that the loop's extent is 1."""
    if isinstance(condition.owner, ir.Block) or condition.owner.operation.name != "arith.cmpi":
        return False
    compare = condition.owner.operation
    if ir.IntegerAttr(compare.attributes["predicate"]).value != 0:
        return False
    values = list(compare.operands)
    ones = [value for value in values if _position(operation, value) == (None, 1)]
    others = [value for value in values if _position(operation, value) is None]
    return len(ones) == 1 and len(others) == 1 and _is_extent(operation, others[0], loop)


def _is_extent(operation: ir.Operation, value: ir.Value, loop: int) -> bool:
    """Whether `value` is the extent of the operation's results along `loop`."""
    segments = list(ir.DenseI32ArrayAttr(operation.attributes["operandSegmentSizes"]))
    maps = [ir.AffineMapAttr(attribute).value for attribute in ir.ArrayAttr(operation.attributes["indexing_maps"])]
    dimension = ir.AffineExpr.get_dim(loop)
    for output, map_ in zip(list(operation.operands)[segments[0] :], maps[segments[0] :], strict=True):
        if isinstance(output.owner, ir.Block) or output.owner.operation.name != "tensor.empty":
            continue
        kind = ir.RankedTensorType(output.type)
        given = iter(output.owner.operation.operands)
        for axis, expression in enumerate(map_.results):
            extent = next(given) if kind.is_dynamic_dim(axis) else None
            if expression == dimension and extent is not None and extent == value:
                return True
    return False


def _rebuild(operation: ir.Operation, found: Sequence[_Element]) -> None:
    """Rebuilds `operation` with additional inputs for `found`."""
    segments = list(ir.DenseI32ArrayAttr(operation.attributes["operandSegmentSizes"]))
    operands = list(operation.operands)
    maps = [ir.AffineMapAttr(attribute).value for attribute in ir.ArrayAttr(operation.attributes["indexing_maps"])]
    inputs, count = segments[0], len(found)
    maps[inputs:inputs] = [element.map for element in found]
    made = ir.Operation.create(
        "linalg.generic", results=[result.type for result in operation.results],
        operands=[*operands[:inputs], *(element.tensor for element in found), *operands[inputs:]],
        attributes={
            "iterator_types": operation.attributes["iterator_types"],
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([inputs + count, segments[1]]),
            "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(map_) for map_ in maps]),
        },
        regions=1, loc=operation.location, ip=ir.InsertionPoint(operation),
    )
    _move_body(operation.regions[0].blocks[0], made.regions[0], inputs, found)
    for before, after in zip(operation.results, made.results, strict=True):
        before.replace_all_uses_with(after)
    operation.erase()


def _move_body(old: ir.Block, region: ir.Region, inputs: int, found: Sequence[_Element]) -> None:
    """Moves the operations of `old` to a block of `region` with arguments for `found` after `inputs` others."""
    kinds = [argument.type for argument in old.arguments]
    kinds[inputs:inputs] = [element.kind for element in found]
    new = ir.Block.create_at_start(region, kinds, [argument.location for argument in old.arguments][:1] * len(kinds))
    arguments = list(new.arguments)
    own = arguments[inputs : inputs + len(found)]
    kept = [*arguments[:inputs], *arguments[inputs + len(found) :]]
    for before, after in zip(list(old.arguments), kept, strict=True):
        before.replace_all_uses_with(after)
    entries = list(old.operations)
    for element, after in zip(found, own, strict=True):
        entries[element.number].operation.results[0].replace_all_uses_with(after)
    taken = {element.number for element in found}
    insertion = ir.InsertionPoint(new)
    for number, entry in enumerate(entries):
        if number in taken:
            entry.operation.erase()
        else:
            entry.operation.detach_from_parent()
            insertion.insert(entry.operation)
