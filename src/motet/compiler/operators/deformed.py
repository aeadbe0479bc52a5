"""Deformable convolutions: products of filters with samples of the image, at places that offsets move.

    columns[n, c, k, p] = mask[n, g, k, p] · x[n, c] between the elements around p · stride + k · dilation + offset
    y[n, o, p] = Σ w[o, c, k] · columns[n, c, k, p] + bias[o]

Channels are of groups `g`, each with offsets of its own. Elements outside are replaced by zero.

Sources: ONNX's specification of DeformConv (operator set 19); torchvision's `csrc/ops/cpu/deform_conv2d_kernel.cpp`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.nests import loops
from motet.compiler.ir.sizes import constant_index, element_at, on_indices
from motet.compiler.operators.arithmetic import Floats, Real, floats_for
from motet.compiler.operators.pointwise import Read, dynamic_sizes, merged, pointwise, size_of, split
from motet.compiler.operators.taps import StoredTaps, Tap, last_places, weighted_elements

_ENDS = StoredTaps(2)


@dataclass(frozen=True)
class DeformedWindows:
    """The windows of a filter: their steps, the first place and the distance of elements along each axis; and the
    numbers of groups of channels with filters, and with offsets, of their own."""

    strides: Sequence[int]
    before: Sequence[int]
    dilations: Sequence[int]
    groups: int
    offset_groups: int


@dataclass(frozen=True)
class DeformedImage:
    """An image [N, C, …], offsets [N, groups · taps · axes, …], and factors [N, groups · taps, …] of samples, if there
    are any. The numbers of channels are known."""

    image: ir.Value
    offsets: ir.Value
    mask: ir.Value | None
    kernel: Sequence[int]
    windows: DeformedWindows

    @property
    def floats(self) -> Floats:
        return floats_for(ir.RankedTensorType(self.image.type).element_type)

    @property
    def points(self) -> list[int]:
        return ir.RankedTensorType(self.offsets.type).shape[2:]

    def sizes(self) -> list[ir.Value]:
        """The dynamic extents of a tensor [N, …] of all points."""
        return dynamic_sizes(self.offsets)

    def columns(self) -> ir.Value:
        """The samples, [N, groups of offsets, channels of a group, taps, …]."""
        f, groups, axes = self.floats, self.windows.offset_groups, len(self.kernel)
        batch, channels, *_ = ir.RankedTensorType(self.image.type).shape
        taps, rank = math.prod(self.kernel), 3 + len(self.points)
        points = ir.RankedTensorType.get([batch, groups, taps, *self.points], f.kind)
        moves = _divided(self.offsets, [groups, taps, axes])
        image, lasts = _divided(self.image, [groups, channels // groups]), last_places(self.image, range(2, 2 + axes))
        tensors = [
            tensor for axis in range(axes)
            for tensor in _ENDS.store(points, self.sizes(), partial(self._between, moves, axis))
        ]
        tensors += [] if self.mask is None else [_divided(self.mask, [groups, taps])]

        def body(values: Sequence[ir.Value], at: Sequence[ir.Value]) -> ir.Value:
            parts = iter(values)
            lines = [_ENDS.load(parts) for _ in range(axes)]
            read = lambda places: f.wide(element_at(image, [*at[:3], *places]))  # noqa: E731
            total = f.total(weighted_elements(f, lines, lasts, read))
            return total if self.mask is None else total * f.wide(next(parts))

        kind = ir.RankedTensorType.get([batch, groups, channels // groups, taps, *self.points], f.kind)
        loops = (0, 1, *range(3, 1 + rank))
        return pointwise(kind, self.sizes(), [Read(tensor, loops) for tensor in tensors], body)

    def _between(self, moves: ir.Value, axis: int, at: Sequence[ir.Value]) -> list[Tap]:
        """The elements before and after the place along an axis of the tap and point `at`."""
        f, windows = self.floats, self.windows
        inner = constant_index(math.prod(self.kernel[axis + 1 :]))
        tap = on_indices("arith.remui", on_indices("arith.divui", at[2], inner), constant_index(self.kernel[axis]))
        place = f.of_index(tap) * windows.dilations[axis] + f.of_index(at[3 + axis]) * windows.strides[axis]
        moved = f.wide(element_at(moves, [*at[:3], constant_index(axis), *at[3:]]))
        here, size = moved + (place - windows.before[axis]), f.of_index(size_of(self.image, 2 + axis))
        near = (here > -1) & (here < size)
        here = f.select(near, here, -1)
        first = f.floor(here)
        found: list[Tap] = []
        for index, weight in ((first, 1 - (here - first)), (first + 1, here - first)):
            inside = f.clip(index, 0, size - 1)
            found.append(Tap(f.index(inside), weight, near & (inside == index)))
        return found


def _divided(tensor: ir.Value, parts: Sequence[int]) -> ir.Value:
    """`tensor`, [N, …], with axis 1 as axes of the extents `parts`."""
    kind = ir.RankedTensorType(tensor.type)
    shape = [kind.shape[0], *parts, *kind.shape[2:]]
    return split(tensor, ir.RankedTensorType.get(shape, kind.element_type), 1, len(parts), dynamic_sizes(tensor))


def deformed_convolution(of: DeformedImage, weights: ir.Value, bias: ir.Value | None) -> ir.Value:
    """The sums of products, of the type of the image."""
    f, groups, points = of.floats, of.windows.groups, len(of.points)
    outputs, per_group, *kernel = ir.RankedTensorType(weights.type).shape
    columns, taps = merged(merged(of.columns(), 1, 3), 2, points), per_group * math.prod(kernel)
    batch, _, count = ir.RankedTensorType(columns.type).shape
    sizes = dynamic_sizes(columns)
    columns = split(columns, ir.RankedTensorType.get([batch, groups, taps, count], f.kind), 1, 2, sizes)
    element = ir.RankedTensorType(weights.type).element_type
    filters = ir.RankedTensorType.get([groups, outputs // groups, taps], element)
    matrices = split(merged(weights, 1, len(kernel) + 1), filters, 0, 2, [])
    if element != f.kind:
        wide = ir.RankedTensorType.get(filters.shape, f.kind)
        matrices = pointwise(wide, [], [Read(matrices, range(3))], lambda values, _: f.wide(values[0]))
    n, g, o, p, k = (ir.AffineDimExpr.get(loop) for loop in range(5))
    maps = [ir.AffineMap.get(5, 0, places) for places in ((g, o, k), (n, g, k, p), (n, g, o, p))]
    result = ir.RankedTensorType.get([batch, groups, outputs // groups, count], f.kind)
    sums = loops([matrices, columns], pointwise(result, sizes, [], lambda _, __: f.of(0)), maps, _multiplied)
    reads = [Read(merged(sums, 1, 2), range(3)), *([] if bias is None else [Read(bias, (1,))])]
    element = ir.RankedTensorType(of.image.type).element_type
    value = pointwise(
        ir.RankedTensorType.get([batch, outputs, count], element), sizes, reads,
        lambda values, _: f.narrowed(f.total([f.wide(each) for each in values]), element),
    )
    return split(value, ir.RankedTensorType.get([batch, outputs, *of.points], element), 2, points, of.sizes())


def _multiplied(block: ir.Block) -> ir.Value:
    a, b, total = map(Real, block.arguments)
    return total + a * b
