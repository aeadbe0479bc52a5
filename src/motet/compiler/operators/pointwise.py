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
from motet.compiler.ir.current import DYNAMIC, create
from motet.compiler.ir.sizes import constant_index, extent_of

EQUAL, GREATER, AT_LEAST, LESS, AT_MOST, UNORDERED = 1, 2, 3, 4, 5, 14  # predicates of arith.cmpf


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


@dataclass(frozen=True)
class Floats:
    """Arithmetic in one floating-point type, at the current insertion point."""

    kind: ir.Type

    def of(self, value: float) -> ir.Value:
        return create("arith.constant", self.kind, [], {"value": ir.FloatAttr.get(self.kind, value)})

    def add(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return create("arith.addf", self.kind, [a, b])

    def sub(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return create("arith.subf", self.kind, [a, b])

    def mul(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return create("arith.mulf", self.kind, [a, b])

    def div(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return create("arith.divf", self.kind, [a, b])

    def least(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """The smaller number; `b` if one is NaN."""
        return self.select(self.compare(LESS, a, b), a, b)

    def most(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """The larger number; `b` if one is NaN."""
        return self.select(self.compare(GREATER, a, b), a, b)

    def floor(self, value: ir.Value) -> ir.Value:
        return create("math.floor", self.kind, [value])

    def ceil(self, value: ir.Value) -> ir.Value:
        return create("math.ceil", self.kind, [value])

    def round(self, value: ir.Value) -> ir.Value:
        """The nearest integer; the even one of two."""
        return create("math.roundeven", self.kind, [value])

    def round_away(self, value: ir.Value) -> ir.Value:
        """The nearest integer; of two, the one farther from zero."""
        size = self.magnitude(value)
        whole = self.floor(size)
        more = self.compare(AT_LEAST, self.sub(size, whole), self.of(0.5))
        near = self.add(whole, self.select(more, self.of(1), self.of(0)))
        return self.select(self.compare(LESS, value, self.of(0)), self.sub(self.of(0), near), near)

    def magnitude(self, value: ir.Value) -> ir.Value:
        return create("math.absf", self.kind, [value])

    def clip(self, value: ir.Value, low: ir.Value, high: ir.Value) -> ir.Value:
        return self.least(self.most(value, low), high)

    def compare(self, predicate: int, a: ir.Value, b: ir.Value) -> ir.Value:
        bit = ir.IntegerType.get_signless(1)
        return create("arith.cmpf", bit, [a, b], {"predicate": _i64(predicate)})

    def select(self, condition: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
        return create("arith.select", self.kind, [condition, a, b])

    def total(self, values: Sequence[ir.Value]) -> ir.Value:
        found = values[0]
        for value in values[1:]:
            found = self.add(found, value)
        return found

    def polynomial(self, value: ir.Value, factors: Sequence[float]) -> ir.Value:
        """The polynomial with these factors, that of the highest power first."""
        found = self.of(factors[0])
        for factor in factors[1:]:
            found = self.add(self.mul(found, value), self.of(factor))
        return found

    def cubic(self, part: ir.Value, rest: ir.Value, a: float) -> list[ir.Value]:
        """The weights of the two elements before and the two after a place, `part` after the second one, `rest` before
        the third, by the cubic filter of the parameter `a`."""
        near, far = (a + 2, -(a + 3), 0, 1), (a, -5 * a, 8 * a, -4 * a)
        one = self.of(1)
        return [
            self.polynomial(self.add(part, one), far), self.polynomial(part, near), self.polynomial(rest, near),
            self.polynomial(self.add(rest, one), far),
        ]

    def wide(self, value: ir.Value) -> ir.Value:
        """A number of a narrower type, or of this one."""
        return value if value.type == self.kind else create("arith.extf", self.kind, [value])

    def narrowed(self, value: ir.Value, kind: ir.Type) -> ir.Value:
        return value if kind == self.kind else create("arith.truncf", kind, [value])

    def of_index(self, value: ir.Value) -> ir.Value:
        word = ir.IntegerType.get_signless(64)
        return create("arith.sitofp", self.kind, [create("arith.index_cast", word, [value])])

    def index(self, value: ir.Value) -> ir.Value:
        """A whole number below 2³¹ as an index."""
        whole = create("arith.fptosi", ir.IntegerType.get_signless(32), [value])
        return create("arith.index_cast", ir.IndexType.get(), [whole])


def both(a: ir.Value, b: ir.Value) -> ir.Value:
    return create("arith.andi", a.type, [a, b])


def clamped(index: ir.Value, last: ir.Value) -> ir.Value:
    """An index from 0 to `last`."""
    above = create("arith.maxsi", index.type, [index, constant_index(0)])
    return create("arith.minsi", index.type, [above, last])


def floats_for(kind: ir.Type) -> Floats:
    """The type in which numbers of type `kind` are calculated with: f64 for itself, f32 for all others."""
    return Floats(kind if isinstance(kind, ir.F64Type) else ir.F32Type.get())


def size_of(tensor: ir.Value, axis: int) -> ir.Value:
    """The extent of a tensor of MLIR, as an index."""
    extent = ir.RankedTensorType(tensor.type).shape[axis]
    return extent_of(tensor, axis) if extent == DYNAMIC else constant_index(extent)


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
    parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>")
    made = ir.Operation.create(
        "linalg.generic", results=[result], regions=1,
        operands=[*(read.tensor for read in reads), create("tensor.empty", result, sizes)],
        attributes={
            "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(one) for one in maps]),
            "iterator_types": ir.ArrayAttr.get([parallel] * rank),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(reads), 1]),
        },
    )
    kinds = [*(ir.RankedTensorType(read.tensor.type).element_type for read in reads), result.element_type]
    block = made.regions[0].blocks.append(*kinds, arg_locs=[made.location] * len(kinds))
    with ir.InsertionPoint(block):
        loops = [create("linalg.index", ir.IndexType.get(), [], {"dim": _i64(loop)}) for loop in range(rank)]
        ir.Operation.create("linalg.yield", operands=[body(list(block.arguments)[:-1], loops)])
    return made.results[0]


def merged_type(kind: ir.RankedTensorType, first: int, count: int) -> ir.RankedTensorType:
    """`kind` with the `count` static axes from `first` on merged into one."""
    shape = kind.shape
    return ir.RankedTensorType.get(
        [*shape[:first], math.prod(shape[first : first + count]), *shape[first + count :]], kind.element_type
    )


def merged(tensor: ir.Value, first: int, count: int) -> ir.Value:
    """`tensor` with the `count` static axes from `first` on merged into one."""
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
    return ir.ArrayAttr.get([ir.ArrayAttr.get([_i64(axis) for axis in group]) for group in groups])


def _i64(value: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
