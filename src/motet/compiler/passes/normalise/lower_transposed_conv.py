"""lower-transposed-conv: rewrites convolutions of images with inserted zeros so that they do not read the zeros.

    %z = tensor.insert_slice %x into zeros … [1, 1, 2, 2]         y[n, f, h * 2 + p, w * 2 + r] +=
    %r = convolution of %z                                   →        x[n, c, h + i, w + j] * k'[p, r, f, c, i, j]
        y[n, f, h, w] += z[n, c, h + i, w + j] * k[f, c, i, j]

Points of the result whose distance is a multiple of the step use the same elements of the window; those of another
phase `p`, `r` use others. `k'` has the elements phase by phase, padded with zeros where a phase has fewer. The result
is a convolution with more filters, by the number of phases, and correspondingly smaller windows; if the window is as
long as the step, it is a product. Source: see `spread_convolution.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.passes.base import FunctionPass
from motet.compiler.passes.normalise.splitting import Split
from motet.compiler.passes.normalise.spread_convolution import SpreadConvolution, shape_of, spread_convolutions


@dataclass(frozen=True)
class LowerTransposedConv(FunctionPass):
    """Keeps convolutions with dynamic extents, and grouped and dilated ones. Without `phases` it also keeps those of
    more than one phase, and only separates a zero border from the image: `transposed-conv-by-phases` computes the
    others on CPUs."""

    name = "lower-transposed-conv"
    phases: bool = True

    def run_on(self, function: ir.Operation) -> bool:
        changed = False
        for convolution in spread_convolutions(function, self._takes):
            _rewrite(convolution)
            changed = True
        return changed

    def _takes(self, convolution: SpreadConvolution) -> bool:
        axes = convolution.axes
        return convolution.known and not convolution.spread.grouped and not any(
            axis.dilation != 1 or axis.extent % axis.step or axis.whole.taps < 1 for axis in axes
        ) and (self.phases or all(axis.step == 1 for axis in axes))


def _rewrite(convolution: SpreadConvolution) -> None:
    operation = convolution.operation
    piece = [axis.whole for axis in convolution.axes]
    steps = {axis.result: axis.step for axis in convolution.axes if axis.step > 1}
    split = _split(shape_of(operation.results[0]), steps)
    with operation.location, ir.InsertionPoint(operation) as at:
        image, filters = convolution.bordered(piece), convolution.filters_of(piece, divided=True)
        begin = split.expanded(operation.operands[len(operation.operands) - 1], at)
        sums = convolution.sums(piece, image, filters, begin, divided=True)
    split.take_along(operation, sums)


def _split(shape: list[int], steps: dict[int, int]) -> Split:
    """The axes of a result of `shape` split into points and phases, of which there are `steps`, by axis."""
    groups: list[tuple[int, ...]] = []
    parts: list[int] = []
    for axis, size in enumerate(shape):
        sizes = [size // steps[axis], steps[axis]] if axis in steps else [size]
        groups.append(tuple(range(len(parts), len(parts) + len(sizes))))
        parts += sizes
    return Split(tuple(groups), tuple(parts))
