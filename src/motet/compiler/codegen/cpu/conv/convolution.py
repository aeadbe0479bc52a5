"""Convolutions over rows and columns that copy image rows in each task, with a fused element-wise epilogue.

They are those that `direct.py` leaves: of few channels or few filters, and with filters that are not constant. Vectors
run along the contiguous dimension of the result:

- along filters (`channels.py`; channels-last results). A task copies the image rows that it needs, including padding,
  to scratch as [row][column][channel], unless they have that layout already. Each tile is then a contraction whose rows
  are output pixels and whose K is (window row, window column, channel). Filters are packed when compiling.
- along output pixels (`pixels.py`; row-major NCHW results). A task copies image rows once per window column, shifted.
  The rows of a tile are then filters, broadcast, and its vectors are pixels of any output rows. So are volumes: a task
  copies the rows of all planes that the windows of one plane of the result cover.

Convolutions of one image with the same geometry whose results are added are computed as one sum. Source of the direct
form: Georganas et al., "Anatomy of High-Performance Deep Learning Convolutions", 2018.
"""

from __future__ import annotations

from motet.compiler.codegen.cpu.conv.channels import Channels
from motet.compiler.codegen.cpu.conv.legality import check
from motet.compiler.codegen.cpu.conv.pixels import Pixels
from motet.compiler.codegen.cpu.conv.plan import along_filters, choose, copies_image, filter_packing
from motet.compiler.codegen.cpu.kernel_class import KernelClass
from motet.compiler.kernels.convolution import Convolution, pixels_are_flat
from motet.compiler.kernels.convolution import match as match_convolution
from motet.compiler.kernels.kernel import Kernel
from motet.compiler.kernels.kernel_code import KernelCode
from motet.compiler.kernels.schedule import ConvolutionSchedule
from motet.compiler.targets.cpu import CpuTarget


def match(kernel: Kernel, target: CpuTarget) -> Convolution | None:
    """Read `kernel` as a convolution with an element-wise epilogue; None if it is not one."""
    found = match_convolution(kernel)
    if found is None:
        return None
    if along_filters(found):
        if found.planes:
            return None
        return found if all(kernel.values[p.value].role == "constant" for p in found.filters) else None
    return found if pixels_are_flat(found) else None


def emit(convolution: Convolution, schedule: ConvolutionSchedule, target: CpuTarget) -> KernelCode:
    """Generate code for a convolution by `schedule`."""
    if not along_filters(convolution):
        return Pixels(convolution, schedule).run()
    packing = filter_packing(convolution, schedule.width)
    assert packing is not None
    return Channels(convolution, schedule, packing, schedule.panels, copies_image(convolution)).run()


CLASS = KernelClass(ConvolutionSchedule, match, choose, check, emit)
