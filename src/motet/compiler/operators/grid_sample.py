"""Samples of images at computed places: each is a sum of weighted elements around a place.

    y[n, c, p] = Σ x[n, c, place[n, p, tap]] · weight[n, p, tap]

A coordinate of -1 is the first element of an axis, or its outer edge, and 1 the last one.

Sources: PyTorch's `aten/src/ATen/native/GridSampler.h`; ONNX's specification of GridSample (operator set 20).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.sizes import constant_index, element_at
from motet.compiler.operators.arithmetic import Floats, Real
from motet.compiler.operators.pointwise import Read, merged, merged_type, pointwise, size_of, split
from motet.compiler.operators.taps import StoredTaps, Tap, has_many_channels, last_places, weighted_elements

MODES = ("linear", "nearest", "cubic")
PADDINGS = ("zeros", "border", "reflection")
_A = -0.75  # of the cubic filter
_FAR = 1e18  # a place whose products are finite
_TAPS = {"linear": 2, "nearest": 1, "cubic": 4}  # along an axis


@dataclass(frozen=True)
class GridSampling:
    """What a sample is: one of `MODES`, between the corners of the outermost elements or, if `aligned`, their middles.
    Outside is one of `PADDINGS`. If it `settles_first`, a place outside is moved inside before its elements are found,
    and rounded before if the mode is `nearest`; NaN is the coordinate -1, else a place before all elements."""

    mode: str
    padding: str
    aligned: bool
    settles_first: bool = False

    @property
    def stored(self) -> StoredTaps:
        bounded = self.padding == "zeros" or self.mode == "linear"
        return StoredTaps(_TAPS[self.mode], weighted=self.mode != "nearest", bounded=bounded)


@dataclass(frozen=True)
class _GridLine:
    """An axis of `size` elements, of which `last` is the number of the last one."""

    f: Floats
    how: GridSampling
    size: Real
    last: Real

    def taps(self, coordinate: Real) -> list[Tap]:
        """The elements around `coordinate`, a number from -1 to 1."""
        f, mode = self.f, self.how.mode
        at = self._place(coordinate)
        if mode == "nearest":
            return [self._tap(f.round(self._settled(at)), None)]
        if mode == "linear":
            at = self._settled(at)
        first = f.floor(at)
        part = at - first
        if mode == "linear":
            return [self._tap(first, 1 - part), self._tap(first + 1, part)]
        rest = 1 - part
        weights = [
            f.far_cubic(part + 1, _A), f.near_cubic(part, _A), f.near_cubic(rest, _A), f.far_cubic(rest + 1, _A),
        ]
        places = [self._settled(first + k) for k in (-1, 0, 1, 2)]
        return [self._tap(place, weight) for place, weight in zip(places, weights, strict=True)]

    def _place(self, coordinate: Real) -> Real:
        f, how = self.f, self.how
        if how.settles_first:
            coordinate = f.select(coordinate == coordinate, coordinate, -1)
        moved = coordinate + 1
        at = moved * 0.5 * self.last if how.aligned else (moved * self.size - 1) * 0.5
        at = f.clip(at, -_FAR, _FAR)
        if not how.settles_first:
            return at
        at = f.round(at) if how.mode == "nearest" else at
        end = 0 if how.aligned else 0.5
        moved = self._reflected(at) if how.padding == "reflection" else self._settled(at)
        return f.select((at >= -end) & (at <= self.last + end), at, moved)

    def _settled(self, at: Real) -> Real:
        """A place inside; with zeros around the image, as it is."""
        if self.how.padding == "zeros":
            return at
        inner = at if self.how.padding == "border" else self._reflected(at)
        return self.f.clip(inner, 0, self.last)

    def _reflected(self, at: Real) -> Real:
        """At the middles of the outermost elements, or at their edges."""
        f = self.f
        low, span = (0, self.last) if self.how.aligned else (-0.5, self.size)
        single = span == 0
        span = f.select(single, 1, span)
        distance = abs(at - low)
        flips = f.floor(distance / span)
        extra = distance - flips * span
        even = f.floor(flips * 0.5) * 2 == flips
        return f.select(single, 0, f.select(even, extra, span - extra) + low)

    def _tap(self, place: Real, weight: Real | None) -> Tap:
        inner = self.f.clip(place, 0, self.last)
        return Tap(self.f.index(inner), weight, inner == place if self.how.stored.bounded else None)


def grid_sample(image: ir.Value, grid: ir.Value, how: GridSampling) -> ir.Value:
    """The samples of `image`, [N, C, …], at the places of `grid`, [N, …, axes], whose last axis comes first."""
    kind, of_grid = ir.RankedTensorType(image.type), ir.RankedTensorType(grid.type)
    wide = ir.F64Type.get() in (kind.element_type, of_grid.element_type)
    f = Floats(ir.F64Type.get() if wide else ir.F32Type.get())
    spatial = range(2, kind.rank)
    lines = [_GridLine(f, how, size := f.of_index(size_of(image, axis)), size - 1) for axis in spatial]
    result = ir.RankedTensorType.get([*kind.shape[:2], *of_grid.shape[1:-1]], kind.element_type)
    sources = [(image, 0), (image, 1), *((grid, axis - 1) for axis in spatial)]
    sizes = [size_of(*source) for axis, source in enumerate(sources) if result.is_dynamic_dim(axis)]
    joined = len(spatial) if not any(result.is_dynamic_dim(axis) for axis in spatial) else 1  # axes that are one loop
    places, lasts = merged(grid, 1, joined), last_places(image, spatial)

    def taps(axis: int, loops: Sequence[ir.Value]) -> list[Tap]:
        number = constant_index(len(lines) - 1 - axis)
        return lines[axis].taps(f.wide(element_at(places, [*loops, number])))

    stored: list[ir.Value] = []
    if has_many_channels(image):
        points = ir.RankedTensorType.get(ir.RankedTensorType(places.type).shape[:-1], f.kind)
        dynamic = [size_of(places, axis) for axis in range(points.rank) if points.is_dynamic_dim(axis)]
        for axis in range(len(lines)):
            stored += how.stored.store(points, dynamic, partial(taps, axis))

    def body(values: Sequence[ir.Value], loops: Sequence[ir.Value]) -> ir.Value:
        own, parts = [loops[0], *loops[2:]], iter(values)
        found = [how.stored.load(parts) if stored else taps(axis, own) for axis in range(len(lines))]
        read = lambda at: f.wide(element_at(image, [*loops[:2], *at]))  # noqa: E731
        return f.narrowed(f.total(weighted_elements(f, found, lasts, read)), kind.element_type)

    whole = merged_type(result, 2, joined)
    reads = [Read(tensor, (0, *range(2, whole.rank))) for tensor in stored]
    return split(pointwise(whole, sizes, reads, body), result, 2, joined, sizes)
