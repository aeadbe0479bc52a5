"""Convolutions: sums of products over a sliding window, with what follows fused on the tile.

Vectors run along what lies side by side in the result:

- along filters (`channels.py`; channels-last results). A task copies the rows of the image that it needs,
  padded, into scratch as [row][column][channel] unless they lie like that already; then every tile is a contraction
  whose rows are output pixels, and whose depth is (window row, window column, channel). Filters are packed when
  compiling.
- along output pixels (`pixels.py`; row-major NCHW results). A task copies image rows shifted once per
  window column; then rows of a tile are filters, broadcast, and its vectors pixels of any output rows.

Convolutions of one image with one geometry whose results are added become one sum.
Source of the direct form: Georganas et al., "Anatomy of High-Performance Deep Learning Convolutions", 2018.
"""

from __future__ import annotations

from motet.compiler.codegen.cpu.conv.channels import Channels
from motet.compiler.codegen.cpu.conv.legality import check
from motet.compiler.codegen.cpu.conv.pixels import Pixels
from motet.compiler.codegen.cpu.conv.plan import along_filters, choose, copies_image, filter_packing
from motet.compiler.codegen.cpu.kernel_class import KernelClass
from motet.compiler.codegen.kernel_code import KernelCode
from motet.compiler.kernels.convolution import Convolution, pixels_are_flat
from motet.compiler.kernels.convolution import match as match_convolution
from motet.compiler.kernels.kernel import Kernel
from motet.compiler.kernels.schedule import ConvolutionSchedule
from motet.compiler.targets.cpu import CpuTarget


def match(kernel: Kernel, target: CpuTarget) -> Convolution | None:
    """`kernel` as a convolution with element-wise stages after it, if it is one."""
    found = match_convolution(kernel)
    if found is None:
        return None
    if along_filters(found):
        return found if all(kernel.values[p.value].role == "constant" for p in found.filters) else None
    return found if pixels_are_flat(found) else None


def emit(convolution: Convolution, schedule: ConvolutionSchedule, target: CpuTarget) -> KernelCode:
    """Code for a convolution that is cut as `schedule` says."""
    if not along_filters(convolution):
        return Pixels(convolution, schedule).run()
    packing = filter_packing(convolution, schedule.width)
    assert packing is not None
    return Channels(convolution, schedule, packing, schedule.panels, copies_image(convolution)).run()


CLASS = KernelClass(ConvolutionSchedule, match, choose, check, emit)
