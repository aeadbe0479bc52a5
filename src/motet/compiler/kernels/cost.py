"""Estimates a kernel's work in operations and bytes, with guesses for dynamic extents."""

from __future__ import annotations

from motet.compiler.kernels.kernel import Kernel, item_bytes
from motet.compiler.kernels.strides import Extent

_GUESS = 256  # for a dynamic extent


def guess(extent: Extent) -> int:
    """The number assumed for `extent` when work is divided."""
    return extent.factor * _GUESS ** len(extent.symbols)


def flops(kernel: Kernel) -> int:
    """Operations of all points; dynamic extents are guessed."""
    total = 0
    for stage in kernel.stages:
        points = Extent(1)
        for size in stage.sizes:
            points = points * Extent.of(size)
        counted = [scalar for scalar in stage.body if scalar.op not in ("arith.constant", "linalg.index")]
        total += guess(points) * len(counted)
    return total


def traffic(kernel: Kernel) -> int:
    """Bytes of all external values, each counted once."""
    total = 0
    for index in kernel.externals:
        points = Extent(item_bytes(kernel.values[index].dtype))
        for size in kernel.values[index].shape:
            points = points * Extent.of(size)
        total += guess(points)
    return total
