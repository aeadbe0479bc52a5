"""Boxes of tensors: the elements that slices with steps of one take."""

from __future__ import annotations

from motet.compiler.ir._mlir import ir

Box = tuple[tuple[int, int], ...]  # the first element and the extent along each axis


def box_of(operation: ir.Operation) -> Box | None:
    """What a slice takes of its source; None for other operations, computed offsets, other steps than one, dynamic
    extents, and slices that drop dimensions."""
    if operation.name != "tensor.extract_slice" or len(operation.operands) != 1:
        return None
    kinds = [ir.RankedTensorType(value.type) for value in (operation.operands[0], operation.results[0])]
    names = ("offsets", "sizes", "strides")
    offsets, sizes, strides = (list(ir.DenseI64ArrayAttr(operation.attributes[f"static_{name}"])) for name in names)
    if not all(kind.has_static_shape for kind in kinds) or any(stride != 1 for stride in strides):
        return None
    return tuple(zip(offsets, sizes, strict=True)) if sizes == list(kinds[1].shape) else None


def whole(value: ir.Value) -> Box:
    """The box of all elements of a tensor of static shape."""
    return tuple((0, size) for size in ir.RankedTensorType(value.type).shape)


def meet(a: Box, b: Box) -> Box | None:
    """The elements that two boxes have in common; None if there are none."""
    found: list[tuple[int, int]] = []
    for (begin, size), (other, count) in zip(a, b, strict=True):
        first = max(begin, other)
        extent = min(begin + size, other + count) - first
        if extent <= 0:
            return None
        found.append((first, extent))
    return tuple(found)


def slice_at(value: ir.Value, box: Box, at: ir.InsertionPoint, location: ir.Location) -> ir.Value:
    """The elements of `value` in `box`, by a slice unless these are all."""
    if box == whole(value):
        return value
    element = ir.RankedTensorType(value.type).element_type
    kind = ir.RankedTensorType.get([size for _, size in box], element, loc=location)
    return ir.Operation.create(
        "tensor.extract_slice", results=[kind], operands=[value], attributes=_places(box, 0), loc=location, ip=at
    ).result


def insert_at(
    value: ir.Value, into: ir.Value, box: Box, at: ir.InsertionPoint, location: ir.Location
) -> ir.Value:
    """`into` with `value` in `box`."""
    return ir.Operation.create(
        "tensor.insert_slice", results=[into.type], operands=[value, into], attributes=_places(box, 1), loc=location,
        ip=at,
    ).result


def _places(box: Box, destinations: int) -> dict[str, ir.Attribute]:
    return {
        "static_offsets": ir.DenseI64ArrayAttr.get([begin for begin, _ in box]),
        "static_sizes": ir.DenseI64ArrayAttr.get([size for _, size in box]),
        "static_strides": ir.DenseI64ArrayAttr.get([1] * len(box)),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, *[1] * destinations, 0, 0, 0]),
    }
