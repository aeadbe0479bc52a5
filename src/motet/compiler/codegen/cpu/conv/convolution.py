"""Convolutions: sums of products over a sliding window, with what follows fused on the tile.

Vectors run along what lies side by side in the result:

- along filters (`convolution_channels.py`; channels-last results). A task copies the rows of the image that it needs,
  padded, into scratch as [row][column][channel] unless they lie like that already; then every tile is a contraction
  whose rows are output pixels, and whose depth is (window row, window column, channel). Filters are packed when
  compiling.
- along output pixels (`convolution_pixels.py`; row-major NCHW results). A task copies image rows shifted once per
  window column; then rows of a tile are filters, broadcast, and its vectors pixels of any output rows.

Convolutions of one image with one geometry whose results are added become one sum.
Source of the direct form: Georganas et al., "Anatomy of High-Performance Deep Learning Convolutions", 2018.
"""

from __future__ import annotations

from motet.compiler.codegen.cpu.conv.channels import Channels
from motet.compiler.codegen.cpu.conv.pixels import Pixels
from motet.compiler.codegen.cpu.conv.plan import plan_channels, plan_pixels
from motet.compiler.kernels.convolution import match, pixels_are_flat
from motet.compiler.kernels.kernel import Kernel, KernelCode
from motet.compiler.kernels.strides import ONE
from motet.compiler.targets.cpu import CpuTarget


def emit(kernel: Kernel, target: CpuTarget) -> KernelCode | None:
    """Code for `kernel` if it is a convolution with element-wise stages after it, else None."""
    convolution = match(kernel)
    if convolution is None:
        return None
    if convolution.stored.strides[convolution.filter_dim] == ONE:
        plan = plan_channels(convolution, target)
        return None if plan is None else Channels(convolution, plan).run()
    if pixels_are_flat(convolution):
        return Pixels(convolution, plan_pixels(convolution, target)).run()
    return None
