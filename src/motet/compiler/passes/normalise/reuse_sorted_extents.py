"""reuse-sorted-extents: replaces an extent in a slice of a sorted tensor by the equal extent of the sorted tensor.

    %n = tensor.dim %x, %c0                                      %n = tensor.dim %y#0, %c0
    %v = tensor.extract_slice %y#0[0, 0] [%n, 2] …        →      %v = tensor.extract_slice %y#0[0, 0] [%n, 2] …

That both extents are equal follows from the whole function; a kernel of the two operations alone must show it.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.sizes import extent_of
from motet.compiler.passes.base import FunctionPass
from motet.compiler.scheduling.shapes import Shapes


@dataclass(frozen=True)
class ReuseSortedExtents(FunctionPass):
    """Keeps static extents."""

    name = "reuse-sorted-extents"

    def run_on(self, function: ir.Operation) -> bool:
        operations = [entry.operation for entry in function.regions[0].blocks[0].operations]
        if not any(operation.name == "tm_tensor.sort" for operation in operations):
            return False
        shapes = Shapes(function)
        changed = False
        for operation in operations:
            shapes.note(operation)
            if operation.name == "tensor.extract_slice" and _is_sorted(operation.operands[0]):
                changed |= _reuse(operation, operation.operands[0], shapes)
        return changed


def _is_sorted(value: ir.Value) -> bool:
    return not isinstance(value.owner, ir.Block) and value.owner.operation.name == "tm_tensor.sort"


def _reuse(slice_: ir.Operation, source: ir.Value, shapes: Shapes) -> bool:
    if source not in shapes.tensors:
        return False
    segments = list(ir.DenseI32ArrayAttr(slice_.attributes["operandSegmentSizes"]))
    sizes = list(ir.DenseI64ArrayAttr(slice_.attributes["static_sizes"]))
    dynamic = [axis for axis, size in enumerate(sizes) if size == ir.ShapedType.get_dynamic_size()]
    first = segments[0] + segments[1]  # after the source and the offsets
    changed = False
    for position, axis in enumerate(dynamic, first):
        if shapes.numbers.get(slice_.operands[position]) == shapes.tensors[source][axis]:
            with ir.InsertionPoint(slice_), slice_.location:
                slice_.operands[position] = extent_of(source, axis)
            changed = True
    return changed
