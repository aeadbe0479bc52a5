"""collapse-broadcasts: replaces a broadcast followed by a collapse by a broadcast to the collapsed shape.

    %b = linalg.generic ins(%w : tensor<64x128xf32>)              %c = linalg.generic ins(%w : tensor<64x128xf32>)
           outs(%0 : tensor<2x8x64x128xf32>) { yield %in }    →          outs(%1 : tensor<16x64x128xf32>) { yield %in }
    %c = tensor.collapse_shape %b [[0, 1], [2], [3]]

A kernel reads a broadcast operand in place, but not through a reshape: a product of many leading dimensions by a matrix
would write a copy of the matrix for each of their elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import reassociation
from motet.compiler.ir.nests import nest
from motet.compiler.ir.sizes import constant_index, extent_of
from motet.compiler.passes.base import OperationPass


@dataclass(frozen=True)
class CollapseBroadcasts(OperationPass):
    """Dimensions are merged if each input is indexed by at most one of them, and the others have extent 1."""

    name = "collapse-broadcasts"
    takes = ("tensor.collapse_shape",)

    def rewrite(self, operation: ir.Operation) -> bool:
        broadcast = operation.operands[0].owner
        if isinstance(broadcast, ir.Block) or not _is_broadcast(broadcast.operation):
            return False
        broadcast = broadcast.operation
        groups = reassociation(operation)
        *maps, _ = [ir.AffineMapAttr(each).value for each in ir.ArrayAttr(broadcast.attributes["indexing_maps"])]
        shape = ir.RankedTensorType(operation.operands[0].type).shape
        kept = [_kept(group, maps, shape) for group in groups]
        if None in kept:
            return False
        place = {axis: number for number, axis in enumerate(kept) if axis is not None}
        collapsed = [_collapsed(each, place, shape, len(groups)) for each in maps]
        if any(each is None for each in collapsed):
            return False
        _rewrite(operation, broadcast, groups, [each for each in collapsed if each is not None])
        return True


def _is_broadcast(operation: ir.Operation) -> bool:
    """Whether an operation is a linalg.generic that only yields an input, over exactly the axes of its result."""
    if operation.name != "linalg.generic" or len(operation.results) != 1:
        return False
    *maps, output = [ir.AffineMapAttr(each).value for each in ir.ArrayAttr(operation.attributes["indexing_maps"])]
    if output != ir.AffineMap.get_identity(output.n_dims) or "reduction" in str(operation.attributes["iterator_types"]):
        return False
    body = operation.regions[0].blocks[0]
    whole = list(body.arguments)[-1]
    entries = [entry.operation for entry in body.operations]
    return not list(whole.uses) and all(entry.name == "linalg.yield" for entry in entries) and bool(maps)


def _kept(group: Sequence[int], maps: Sequence[ir.AffineMap], shape: Sequence[int]) -> int | None:
    """The dimension of `group` that represents all of them: the one that indexes inputs, if all others have extent 1,
    or any if there is none. None if several do."""
    used = {
        axis for axis in group for each in maps for result in each.results
        if isinstance(result, ir.AffineDimExpr) and result.position == axis and shape[axis] != 1
    }  # fmt: skip
    if not used:
        return group[0]
    axis = used.pop()
    alone = not used and all(other == axis or shape[other] == 1 for other in group)
    return axis if alone else None


def _collapsed(
    each: ir.AffineMap, place: dict[int, int], shape: Sequence[int], rank: int
) -> ir.AffineMap | None:
    """The map over the collapsed dimensions; None if it is not a selection of dimensions."""
    results: list[ir.AffineExpr] = []
    for result in each.results:
        if isinstance(result, ir.AffineConstantExpr):
            results.append(result)
        elif not isinstance(result, ir.AffineDimExpr):
            return None
        elif shape[result.position] == 1:
            results.append(ir.AffineConstantExpr.get(0, each.context))
        else:
            results.append(ir.AffineDimExpr.get(place[result.position], each.context))
    return ir.AffineMap.get(rank, 0, results, each.context)


def _rewrite(
    reshape: ir.Operation, broadcast: ir.Operation, groups: Sequence[Sequence[int]], maps: Sequence[ir.AffineMap]
) -> None:
    context, result = reshape.context, ir.RankedTensorType(reshape.results[0].type)
    *inputs, output = broadcast.operands
    identity = ir.AffineMap.get_identity(len(groups), context)
    with ir.InsertionPoint(reshape), reshape.location:
        sizes = [_extent(output, group) for group, extent in zip(groups, result.shape, strict=True) if extent < 0]
        empty = ir.Operation.create("tensor.empty", results=[result], operands=sizes).result
    body = broadcast.regions[0].blocks[0]
    yielded, arguments = body.operations[0].operation.operands[0], list(body.arguments)
    number = arguments.index(yielded) if yielded in arguments else None
    made = nest(reshape, inputs, empty, [*maps, identity], lambda block: (
        yielded if number is None else block.arguments[number]))
    reshape.results[0].replace_all_uses_with(made)
    reshape.erase()


def _extent(tensor: ir.Value, group: Sequence[int]) -> ir.Value:
    """The product of the extents of `tensor` along the axes of `group`."""
    shape = ir.RankedTensorType(tensor.type).shape
    factors = [extent_of(tensor, axis) if shape[axis] < 0 else constant_index(shape[axis]) for axis in group]
    found, *others = factors
    for factor in others:
        found = ir.Operation.create("arith.muli", results=[found.type], operands=[found, factor]).result
    return found
