"""slice-extracts: replaces extraction at constant positions along some dimensions and all along the others by a slice.

    %k = arith.constant dense<3> : tensor<1xi64>
    %r = linalg.generic ins(%k) outs(%0 : tensor<1x4x5xf32>) {          %r = tensor.extract_slice %x[3, 0, 0] [1, 4, 5]
      ^bb0(%in, %out): yield tensor.extract %x[%in, index 1, index 2]   →

Frontends write this form for a selection by number, such as one layer's part of a tensor for all layers.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import constant_number
from motet.compiler.passes.base import OperationPass

_ADDRESSES = ("linalg.index", "arith.index_cast", "arith.constant")


@dataclass(frozen=True)
class SliceExtracts(OperationPass):
    """Extents must be static."""

    name = "slice-extracts"
    takes = ("linalg.generic",)

    def rewrite(self, operation: ir.Operation) -> bool:
        extract = _only_extract(operation)
        if extract is None:
            return False
        source, *indices = extract.operands
        before, after = ir.RankedTensorType(source.type), ir.RankedTensorType(operation.results[0].type)
        if not before.has_static_shape or not after.has_static_shape or before.rank != after.rank:
            return False
        offsets: list[int] = []
        for axis, index in enumerate(indices):
            loop, number = _loop(index), _number(operation, index)
            whole = loop == axis and before.shape[axis] == after.shape[axis]
            inside = number is not None and after.shape[axis] == 1 and 0 <= number < before.shape[axis]
            if not whole and not inside:
                return False
            offsets.append(0 if whole or number is None else number)
        made = ir.Operation.create(
            "tensor.extract_slice", results=[after], operands=[source],
            attributes={
                "static_offsets": ir.DenseI64ArrayAttr.get(offsets),
                "static_sizes": ir.DenseI64ArrayAttr.get(list(after.shape)),
                "static_strides": ir.DenseI64ArrayAttr.get([1] * after.rank),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0, 0]),
            },
            loc=operation.location, ip=ir.InsertionPoint(operation),
        )
        operation.results[0].replace_all_uses_with(made.result)
        operation.erase()
        return True


def _only_extract(operation: ir.Operation) -> ir.Operation | None:
    """The single `tensor.extract` of a body that only yields it, over exactly the points of its single result."""
    if len(operation.results) != 1 or "reduction" in str(operation.attributes["iterator_types"]):
        return None
    map_ = ir.AffineMapAttr(list(ir.ArrayAttr(operation.attributes["indexing_maps"]))[-1]).value
    *entries, last = [entry.operation for entry in operation.regions[0].blocks[0].operations]
    found = [entry for entry in entries if entry.name not in _ADDRESSES]
    if map_ != ir.AffineMap.get_identity(map_.n_dims) or len(found) != 1 or found[0].name != "tensor.extract":
        return None
    return found[0] if last.operands[0] == found[0].results[0] else None


def _loop(index: ir.Value) -> int | None:
    """The loop whose index `index` is; None otherwise."""
    if isinstance(index.owner, ir.Block) or index.owner.operation.name != "linalg.index":
        return None
    return ir.IntegerAttr(index.owner.operation.attributes["dim"]).value


def _number(operation: ir.Operation, index: ir.Value) -> int | None:
    """The constant that an index is, directly or as the only element of a constant operand; None otherwise."""
    while not isinstance(index.owner, ir.Block) and index.owner.operation.name == "arith.index_cast":
        index = index.owner.operation.operands[0]
    if isinstance(index.owner, ir.Block):
        if index.owner != operation.regions[0].blocks[0]:
            return None
        index = operation.operands[ir.BlockArgument(index).arg_number]
        if isinstance(index.owner, ir.Block):
            return None
    owner = index.owner.operation
    number = constant_number(owner) if owner.name == "arith.constant" else None
    return None if number is None else int(number)
