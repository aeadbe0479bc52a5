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

from motet.compiler.frontends.onnx.tensors import kind_of, know_operations, replace_all
from motet.compiler.frontends.torch import operands
from motet.compiler.frontends.torch.region_operands import RegionOperands
from motet.compiler.frontends.torch.region_pools import lower_pool
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.current import DYNAMIC, create
from motet.compiler.ir.loops import repeat
from motet.compiler.ir.sizes import constant_index
from motet.compiler.operators.arithmetic import AT_LEAST, AT_MOST, EQUAL, Floats, both
from motet.compiler.operators.pointwise import clamped, size_of

_ALIGN, _SPLIT_ALIGN = "torch.torchvision.roi_align", "torch.torchvision.ps_roi_align"
_POOL, _SPLIT_POOL = "torch.torchvision.roi_pool", "torch.torchvision.ps_roi_pool"
_ALL = (_ALIGN, _SPLIT_ALIGN, _POOL, _SPLIT_POOL)
_MOST = 4  # samples along an axis of a cell, which are written one by one
_FAR = 1e9  # more samples than an axis has


@dataclass(frozen=True)
class _Sample:
    """A sample's two elements along one axis, their weights, and whether it is inside."""

    places: tuple[ir.Value, ir.Value]
    weights: tuple[ir.Value, ir.Value]
    inside: ir.Value


@dataclass(frozen=True)
class _CellLine:
    """The samples of a cell along an axis: `count` (a number), `step` apart, of a cell that begins at `begin`."""

    f: Floats
    size: ir.Value
    begin: ir.Value
    step: ir.Value
    count: ir.Value

    def sample(self, number: ir.Value) -> _Sample:
        """That of the number `number`, a float."""
        f = self.f
        at = f.add(self.begin, f.mul(f.add(number, f.of(0.5)), self.step))
        size, last = f.of_index(self.size), create("arith.subi", self.size.type, [self.size, constant_index(1)])
        inside = both(f.compare(AT_LEAST, at, f.of(-1)), f.compare(AT_MOST, at, size))
        place = f.clip(at, f.of(0), f.of_index(last))
        first = f.floor(place)
        part = f.sub(place, first)
        index = f.index(first)
        following = create("arith.addi", index.type, [index, constant_index(1)])
        places = (clamped(index, last), clamped(following, last))
        return _Sample(places, (f.sub(f.of(1), part), part), inside)

    def ends(self) -> tuple[ir.Value, ir.Value]:
        """The numbers of samples that may be inside: the first, and the one after the last."""
        f = self.f
        most = f.clip(self.count, f.of(0), f.of(_FAR))
        ends = [f.div(f.sub(end, self.begin), self.step) for end in (f.of(-1), f.of_index(self.size))]
        first = f.clip(f.floor(f.sub(f.least(*ends), f.of(2))), f.of(0), most)
        last = f.clip(f.ceil(f.add(f.most(*ends), f.of(2))), f.of(0), most)
        same = f.compare(EQUAL, self.step, f.of(0))  # all samples are at one place
        return f.index(f.select(same, f.of(0), first)), f.index(f.select(same, most, last))


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
        count = f.mul(y.count, x.count)
        if self.of.is_split:
            return f.narrowed(f.div(total, count), self.of.kind)
        return f.narrowed(f.div(total, f.most(count, f.of(1))), self.of.kind)

    def _line(self, axis: int, loops: Sequence[ir.Value]) -> _CellLine:
        f, of = self.of.floats, self.of
        numbers = (of.number(loops[0], column) for column in (2 - axis, 4 - axis))
        low, high = (f.sub(f.mul(number, f.of(of.scale)), f.of(self.shift)) for number in numbers)
        length = f.sub(high, low)
        length = length if self.least is None else f.most(length, f.of(self.least))
        width = f.div(length, f.of(of.cells[axis]))
        count = f.of(self.samples) if self.samples > 0 else f.ceil(width)
        begin = f.add(low, f.mul(f.of_index(loops[2 + axis]), width))
        return _CellLine(f, size_of(of.image, 2 + axis), begin, f.div(width, count), count)

    def _listed(self, plane: Sequence[ir.Value], y: _CellLine, x: _CellLine) -> ir.Value:
        f = self.of.floats
        lines = [[line.sample(f.of(number)) for number in range(self.samples)] for line in (y, x)]
        return f.total([self._between(plane, *each) for each in itertools.product(*lines)])

    def _looped(self, plane: Sequence[ir.Value], y: _CellLine, x: _CellLine) -> ir.Value:
        f = self.of.floats
        columns = x.ends()

        def row(number: ir.Value, before: Sequence[ir.Value]) -> Sequence[ir.Value]:
            own = y.sample(f.of_index(number))

            def column(number: ir.Value, before: Sequence[ir.Value]) -> Sequence[ir.Value]:
                return [f.add(before[0], self._between(plane, own, x.sample(f.of_index(number))))]

            return repeat(*columns, before, column)

        return repeat(*y.ends(), [f.of(0)], row)[0]

    def _between(self, plane: Sequence[ir.Value], y: _Sample, x: _Sample) -> ir.Value:
        """The sample between four elements; zero outside."""
        f = self.of.floats
        terms = [
            f.mul(self.of.read(plane, y.places[row], x.places[column]), f.mul(y.weights[row], x.weights[column]))
            for row, column in itertools.product(range(2), range(2))
        ]
        return f.select(both(y.inside, x.inside), f.total(terms), f.of(0))


def lower_regions(module: ir.Module) -> None:
    """Rewrites the module in place. Operators over split channels, of which a call decides the number, stay."""
    with module.context:
        found = operands.operators(module, *_ALL)
        if found:
            know_operations(module)
        for operator in found:
            with operator.location, ir.InsertionPoint(operator):
                _lower(operator)


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
