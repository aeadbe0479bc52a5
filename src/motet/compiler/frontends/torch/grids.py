"""lower-grids: in the `torch` dialect, lowers grid samples to one operation, which sums the elements around each place.

    torch.operator "torch.aten.grid_sampler_2d"(%x, %grid, 0, 0, false)
 →  %y = linalg.generic { Σ over 2 × 2 elements: tensor.extract %x[%n, %c, %row, %column] · weight }

Elements outside are replaced by zero, and not multiplied by it, so that infinities do not spread.

Source of coordinates, borders and reflections: PyTorch's `aten/src/ATen/native/GridSampler.h`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_

from motet.compiler.frontends.onnx.tensors import builtin, replace
from motet.compiler.frontends.torch import operands
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import create
from motet.compiler.ir.sizes import constant_index, element_at
from motet.compiler.operators.arithmetic import Floats, Real, Truth, floats_for
from motet.compiler.operators.pointwise import merged, merged_type, pointwise, size_of, split

_LINEAR, _NEAREST, _CUBIC = range(3)
_ZEROS, _BORDER, _REFLECTION = range(3)
_A = -0.75  # of the cubic filter
_FAR = 1e18  # a place whose products are finite


@dataclass(frozen=True)
class _GridTap:
    """An element along one axis: its index, its weight, and whether it is inside; None: 1, and always."""

    place: ir.Value
    weight: Real | None
    inside: Truth | None


@dataclass(frozen=True)
class _GridSampler:
    f: Floats
    mode: int
    padding: int
    aligned: bool

    def taps(self, coordinate: Real, size: Real, last: Real) -> list[_GridTap]:
        """The elements around `coordinate`, a number from -1 to 1, along an axis of `size` elements; `last` is the
        number of the last one."""
        f = self.f
        at = self._place(coordinate, size, last)
        if self.mode == _NEAREST:
            return [self._tap(f.round(self._settled(at, size, last)), None, last)]
        if self.mode == _LINEAR:
            at = self._settled(at, size, last)
        first = f.floor(at)
        part = at - first
        if self.mode == _LINEAR:
            following = first + 1
            return [self._tap(first, 1 - part, last), self._tap(following, part, last)]
        rest = 1 - part
        weights = [
            f.far_cubic(part + 1, _A), f.near_cubic(part, _A), f.near_cubic(rest, _A), f.far_cubic(rest + 1, _A),
        ]
        places = [self._settled(first + k, size, last) for k in (-1, 0, 1, 2)]
        return [self._tap(place, weight, last) for place, weight in zip(places, weights, strict=True)]

    def _place(self, coordinate: Real, size: Real, last: Real) -> Real:
        moved = coordinate + 1
        place = moved * 0.5 * last if self.aligned else (moved * size - 1) * 0.5
        return self.f.clip(place, -_FAR, _FAR)  # of NaN: before the first element

    def _settled(self, at: Real, size: Real, last: Real) -> Real:
        """A place inside; with zeros around the image, as it is."""
        if self.padding == _ZEROS:
            return at
        inner = at if self.padding == _BORDER else self._reflected(at, size, last)
        return self.f.clip(inner, 0, last)

    def _reflected(self, at: Real, size: Real, last: Real) -> Real:
        """At the middles of the outermost elements, or at their edges."""
        f = self.f
        low, span = (0, last) if self.aligned else (-0.5, size)
        single = span == 0
        span = f.select(single, 1, span)
        distance = abs(at - low)
        flips = f.floor(distance / span)
        extra = distance - flips * span
        even = f.floor(flips * 0.5) * 2 == flips
        return f.select(single, 0, f.select(even, extra, span - extra) + low)

    def _tap(self, place: Real, weight: Real | None, last: Real) -> _GridTap:
        inner = self.f.clip(place, 0, last)
        always = self.padding != _ZEROS and self.mode != _LINEAR
        return _GridTap(self.f.index(inner), weight, None if always else inner == place)


def _lower(operator: ir.Operation) -> None:
    image, grid = (builtin(operand) for operand in operator.operands[:2])
    mode, padding = (operands.integer(operand) for operand in operator.operands[2:4])
    kind = ir.RankedTensorType(image.type)
    f = floats_for(kind.element_type)
    s = _GridSampler(f, mode, padding, bool(operands.constant(operator.operands[4])))
    spatial = range(2, kind.rank)
    sizes = [f.of_index(size_of(image, axis)) for axis in spatial]
    ends = [create("arith.subi", ir.IndexType.get(), [size_of(image, axis), constant_index(1)]) for axis in spatial]
    lasts = [size - 1 for size in sizes]
    sources = [(image, 0), (image, 1), *((grid, axis - 1) for axis in spatial)]
    shape = [ir.RankedTensorType(tensor.type).shape[axis] for tensor, axis in sources]
    result = ir.RankedTensorType.get(shape, kind.element_type)
    dynamic = [size_of(*source) for axis, source in enumerate(sources) if result.is_dynamic_dim(axis)]
    points = len(spatial) if not any(result.is_dynamic_dim(axis) for axis in spatial) else 1  # that are one loop
    grid = merged(grid, 1, points)

    def body(_: Sequence[ir.Value], loops: Sequence[ir.Value]) -> ir.Value:
        lines: list[list[_GridTap]] = []
        for axis, (size, last) in enumerate(zip(sizes, lasts, strict=True)):
            own = constant_index(len(sizes) - 1 - axis)
            coordinate = f.wide(element_at(grid, [loops[0], *loops[2:], own]))
            lines.append(s.taps(coordinate, size, last))
        return f.narrowed(_total(f, image, loops[:2], lines, ends), kind.element_type)

    value = pointwise(merged_type(result, 2, points), dynamic, [], body)
    replace(operator, split(value, result, 2, points, dynamic))


def _total(
    f: Floats, image: ir.Value, first: Sequence[ir.Value], lines: Sequence[Sequence[_GridTap]], ends: Sequence[ir.Value]
) -> Real:
    """The weighted sum of the elements that are the product of the `lines`, of the image and channel `first`."""
    terms: list[Real] = []
    for taps in itertools.product(*lines):
        places = [_inside(tap.place, end) for tap, end in zip(taps, ends, strict=True)]
        value = f.wide(element_at(image, [*first, *places]))
        if conditions := [tap.inside for tap in taps if tap.inside is not None]:
            value = f.select(reduce(and_, conditions), value, 0)
        for tap in taps:
            value = value if tap.weight is None else value * tap.weight
        terms.append(value)
    return f.total(terms)


def _inside(place: ir.Value, end: ir.Value) -> ir.Value:
    """A place that is inside also for the compiler, which then adds no check."""
    above = create("arith.maxsi", place.type, [place, constant_index(0)])
    return create("arith.minsi", place.type, [above, end])


RULES = dict.fromkeys(("torch.aten.grid_sampler_2d", "torch.aten.grid_sampler_3d"), _lower)
