"""lower-regions: in the `torch` dialect, lowers pooling of regions of images to one operation.

    torch.torchvision.roi_align(%x, %regions, 0.25, 7, 7, 2, true)
 →  %y = linalg.generic { mean of 2 × 2 samples, each between 2 × 2 elements of the region's image }

If there are many samples, or as many as a region is large, each point has a loop over those that may be inside.

Source: torchvision's `csrc/ops/cpu/roi_align_common.h`, `ps_roi_align_kernel.cpp`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from motet.compiler.frontends.onnx.tensors import kind_of, replace_all
from motet.compiler.frontends.torch import operands
from motet.compiler.frontends.torch.region_operands import RegionOperands
from motet.compiler.frontends.torch.region_pools import lower_pool
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import DYNAMIC, create
from motet.compiler.ir.loops import repeat
from motet.compiler.ir.sizes import constant_index
from motet.compiler.operators.arithmetic import Floats, Real, Truth
from motet.compiler.operators.pointwise import clamped, size_of

_ALIGN, _SPLIT_ALIGN = "torch.torchvision.roi_align", "torch.torchvision.ps_roi_align"
_POOL, _SPLIT_POOL = "torch.torchvision.roi_pool", "torch.torchvision.ps_roi_pool"
_MOST = 4  # samples along an axis of a cell, which are written one by one
_FAR = 1e9  # more samples than an axis has


@dataclass(frozen=True)
class _Sample:
    """A sample's two elements along one axis, their weights, and whether it is inside."""

    places: tuple[ir.Value, ir.Value]
    weights: tuple[Real, Real]
    inside: Truth


@dataclass(frozen=True)
class _CellLine:
    """The samples of a cell along an axis: `count` (a number), `step` apart, of a cell that begins at `begin`."""

    f: Floats
    size: ir.Value
    begin: Real
    step: Real
    count: Real

    def sample(self, number: Real) -> _Sample:
        """That of the number `number`, a float."""
        f = self.f
        at = self.begin + (number + 0.5) * self.step
        size, last = f.of_index(self.size), create("arith.subi", self.size.type, [self.size, constant_index(1)])
        inside = (at >= -1) & (at <= size)
        place = f.clip(at, 0, f.of_index(last))
        first = f.floor(place)
        part = place - first
        index = f.index(first)
        following = create("arith.addi", index.type, [index, constant_index(1)])
        places = (clamped(index, last), clamped(following, last))
        return _Sample(places, (1 - part, part), inside)

    def ends(self) -> tuple[ir.Value, ir.Value]:
        """The numbers of samples that may be inside: the first, and the one after the last."""
        f = self.f
        most = f.clip(self.count, 0, _FAR)
        ends = [(end - self.begin) / self.step for end in (f.of(-1), f.of_index(self.size))]
        first = f.clip(f.floor(f.least(*ends) - 2), 0, most)
        last = f.clip(f.ceil(f.most(*ends) + 2), 0, most)
        same = self.step == 0  # all samples are at one place
        return f.index(f.select(same, 0, first)), f.index(f.select(same, most, last))


@dataclass(frozen=True)
class _Aligned:
    """Means of samples: `samples` along each axis of a cell, or as many as cells are long if it is not positive.
    Regions are shifted by `shift`, and have at least `least` elements along an axis."""

    of: RegionOperands
    samples: int
    shift: float
    least: float | None

    def element(self, loops: Sequence[ir.Value]) -> ir.Value:
        f = self.of.floats
        y, x = (self._line(axis, loops) for axis in range(2))
        plane = self.of.plane(loops)
        total = self._listed(plane, y, x) if 0 < self.samples <= _MOST else self._looped(plane, y, x)
        count = y.count * x.count
        return f.narrowed(total / (count if self.of.is_split else f.most(count, 1)), self.of.kind)

    def _line(self, axis: int, loops: Sequence[ir.Value]) -> _CellLine:
        f, of = self.of.floats, self.of
        numbers = (of.number(loops[0], column) for column in (2 - axis, 4 - axis))
        low, high = (number * of.scale - self.shift for number in numbers)
        length = high - low if self.least is None else f.most(high - low, self.least)
        width = length / of.cells[axis]
        count = f.of(self.samples) if self.samples > 0 else f.ceil(width)
        begin = low + f.of_index(loops[2 + axis]) * width
        return _CellLine(f, size_of(of.image, 2 + axis), begin, width / count, count)

    def _listed(self, plane: Sequence[ir.Value], y: _CellLine, x: _CellLine) -> Real:
        f = self.of.floats
        lines = [[line.sample(f.of(number)) for number in range(self.samples)] for line in (y, x)]
        return f.total([self._between(plane, *each) for each in itertools.product(*lines)])

    def _looped(self, plane: Sequence[ir.Value], y: _CellLine, x: _CellLine) -> Real:
        f = self.of.floats
        columns = x.ends()

        def row(number: ir.Value, before: Sequence[ir.Value]) -> Sequence[ir.Value]:
            own = y.sample(f.of_index(number))

            def column(number: ir.Value, before: Sequence[ir.Value]) -> Sequence[ir.Value]:
                return [Real(before[0]) + self._between(plane, own, x.sample(f.of_index(number)))]

            return repeat(*columns, before, column)

        return Real(repeat(*y.ends(), [f.of(0)], row)[0])

    def _between(self, plane: Sequence[ir.Value], y: _Sample, x: _Sample) -> Real:
        """The sample between four elements; zero outside."""
        f = self.of.floats
        terms = [
            self.of.read(plane, y.places[row], x.places[column]) * (y.weights[row] * x.weights[column])
            for row, column in itertools.product(range(2), range(2))
        ]
        return f.select(y.inside & x.inside, f.total(terms), 0)


def _lower(operator: ir.Operation) -> None:
    name = operands.operator_name(operator)
    is_split = name in (_SPLIT_ALIGN, _SPLIT_POOL)
    image = kind_of(operator.operands[0])
    if image is None or (is_split and image.extents[1] == DYNAMIC):
        return
    of = RegionOperands.of(operator, is_split)
    if name in (_POOL, _SPLIT_POOL):
        lower_pool(operator, of)
        return
    samples = operands.integer(operator.operands[5])
    is_shifted = is_split or bool(operands.constant(operator.operands[6]))
    aligned = _Aligned(of, samples, 0.5 if is_shifted else 0.0, None if is_shifted else 1.0)
    replace_all(operator, [of.pointwise(of.kind, aligned.element), *of.channels(operator)])


RULES = dict.fromkeys((_ALIGN, _SPLIT_ALIGN, _POOL, _SPLIT_POOL), _lower)
