"""Writes one `linalg.generic` that computes each element of a tensor from other tensors, at computed places.

    with op.context, op.location, ir.InsertionPoint(op):
        source = builtin(op.operands[0])
        result = pointwise(kind, sizes, [Read(table, (2,))], lambda values, loops: …)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import reassociation_attribute
from motet.compiler.ir.current import DYNAMIC, create
from motet.compiler.ir.nests import loops
from motet.compiler.ir.sizes import constant_index, extent_of


@dataclass(frozen=True)
class Read:
    """A tensor whose element at the loops `loops` is an operand of each point."""

    tensor: ir.Value
    loops: Sequence[int]

    def places(self) -> list[ir.AffineExpr]:
        return [ir.AffineDimExpr.get(loop) for loop in self.loops]


@dataclass(frozen=True)
class WindowRead:
    """A tensor whose element is an operand of each point: along each axis at the sum of some loops, each multiplied by
    its factor."""

    tensor: ir.Value
    axes: Sequence[Mapping[int, int]]

    def places(self) -> list[ir.AffineExpr]:
        found: list[ir.AffineExpr] = []
        for factors in self.axes:
            place: ir.AffineExpr = ir.AffineConstantExpr.get(0)
            for loop, factor in factors.items():
                place = ir.AffineExpr.get_add(place, ir.AffineExpr.get_mul(ir.AffineDimExpr.get(loop), factor))
            found.append(place)
        return found


def clamped(index: ir.Value, last: ir.Value) -> ir.Value:
    """An index from 0 to `last`."""
    above = create("arith.maxsi", index.type, [index, constant_index(0)])
    return create("arith.minsi", index.type, [above, last])


def size_of(tensor: ir.Value, axis: int) -> ir.Value:
    """The extent of a tensor of MLIR, as an index."""
    extent = ir.RankedTensorType(tensor.type).shape[axis]
    return extent_of(tensor, axis) if extent == DYNAMIC else constant_index(extent)


def dynamic_sizes(tensor: ir.Value) -> list[ir.Value]:
    """The dynamic extents of a tensor of MLIR, as indices."""
    kind = ir.RankedTensorType(tensor.type)
    return [size_of(tensor, axis) for axis in range(kind.rank) if kind.is_dynamic_dim(axis)]


def known_extent(index: ir.Value) -> int:
    """The extent that a constant index is; the number for dynamic extents if it is none."""
    owner = index.owner
    if isinstance(owner, ir.Block) or owner.name != "arith.constant":
        return DYNAMIC
    return ir.IntegerAttr(owner.attributes["value"]).value


def table(values: np.ndarray, kind: ir.Type) -> ir.Value:
    """A constant of one axis: f32, f64 or i64."""
    shape = ir.RankedTensorType.get(values.shape, kind)
    dtype = np.int64 if isinstance(kind, ir.IntegerType) else np.float64 if isinstance(kind, ir.F64Type) else np.float32
    data = ir.DenseElementsAttr.get(np.ascontiguousarray(values, dtype), type=shape)
    return create("arith.constant", shape, [], {"value": data})


def pointwise(
    result: ir.RankedTensorType, sizes: Sequence[ir.Value], reads: Sequence[Read | WindowRead],
    body: Callable[[Sequence[ir.Value], Sequence[ir.Value]], ir.Value],
) -> ir.Value:
    """A tensor of the type `result`, whose dynamic extents are `sizes`. `body` writes the element of a point, given the
    elements that are read there and the point's indices."""
    rank = result.rank
    maps = [ir.AffineMap.get(rank, 0, read.places()) for read in reads]
    maps.append(ir.AffineMap.get_identity(rank))

    def point(block: ir.Block) -> ir.Value:
        indices = [create("linalg.index", ir.IndexType.get(), [], {"dim": _i64(loop)}) for loop in range(rank)]
        return body(list(block.arguments)[:-1], indices)

    return loops([read.tensor for read in reads], create("tensor.empty", result, sizes), maps, point)


def merged_type(kind: ir.RankedTensorType, first: int, count: int) -> ir.RankedTensorType:
    """`kind` with the `count` axes from `first` on merged into one."""
    shape, group = kind.shape, kind.shape[first : first + count]
    extent = DYNAMIC if DYNAMIC in group else math.prod(group)
    return ir.RankedTensorType.get([*shape[:first], extent, *shape[first + count :]], kind.element_type)


def merged(tensor: ir.Value, first: int, count: int) -> ir.Value:
    """`tensor` with the `count` axes from `first` on merged into one."""
    kind = ir.RankedTensorType(tensor.type)
    if count == 1:
        return tensor
    groups = {"reassociation": _groups(kind.rank, first, count)}
    return create("tensor.collapse_shape", merged_type(kind, first, count), [tensor], groups)


def split(
    tensor: ir.Value, kind: ir.RankedTensorType, first: int, count: int, sizes: Sequence[ir.Value]
) -> ir.Value:
    """The inverse of `merged`: a tensor of the type `kind`, whose dynamic extents are `sizes`."""
    if count == 1:
        return tensor
    return create("tensor.expand_shape", kind, [tensor, *sizes], {
        "reassociation": _groups(kind.rank, first, count), "static_output_shape": ir.DenseI64ArrayAttr.get(kind.shape),
    })


def _groups(rank: int, first: int, count: int) -> ir.Attribute:
    """The axes that each axis of the merged tensor has."""
    groups = [[axis] for axis in range(first)] + [list(range(first, first + count))]
    groups += [[axis] for axis in range(first + count, rank)]
    return reassociation_attribute(groups)


def _i64(value: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
