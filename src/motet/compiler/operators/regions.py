"""Pooling of regions of images: means or maxima of samples in each cell of a region.

    y[r, c, i, j] = mean or maximum of the samples in cell (i, j) of region r

Each sample is between four elements; those outside are zero. If there are many samples, or as many as a region is
large, each point has a loop over those that may be inside.

Sources: torchvision's `csrc/ops/cpu/roi_align_common.h`; ONNX's specification of RoiAlign (operator set 16).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import DYNAMIC
from motet.compiler.ir.loops import repeat
from motet.compiler.ir.sizes import as_index, constant_index, element_at, on_indices
from motet.compiler.operators.arithmetic import Floats, Real, Truth, floats_for
from motet.compiler.operators.pointwise import Read, clamped, pointwise, size_of
from motet.compiler.operators.taps import StoredTaps, Tap, has_many_channels, last_places, weighted_elements

_MOST = 4  # samples along an axis of a cell, which are written one by one
_FAR = 1e9  # more samples than an axis has


@dataclass(frozen=True)
class RegionOperands:
    """An `image` [N, C, H, W] and `regions` [R, 4], or [R, 5] with the number of their image first, whose results are
    [R, channels, cells…]. If it `is_split`, each cell of a result's channel has a channel of the image. `images` are
    the numbers of the images of regions without."""

    image: ir.Value
    regions: ir.Value
    scale: float
    cells: tuple[int, int]
    is_split: bool = False
    images: ir.Value | None = None

    @property
    def kind(self) -> ir.Type:
        return ir.RankedTensorType(self.image.type).element_type

    @property
    def floats(self) -> Floats:
        return floats_for(self.kind)

    def pointwise(
        self, kind: ir.Type, body: Callable[[Sequence[ir.Value], Sequence[ir.Value]], ir.Value],
        reads: Sequence[Read] = (),
    ) -> ir.Value:
        """A result of elements of the type `kind`; `body` writes that of a region, channel and cell."""
        channels = ir.RankedTensorType(self.image.type).shape[1]
        if self.is_split:
            channels //= self.cells[0] * self.cells[1]
        shape = [ir.RankedTensorType(self.regions.type).shape[0], channels, *self.cells]
        sizes = [
            size_of(*of) for of, extent in (((self.regions, 0), shape[0]), ((self.image, 1), channels))
            if extent == DYNAMIC
        ]
        return pointwise(ir.RankedTensorType.get(shape, kind), sizes, reads, body)

    def ends(self, region: ir.Value, axis: int) -> tuple[Real, Real]:
        """The ends of a region along an axis of the image, 0 or 1."""
        first = 1 - axis + (self.images is None)
        low, high = (self._number(region, column) * self.scale for column in (first, first + 2))
        return low, high

    def _number(self, region: ir.Value, column: int) -> Real:
        return self.floats.wide(element_at(self.regions, [region, constant_index(column)]))

    def plane(self, loops: Sequence[ir.Value]) -> tuple[ir.Value, ir.Value]:
        """The image and the channel that a point reads. A region that is of no image reads the first or the last."""
        last = on_indices("arith.subi", size_of(self.image, 0), constant_index(1))
        if self.images is None:
            image = self.floats.index(self._number(loops[0], 0))
        else:
            image = as_index(element_at(self.images, [loops[0]]))
        return clamped(image, last), self.channel(loops)

    def channel(self, loops: Sequence[ir.Value]) -> ir.Value:
        channel = loops[1]
        if self.is_split:
            for cells, cell in zip(self.cells, loops[2:], strict=True):
                channel = on_indices("arith.addi", on_indices("arith.muli", channel, constant_index(cells)), cell)
        return channel

    def last_elements(self) -> list[ir.Value]:
        """The last row and the last column. Places clamped by them get no check: it would end a loop early."""
        return last_places(self.image, (2, 3))

    def read(self, plane: Sequence[ir.Value], at: Sequence[ir.Value]) -> Real:
        return self.floats.wide(element_at(self.image, [*plane, *at]))


# -- means and maxima of samples ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _CellLine:
    """The samples of a cell along an axis: `count` (a number), `step` apart, of a cell that begins at `begin`."""

    f: Floats
    size: ir.Value
    begin: Real
    step: Real
    count: Real

    def sample(self, number: Real) -> list[Tap]:
        """The two elements around that of the number `number`, a float."""
        f = self.f
        at = self.begin + (number + 0.5) * self.step
        size, last = f.of_index(self.size), on_indices("arith.subi", self.size, constant_index(1))
        inside = (at >= -1) & (at <= size)
        place = f.clip(at, 0, f.of_index(last))
        first = f.floor(place)
        part = place - first
        index = f.index(first)
        following = clamped(on_indices("arith.addi", index, constant_index(1)), last)
        return [Tap(index, 1 - part, inside), Tap(following, part, inside)]

    def ends(self) -> tuple[ir.Value, ir.Value, Truth]:
        """The numbers of samples that may be inside: the first, and the one after the last; whether these are all."""
        f = self.f
        most = f.clip(self.count, 0, _FAR)
        ends = [(end - self.begin) / self.step for end in (f.of(-1), f.of_index(self.size))]
        same = self.step == 0  # all samples are at one place
        first = f.select(same, 0, f.clip(f.floor(f.least(*ends) - 2), 0, most))
        last = f.select(same, most, f.clip(f.ceil(f.most(*ends) + 2), 0, most))
        return f.index(first), f.index(last), (first == 0) & (last == most)


@dataclass(frozen=True)
class AlignedRegions:
    """Means of samples, or the `largest` one: `samples` along each axis of a cell, or as many as cells are long if it
    is not positive. Regions are shifted by `shift`, and have at least `least` elements along an axis."""

    of: RegionOperands
    samples: int
    shift: float
    least: float | None
    largest: bool = False

    def pooled(self) -> ir.Value:
        f, of = self.of.floats, self.of
        if not 0 < self.samples <= _MOST:
            return of.pointwise(of.kind, self._looped)
        count, axes = ir.RankedTensorType(of.regions.type).shape[0], range(2)
        sizes = [size_of(of.regions, 0)] if count == DYNAMIC else []
        form, reads = StoredTaps(2 * self.samples), list[Read]()
        for axis in axes if has_many_channels(of.image) else ():
            points = ir.RankedTensorType.get([count, of.cells[axis]], f.kind)
            tensors = form.store(points, sizes, partial(self._listed, axis))
            reads += [Read(tensor, (0, 2 + axis)) for tensor in tensors]
        lasts = of.last_elements()

        def body(values: Sequence[ir.Value], loops: Sequence[ir.Value]) -> ir.Value:
            parts, plane = iter(values), of.plane(loops)
            lines = [form.load(parts) if reads else self._listed(axis, [loops[0], loops[2 + axis]]) for axis in axes]
            found = self._all(weighted_elements(f, lines, lasts, lambda at: of.read(plane, at)))
            return f.narrowed(found if self.largest else found / self.samples**2, of.kind)

        return of.pointwise(of.kind, body, reads)

    def _listed(self, axis: int, at: Sequence[ir.Value]) -> list[Tap]:
        line = self._line(axis, at[0], at[1])
        return [tap for number in range(self.samples) for tap in line.sample(self.of.floats.of(number))]

    def _line(self, axis: int, region: ir.Value, cell: ir.Value) -> _CellLine:
        f, of = self.of.floats, self.of
        low, high = (end - self.shift for end in of.ends(region, axis))
        length = high - low if self.least is None else f.most(high - low, self.least)
        width = length / of.cells[axis]
        count = f.of(self.samples) if self.samples > 0 else f.ceil(width)
        return _CellLine(f, size_of(of.image, 2 + axis), low + f.of_index(cell) * width, width / count, count)

    def _all(self, values: Sequence[Real]) -> Real:
        f = self.of.floats
        return reduce(f.maximum, values) if self.largest else f.total(values)

    def _looped(self, _: Sequence[ir.Value], loops: Sequence[ir.Value]) -> ir.Value:
        f, plane, lasts = self.of.floats, self.of.plane(loops), self.of.last_elements()
        y, x = (self._line(axis, loops[0], loops[2 + axis]) for axis in range(2))
        (top, bottom, all_rows), (left, right, all_columns) = y.ends(), x.ends()

        def row(number: ir.Value, before: Sequence[ir.Value]) -> Sequence[ir.Value]:
            own = y.sample(f.of_index(number))

            def column(number: ir.Value, before: Sequence[ir.Value]) -> Sequence[ir.Value]:
                lines = own, x.sample(f.of_index(number))
                terms = weighted_elements(f, lines, lasts, lambda at: self.of.read(plane, at))
                return [self._all([Real(before[0]), self._all(terms)])]

            return repeat(left, right, before, column)

        start = f.select(all_rows & all_columns, -math.inf, 0) if self.largest else f.of(0)  # zeros are outside
        found = Real(repeat(top, bottom, [start], row)[0])
        if self.largest:
            found = f.select((y.count > 0) & (x.count > 0), found, 0)
        else:
            count = y.count * x.count
            found = found / (count if self.of.is_split else f.most(count, 1))
        return f.narrowed(found, self.of.kind)
