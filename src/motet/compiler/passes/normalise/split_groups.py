"""split-groups: moves the split of channels into groups around a convolution's padding and element-wise users.

    %p = tensor.pad %x … 1x256x30x30                    %s = tensor.expand_shape %x … into 1x32x8x28x28
    %e = tensor.expand_shape %p … into 1x32x8x30x30     %p = tensor.pad %s … 1x32x8x30x30
    %r = a convolution of %e … 1x32x8x28x28         →   %r = a convolution of %p … 1x32x8x28x28
    %c = tensor.collapse_shape %r … into 1x256x28x28    %y = linalg.generic … relu of %r
    %y = linalg.generic … relu of %c                    %c = tensor.collapse_shape %y … into 1x256x28x28

Channels are split before the image is padded, and merged after the element-wise operations that follow; the initial
value of the sums is split as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import reassociation
from motet.compiler.kernels.roles import is_convolution
from motet.compiler.passes.base import FunctionPass
from motet.compiler.passes.normalise.splitting import Split, dynamic_extents


@dataclass(frozen=True)
class SplitGroups(FunctionPass):
    """Keeps convolutions with dynamic extents other than the batch: padded, they would have no fast kernel."""

    name = "split-groups"

    def run_on(self, function: ir.Operation) -> bool:
        found = False
        for block in function.regions[0].blocks:
            convolutions = [each.operation for each in block.operations if is_convolution(each.operation)]
            for each in convolutions:
                found |= _split(each)
        return found


def _split(operation: ir.Operation) -> bool:
    users = [use.owner.operation for use in operation.results[0].uses]
    if len(users) != 1 or users[0].name != "tensor.collapse_shape":
        return False
    groups = tuple(map(tuple, reassociation(users[0])))
    result = ir.RankedTensorType(operation.results[0].type)
    if any(result.is_dynamic_dim(axis) for group in groups for axis in group if axis or len(group) > 1):
        return False
    split = Split(groups, tuple(result.shape))
    last = len(operation.operands) - 1
    begin = _expanded(operation.operands[last])
    if begin is not None and tuple(map(tuple, reassociation(begin))) == groups:
        with operation.location:
            operation.operands[last] = split.expanded(begin.operands[0], ir.InsertionPoint(operation))
    for number in range(last):
        expansion = _expanded(operation.operands[number])
        if expansion is not None and (image := _inside_border(expansion)) is not None:
            operation.operands[number] = image
    split.take_along(users[0], operation.results[0])
    return True


def _expanded(value: ir.Value) -> ir.Operation | None:
    """The expansion that makes a value; None otherwise."""
    owner = None if isinstance(value.owner, ir.Block) else value.owner.operation
    return owner if owner is not None and owner.name == "tensor.expand_shape" else None


def _inside_border(expansion: ir.Operation) -> ir.Value | None:
    """The padded result of an expansion moved before the padding; None if its operand is not padded, or padded along an
    axis that is split."""
    source = expansion.operands[0]
    pad = None if isinstance(source.owner, ir.Block) else source.owner.operation
    if pad is None or pad.name != "tensor.pad" or len(pad.operands) != 1:
        return None
    sides = [list(ir.DenseI64ArrayAttr(pad.attributes[f"static_{side}"])) for side in ("low", "high")]
    groups = [list(group) for group in reassociation(expansion)]
    if any(len(group) > 1 and (low or high) for group, low, high in zip(groups, *sides, strict=True)):
        return None
    whole = ir.RankedTensorType(source.type)
    if any(len(group) > 1 and whole.is_dynamic_dim(axis) for axis, group in enumerate(groups)):
        return None
    body = [each.operation for each in pad.regions[0].blocks[0].operations]
    border = body[-1].operands[0]
    if len(body) != 1 or (isinstance(border.owner, ir.Block) and border.owner == pad.regions[0].blocks[0]):
        return None
    wide = ir.RankedTensorType(expansion.results[0].type)
    spread = [[sizes[position] for position, group in enumerate(groups) for _ in group] for sizes in sides]
    dynamic = ir.ShapedType.get_dynamic_size()
    shape = [
        dynamic if size == dynamic else size - low - high for size, low, high in zip(wide.shape, *spread, strict=True)
    ]
    at = ir.InsertionPoint(expansion)
    with expansion.location:
        inner = ir.Operation.create(
            "tensor.expand_shape", results=[ir.RankedTensorType.get(shape, wide.element_type)],
            operands=[pad.operands[0], *dynamic_extents(pad.operands[0], at)],
            attributes={
                "reassociation": expansion.attributes["reassociation"],
                "static_output_shape": ir.DenseI64ArrayAttr.get(shape),
            }, ip=at,
        ).result
        made = ir.Operation.create(
            "tensor.pad", results=[wide], operands=[inner],
            attributes={
                "static_low": ir.DenseI64ArrayAttr.get(spread[0]), "static_high": ir.DenseI64ArrayAttr.get(spread[1]),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0]),
            },
            regions=1, ip=at,
        )
        inside = ir.Block.create_at_start(made.regions[0], [ir.IndexType.get()] * len(shape))
        ir.Operation.create("tensor.yield", operands=[border], ip=ir.InsertionPoint(inside))
    return made.result
