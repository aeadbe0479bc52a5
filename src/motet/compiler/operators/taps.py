"""Taps: the elements around a place along an axis, with their weights. Those that several points share are stored.

    y[c, p] = Σ x[c, place[p, i], place[p, j]] · weight[p, i] · weight[p, j]

Elements outside are replaced by zero, and not multiplied by it, so that infinities do not spread.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_

from motet.compiler.ir._mlir import arith, ir
from motet.compiler.ir.current import create
from motet.compiler.ir.sizes import as_index, constant_index, on_indices
from motet.compiler.operators.arithmetic import Floats, Real, Truth
from motet.compiler.operators.pointwise import clamped, pointwise, size_of

_FEW = 4  # channels for each of which taps are calculated again


@dataclass(frozen=True)
class Tap:
    """An element along one axis: its index, its weight, and whether it is inside; None: 1, and always."""

    place: ir.Value
    weight: Real | None
    inside: Truth | None


@dataclass(frozen=True)
class StoredTaps:
    """`count` taps of each point, as tensors: of places, which are -1 outside, and of weights."""

    count: int
    weighted: bool = True
    bounded: bool = True  # some may be outside

    def store(
        self, points: ir.RankedTensorType, sizes: Sequence[ir.Value],
        taps: Callable[[Sequence[ir.Value]], Sequence[Tap]],
    ) -> list[ir.Value]:
        """The tensors of the taps that `taps` writes for the indices of a point. The element type of `points`, whose
        dynamic extents are `sizes`, is that of weights."""
        word = ir.RankedTensorType.get(points.shape, ir.IntegerType.get_signless(32))

        def stored(kind: ir.RankedTensorType, number: int, field: Callable[[Tap], ir.Value]) -> ir.Value:
            return pointwise(kind, sizes, [], lambda _, loops: field(taps(loops)[number]))

        found: list[ir.Value] = []
        for number in range(self.count):
            found.append(stored(word, number, _place))
            if self.weighted:
                found.append(stored(points, number, _weight))
        return found

    def load(self, values: Iterator[ir.Value]) -> list[Tap]:
        """The taps of a point whose elements of the stored tensors are next in `values`."""
        return [self._tap(values) for _ in range(self.count)]

    def _tap(self, values: Iterator[ir.Value]) -> Tap:
        place = as_index(next(values))
        weight = Real(next(values)) if self.weighted else None
        is_inside = arith.CmpIOp(arith.CmpIPredicate.sge, place, constant_index(0)) if self.bounded else None
        return Tap(place, weight, None if is_inside is None else Truth(is_inside.result))


def _place(tap: Tap) -> ir.Value:
    word = ir.IntegerType.get_signless(32)
    index = create("arith.index_cast", word, [tap.place])
    if tap.inside is None:
        return index
    outside = create("arith.constant", word, [], {"value": ir.IntegerAttr.get(word, -1)})
    return create("arith.select", word, [tap.inside, index, outside])


def _weight(tap: Tap) -> ir.Value:
    assert tap.weight is not None
    return tap.weight


def has_many_channels(image: ir.Value) -> bool:
    """Whether the channels of `image`, [N, C, …], which have the same taps, are worth storing these."""
    return not 0 < ir.RankedTensorType(image.type).shape[1] <= _FEW


def last_places(tensor: ir.Value, axes: Sequence[int]) -> list[ir.Value]:
    """The indices of the last elements along `axes`."""
    return [on_indices("arith.subi", size_of(tensor, axis), constant_index(1)) for axis in axes]


def weighted_elements(
    f: Floats, lines: Sequence[Sequence[Tap]], lasts: Sequence[ir.Value], read: Callable[[Sequence[ir.Value]], Real]
) -> list[Real]:
    """The weighted elements at the product of the taps of all axes. `read` reads one at indices that are at most
    `lasts` also for the compiler, which then adds no check."""
    terms: list[Real] = []
    for taps in itertools.product(*lines):
        value = read([clamped(tap.place, last) for tap, last in zip(taps, lasts, strict=True)])
        if conditions := [tap.inside for tap in taps if tap.inside is not None]:
            value = f.select(reduce(and_, conditions), value, 0)
        for tap in taps:
            value = value if tap.weight is None else value * tap.weight
        terms.append(value)
    return terms
