"""measure-sorted: a slice of what was sorted, as long as that is in a dimension, takes that extent from it.

    %n = tensor.dim %x, %c0                                      %n = tensor.dim %y#0, %c0
    %v = tensor.extract_slice %y#0[0, 0] [%n, 2] …        →      %v = tensor.extract_slice %y#0[0, 0] [%n, 2] …

That it is as long is known here, of the whole function. In a kernel of the two alone it has to be seen.
"""

from __future__ import annotations

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.sizes import extent_of
from motet.compiler.scheduling.shapes import Shapes


def measure_sorted(function: ir.Operation) -> None:
    """In place, in a public function."""
    operations = [entry.operation for entry in function.regions[0].blocks[0].operations]
    if not any(operation.name == "tm_tensor.sort" for operation in operations):
        return
    shapes = Shapes(function)
    for operation in operations:
        shapes.note(operation)
        if operation.name == "tensor.extract_slice" and _is_sorted(operation.operands[0]):
            _measure(operation, operation.operands[0], shapes)


def _is_sorted(value: ir.Value) -> bool:
    return not isinstance(value.owner, ir.Block) and value.owner.operation.name == "tm_tensor.sort"


def _measure(slice_: ir.Operation, source: ir.Value, shapes: Shapes) -> None:
    if source not in shapes.tensors:
        return
    segments = list(ir.DenseI32ArrayAttr(slice_.attributes["operandSegmentSizes"]))
    sizes = list(ir.DenseI64ArrayAttr(slice_.attributes["static_sizes"]))
    dynamic = [axis for axis, size in enumerate(sizes) if size == ir.ShapedType.get_dynamic_size()]
    first = segments[0] + segments[1]  # behind the source and the offsets
    for position, axis in enumerate(dynamic, first):
        if shapes.numbers.get(slice_.operands[position]) == shapes.tensors[source][axis]:
            with ir.InsertionPoint(slice_), slice_.location:
                slice_.operands[position] = extent_of(source, axis)
