"""compute-slices: computes an element-wise result in slices if it is only read in slices.

    %y = linalg.generic … exp(%x) : tensor<500x2xf32>          %0 = tensor.extract_slice %x[0, 0] [500, 1]
    %a = tensor.extract_slice %y[0, 0] [500, 1]           →    %a = linalg.generic … exp(%0) : tensor<500x1xf32>
    %b = tensor.extract_slice %y[0, 1] [500, 1]                %1 = tensor.extract_slice %x[0, 1] [500, 1]
                                                               %b = linalg.generic … exp(%1) : tensor<500x1xf32>

The slices then join the kernels that read them, and parts that no slice takes are not computed. Vectors do not run
along a short last dimension, such as the corners of boxes. Work on results of products, windows and reductions stays
whole, because it is part of their kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import maps_of
from motet.compiler.ir.erase import erase_unused
from motet.compiler.kernels.roles import Role, computes_its_points, role_of
from motet.compiler.passes.base import FunctionPass
from motet.compiler.passes.fuse.boxes import Box, box_of, meet, slice_at
from motet.compiler.passes.fuse.marks import INTERLEAVED, JOINED, MARK, TOGETHER

_MOST = 8  # slices of one result
_MARKS = (INTERLEAVED, JOINED, MARK, TOGETHER)
_THROUGH = (Role.ELEMENTWISE, Role.VIEW, Role.ALIAS)
_HEAVY = (Role.CONTRACTION, Role.CONVOLUTION, Role.WINDOW, Role.REDUCTION, Role.ATTENTION)


@dataclass(frozen=True)
class ComputeSlices(FunctionPass):
    """Slices of static extents with steps of one that have no elements in common."""

    name = "compute-slices"

    def run_on(self, function: ir.Operation) -> bool:
        changed = False
        for block in function.regions[0].blocks:
            for entry in reversed(list(block.operations)):
                changed |= _compute(entry.operation)
        if changed:
            erase_unused(function)
        return changed


def _compute(operation: ir.Operation) -> bool:
    """Computes `operation` in the slices that are read."""
    if operation.name != "linalg.generic" or len(operation.results) != 1:
        return False
    users = [use.owner.operation for use in operation.results[0].uses]
    boxes = [box_of(user) for user in users]
    known = list(dict.fromkeys(box for box in boxes if box is not None))
    if not users or any(box is None for box in boxes) or len(known) > _MOST or not _is_element_wise(operation):
        return False
    if any(meet(a, b) for a, b in combinations(known, 2)) or _ends_heavy_work(operation):
        return False
    for box in known:
        part = _part(operation, box)
        for user, other in zip(users, boxes, strict=True):
            if other == box:
                user.results[0].replace_all_uses_with(part)
    for user in users:
        user.erase()
    operation.erase()
    return True


def _is_element_wise(operation: ir.Operation) -> bool:
    """Whether an operation computes one result of static shape over exactly its points, whatever their indices."""
    if operation.name != "linalg.generic" or any(mark in operation.attributes for mark in _MARKS):
        return False
    if len(operation.results) != 1 or role_of(operation) is not Role.ELEMENTWISE:
        return False
    kinds = [operand.type for operand in operation.operands]
    if not all(not isinstance(kind, ir.ShapedType) or kind.has_static_shape for kind in kinds):
        return False
    return computes_its_points(operation)


def _ends_heavy_work(operation: ir.Operation) -> bool:
    """Whether `operation` would join the kernel of a product, a window or a reduction, alone or after others."""
    seen: set[ir.Operation] = set()
    stack = [operation]
    while stack:
        for value in stack.pop().operands:
            if isinstance(value.owner, ir.Block) or value.owner.operation in seen:
                continue
            maker = value.owner.operation
            seen.add(maker)
            role = role_of(maker)
            if role in _HEAVY or MARK in maker.attributes:
                return True
            if role in _THROUGH:
                stack.append(maker)
    return False


def _part(operation: ir.Operation, box: Box) -> ir.Value:
    """`operation` for the points in `box`."""
    at = ir.InsertionPoint(operation)
    *inputs, _ = operation.operands
    operands = [
        _read(value, map_, box, at, operation.location) if isinstance(value.type, ir.RankedTensorType) else value
        for value, map_ in zip(inputs, maps_of(operation), strict=False)
    ]
    element = ir.RankedTensorType(operation.results[0].type).element_type
    kind = ir.RankedTensorType.get([size for _, size in box], element, loc=operation.location)
    empty = ir.Operation.create("tensor.empty", results=[kind], loc=operation.location, ip=at).result
    made = operation.clone(ip=at)
    for number, value in enumerate((*operands, empty)):
        made.operands[number] = value
    made.results[0].set_type(kind)
    return made.results[0]


# Parameters: what is read, where, and the place of the new operation.
def _read(
    value: ir.Value, map_: ir.AffineMap, box: Sequence[tuple[int, int]], at: ir.InsertionPoint, location: ir.Location
) -> ir.Value:
    """The elements of `value` that `map_` reads at the points in `box`."""
    shape = ir.RankedTensorType(value.type).shape
    taken = tuple(
        box[entry.position] if isinstance(entry, ir.AffineDimExpr) else (0, size)
        for entry, size in zip(map_.results, shape, strict=True)
    )
    return slice_at(value, taken, at, location)
