"""lower-regions: in the `torch` dialect, lowers pooling of regions of images to one operation.

    torch.torchvision.roi_align(%x, %regions, 0.25, 7, 7, 2, true)
 →  %y = linalg.generic { mean of 2 × 2 samples, each between 2 × 2 elements of the region's image }

A region that is of no image reads the first or the last one.

Source: torchvision's `csrc/ops/cpu/roi_align_common.h`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from motet.compiler.frontends.onnx.tensors import DYNAMIC, create, know_operations
from motet.compiler.frontends.torch import operands
from motet.compiler.frontends.torch.pointwise import (
    AT_LEAST,
    AT_MOST,
    Floats,
    both,
    builtin,
    floats_for,
    pointwise,
    replace,
    size_of,
)
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import find_operations
from motet.compiler.ir.sizes import constant_index

_OPERATOR = "torch.torchvision.roi_align"
_MOST = 4  # samples along an axis of a cell, which are written one by one


@dataclass(frozen=True)
class _Sample:
    """A sample's two elements along one axis, their weights, and whether it is inside."""

    places: tuple[ir.Value, ir.Value]
    weights: tuple[ir.Value, ir.Value]
    inside: ir.Value


@dataclass(frozen=True)
class _RegionAxis:
    """An axis of `size` elements that regions divide into `cells`, of `samples` each."""

    f: Floats
    size: ir.Value
    cells: int
    samples: int

    def of(self, low: ir.Value, high: ir.Value, cell: ir.Value, aligned: bool) -> list[_Sample]:
        f = self.f
        length = f.sub(high, low)
        width = f.div(length if aligned else f.most(length, f.of(1)), f.of(self.cells))
        begin = f.add(low, f.mul(f.of_index(cell), width))
        return [
            self._sample(f.add(begin, f.mul(width, f.of((number + 0.5) / self.samples))))
            for number in range(self.samples)
        ]

    def _sample(self, at: ir.Value) -> _Sample:
        f = self.f
        size, last = f.of_index(self.size), create("arith.subi", self.size.type, [self.size, constant_index(1)])
        inside = both(f.compare(AT_LEAST, at, f.of(-1)), f.compare(AT_MOST, at, size))
        end = f.of_index(last)
        place = f.clip(at, f.of(0), end)
        first = f.floor(place)
        part = f.sub(place, first)
        index = f.index(first)
        following = create("arith.addi", index.type, [index, constant_index(1)])
        places = (_clamped(index, last), _clamped(following, last))
        return _Sample(places, (f.sub(f.of(1), part), part), inside)


def lower_regions(module: ir.Module) -> None:
    """Rewrites the module in place. Operators with many samples, or as many as a region is large, stay as they are."""
    with module.context:
        found = [
            each for each in find_operations(module, _OPERATOR) if 0 < operands.integer(each.operands[5]) <= _MOST
        ]
        if found:
            know_operations(module)
        for operator in found:
            with operator.location, ir.InsertionPoint(operator):
                _lower(operator)


def _lower(operator: ir.Operation) -> None:
    image, regions = (builtin(operand) for operand in operator.operands[:2])
    scale = operands.number(operator.operands[2])
    high, wide, samples = (operands.integer(operand) for operand in operator.operands[3:6])
    aligned = bool(operands.constant(operator.operands[6]))
    kind, of_regions = ir.RankedTensorType(image.type), ir.RankedTensorType(regions.type)
    f = floats_for(kind.element_type)
    axes = [_RegionAxis(f, size_of(image, 2), high, samples), _RegionAxis(f, size_of(image, 3), wide, samples)]
    last_image = create("arith.subi", ir.IndexType.get(), [size_of(image, 0), constant_index(1)])
    result = ir.RankedTensorType.get([of_regions.shape[0], kind.shape[1], high, wide], kind.element_type)
    sizes = [size_of(*of) for of, extent in (((regions, 0), result.shape[0]), ((image, 1), result.shape[1]))
             if extent == DYNAMIC]  # fmt: skip

    def body(_: Sequence[ir.Value], loops: Sequence[ir.Value]) -> ir.Value:
        def number(column: int) -> ir.Value:
            place = [regions, loops[0], constant_index(column)]
            return f.wide(create("tensor.extract", of_regions.element_type, place))

        def end(column: int) -> ir.Value:
            return f.sub(f.mul(number(column), f.of(scale)), f.of(0.5 if aligned else 0))

        own = _clamped(f.index(number(0)), last_image)
        lines = [axes[k].of(end(2 - k), end(4 - k), loops[2 + k], aligned) for k in range(2)]
        terms = [_between(f, image, (own, loops[1]), y, x) for y, x in itertools.product(*lines)]
        return f.narrowed(f.div(f.total(terms), f.of(samples * samples)), kind.element_type)

    replace(operator, pointwise(result, sizes, [], body))


def _between(f: Floats, image: ir.Value, first: Sequence[ir.Value], y: _Sample, x: _Sample) -> ir.Value:
    """The sample between four elements of the image and channel `first`; zero outside."""
    kind = ir.RankedTensorType(image.type).element_type
    terms: list[ir.Value] = []
    for row, column in itertools.product(range(2), range(2)):
        value = f.wide(create("tensor.extract", kind, [image, *first, y.places[row], x.places[column]]))
        terms.append(f.mul(value, f.mul(y.weights[row], x.weights[column])))
    return f.select(both(y.inside, x.inside), f.total(terms), f.of(0))


def _clamped(index: ir.Value, last: ir.Value) -> ir.Value:
    above = create("arith.maxsi", index.type, [index, constant_index(0)])
    return create("arith.minsi", index.type, [above, last])
