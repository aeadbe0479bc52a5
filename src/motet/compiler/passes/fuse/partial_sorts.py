"""What grouping asks about operations around sorts: operands that only make positions, and slices of a front."""

from __future__ import annotations

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import integer_constant, static_or_none


def numbers_places(operation: ir.Operation) -> bool:
    """Whether the result of a generic only depends on indices, and is not the same number everywhere."""
    body = operation.regions[0].blocks[0].operations
    return len(operation.operands) == 1 and any(entry.operation.name == "linalg.index" for entry in body)


def keeps_extents(slice_: ir.Operation, sort: ir.Operation) -> bool:
    """Whether the dynamic sizes of a slice are extents of the tensors that are sorted, along unsorted dimensions."""
    sorted_axis = ir.IntegerAttr(sort.attributes["dimension"]).value
    sizes = static_or_none(slice_, "static_sizes")
    dynamic = [axis for axis, size in enumerate(sizes) if size is None]
    return all(
        axis != sorted_axis and _is_extent(size, axis, [*sort.operands, *sort.results])
        for axis, size in zip(dynamic, list(slice_.operands)[1:], strict=True)
    )


def _is_extent(size: ir.Value, axis: int, tensors: list[ir.Value]) -> bool:
    """Whether a number is the extent of one of `tensors` along an axis."""
    if isinstance(size.owner, ir.Block) or size.owner.operation.name != "tensor.dim":
        return False
    tensor, along = size.owner.operation.operands
    return tensor in tensors and integer_constant(along) == axis
