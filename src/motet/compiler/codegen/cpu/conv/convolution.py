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

from llvmlite import ir

from motet.compiler.codegen.cpu.conv.channels import Channels
from motet.compiler.codegen.cpu.conv.copies import RowCopies, guarded
from motet.compiler.codegen.cpu.conv.direct_plan import form_of
from motet.compiler.codegen.cpu.conv.pixels import Pixels
from motet.compiler.codegen.cpu.conv.plan import along_filters, check, choose, copies_image, multiplies_panels
from motet.compiler.codegen.cpu.conv.prepared import PreparedImage, image_at
from motet.compiler.codegen.cpu.conv.slides import Slide
from motet.compiler.codegen.cpu.emit.builder import I64, PTR, Index
from motet.compiler.codegen.cpu.gemm.microkernel import TileFrame, internal_function
from motet.compiler.codegen.cpu.kernel_class import KernelClass
from motet.compiler.kernels.convolution import Convolution, pixels_are_flat
from motet.compiler.kernels.convolution import match as match_convolution
from motet.compiler.kernels.kernel import Kernel
from motet.compiler.kernels.kernel_code import KernelCode
from motet.compiler.kernels.schedule import ConvolutionSchedule, DirectSchedule
from motet.compiler.targets.cpu import CpuTarget


def match(kernel: Kernel, target: CpuTarget) -> Convolution | None:
    """Read `kernel` as a convolution with an element-wise epilogue; None if it is not one."""
    found = match_convolution(kernel)
    if found is None:
        return None
    if along_filters(found):
        return found if multiplies_panels(found) and not found.planes else None
    return found if pixels_are_flat(found) else None


def emit(convolution: Convolution, schedule: ConvolutionSchedule, target: CpuTarget) -> KernelCode:
    """Generate code for a convolution by `schedule`."""
    return (_CopiedRows if along_filters(convolution) else Pixels)(convolution, schedule).run()


CLASS = KernelClass(ConvolutionSchedule, match, choose, check, emit)


class _CopiedRows(Channels):
    """Emits a convolution whose vectors run along filters, and whose tasks copy the image rows that they need to
    scratch memory, unless these have the layout already."""

    def __init__(self, c: Convolution, plan: ConvolutionSchedule) -> None:
        self.source, self.copies = c, copies_image(c)
        form = form_of(c, PreparedImage.of(c, True, True) if self.copies else None)
        super().__init__(form, DirectSchedule(plan.lanes, plan.tile_rows, plan.vectors, plan.block), plan.panels)

    def scratch_elements(self) -> int:
        rows = self.c.rows
        return rows.span(self.plan.block) * rows.step + self.plan.lanes if self.copies else 0

    def rows_at(self, f: TileFrame, at: list[Index], first: Index, scratch: ir.Value) -> tuple[ir.Value, Index]:
        image = image_at(f, self.source, None, at)
        if not self.copies:
            return image, 0
        self._copy_rows(f, image, first, scratch)
        return scratch, first

    def _copy_rows(self, f: TileFrame, image: ir.Value, first: Index, scratch: ir.Value) -> None:
        """Copy image rows to scratch as [row][column][channel], including padding."""
        c, copier = self.source, RowCopies(self.source, self.plan.lanes)
        pitch = self.c.rows.step
        function = internal_function(self.module, f"{c.kernel.name}.copy", [PTR, PTR, PTR, PTR, I64])
        top = f.index(f.isub(f.imul(f.index(first), c.rows.stride), c.rows.low))
        f.call(function, [*f.arguments[:2], image, scratch, top])
        g = TileFrame(c.kernel, function)
        source, target, top = g.arguments[2:5]

        def row(r: Index, _: list[ir.Value]) -> None:
            to = g.at(target, g.imul(r, pitch), self.element)
            where = g.iadd(top, r)
            at = g.at(source, g.imul(where, c.rows.step), copier.image_element)
            guarded(
                g, c.padding, [(c.rows.image, where)], lambda: copier.padded_row(g, Slide.of(c.columns), at, to),
                lambda: copier.fill_run(g, to, pitch))

        g.loop(0, c.rows.span(self.plan.block), 1, row)
        g.ret_void()
