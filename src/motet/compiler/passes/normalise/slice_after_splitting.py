"""slice-after-splitting: splits a dimension before it is sliced, if the slice takes whole parts.

    %s = tensor.extract_slice %x[0, 128] [4, 128]            %e = tensor.expand_shape %x … 4x384 into 4x12x32
    %e = tensor.expand_shape %s … 4x128 into 4x4x32     →    %s = tensor.extract_slice %e[0, 4, 0] [4, 4, 32]

Splitting a tensor in memory is free, and the slice can then be combined with transpositions that follow it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import reassociation
from motet.compiler.passes.base import OperationPass


@dataclass(frozen=True)
class SliceAfterSplitting(OperationPass):
    """Keeps slices with dynamic extents."""

    name = "slice-after-splitting"
    takes = ("tensor.expand_shape",)

    def rewrite(self, operation: ir.Operation) -> bool:
        source = operation.operands[0]
        if isinstance(source.owner, ir.Block) or source.owner.operation.name != "tensor.extract_slice":
            return False
        slice_ = source.owner.operation
        kinds = [ir.RankedTensorType(value.type) for value in (slice_.operands[0], source, operation.results[0])]
        if not all(kind.has_static_shape for kind in kinds) or len(slice_.operands) != 1:
            return False
        split = _split(operation, slice_)
        if split is None:
            return False
        element, context = kinds[0].element_type, operation.context
        wide = ir.RankedTensorType.get(split.extents, element, loc=operation.location)
        at = ir.InsertionPoint(operation)
        expanded = ir.Operation.create(
            "tensor.expand_shape", results=[wide], operands=[slice_.operands[0]],
            attributes={
                "reassociation": operation.attributes["reassociation"],
                "static_output_shape": ir.DenseI64ArrayAttr.get(split.extents, context),
            },
            loc=operation.location, ip=at,
        ).result
        taken = ir.Operation.create(
            "tensor.extract_slice", results=[kinds[2]], operands=[expanded],
            attributes={
                "static_offsets": ir.DenseI64ArrayAttr.get(split.offsets, context),
                "static_sizes": ir.DenseI64ArrayAttr.get(split.sizes, context),
                "static_strides": ir.DenseI64ArrayAttr.get([1] * len(split.sizes), context),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0, 0], context),
            },
            loc=slice_.location, ip=at,
        ).result
        operation.results[0].replace_all_uses_with(taken)
        operation.erase()
        if not any(True for _ in slice_.results[0].uses):
            slice_.erase()
        return True


@dataclass(frozen=True)
class _Split:
    """The split of the tensor before the slice: for each part of a dimension its extent, and the range sliced."""

    extents: list[int]
    offsets: list[int]
    sizes: list[int]


def _split(expand: ir.Operation, slice_: ir.Operation) -> _Split | None:
    """How the tensor before the slice is split; None if the slice drops dimensions, has strides, or cuts parts."""
    offsets, sizes, strides = (
        list(ir.DenseI64ArrayAttr(slice_.attributes[name]))
        for name in ("static_offsets", "static_sizes", "static_strides")
    )
    whole = list(ir.RankedTensorType(slice_.operands[0].type).shape)
    taken = list(ir.RankedTensorType(slice_.results[0].type).shape)
    if sizes != taken or any(stride != 1 for stride in strides):
        return None
    shape = list(ir.RankedTensorType(expand.results[0].type).shape)
    found = _Split([], [], [])
    for group, extent, offset in zip(reassociation(expand), whole, offsets, strict=True):
        inner = prod(shape[axis] for axis in group[1:])
        if inner == 0 or extent % inner or offset % inner:
            return None
        rest = [shape[axis] for axis in group[1:]]
        found.extents.extend([extent // inner, *rest])
        found.offsets.extend([offset // inner, *(0 for _ in rest)])
        found.sizes.extend(shape[axis] for axis in group)
    return found
