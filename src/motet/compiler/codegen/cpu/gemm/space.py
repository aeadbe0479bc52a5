"""The iteration space of a contraction, shared by packing, register tiles and the task loop."""

from __future__ import annotations

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.builder import Index
from motet.compiler.codegen.cpu.gemm.microkernel import MEMORY_TYPES, TileFrame
from motet.compiler.codegen.cpu.gemm.plan import prefetches_by_first_tile, scratch_layout, sums_stay, widens_panels
from motet.compiler.codegen.cpu.gemm.tasks import first_row
from motet.compiler.kernels.contraction import Contraction
from motet.compiler.kernels.kernel import item_bytes
from motet.compiler.kernels.schedule import ContractionSchedule
from motet.compiler.kernels.strides import ONE, StridedAccess


class ContractionSpace:
    """A contraction, its schedule, and iteration over its tiles and panels."""

    def __init__(self, c: Contraction, plan: ContractionSchedule) -> None:
        self.c = c
        self.plan = plan
        self.module = ir.Module(c.kernel.name)
        self.element = MEMORY_TYPES[c.product.dtype]
        self.bytes = item_bytes(c.product.dtype)
        self.m = c.m[0] if c.m else ONE
        self.n = c.n[0]
        self.row_dim = c.m[1] if c.m else None
        self.straight = sums_stay(c, plan)
        self.tile_width = plan.panels * plan.width if plan.depth_block else plan.width
        self.widens = widens_panels(c, plan)
        self.first_prefetches = prefetches_by_first_tile(c, plan) and plan.ahead > 0
        self.kept: ir.Value | None = None  # the panel that the scratch memory holds from the task before
        self.scratch_tile, self.scratch_b, self.scratch_a, self.scratch_bytes = scratch_layout(c, plan)

    def stride(self, f: TileFrame, place: StridedAccess) -> Index:
        return f.extent(place.strides[self.row_dim]) if self.row_dim is not None else 0

    def a_steps(self, f: TileFrame) -> tuple[Index, Index]:
        """A's strides per row and per step of the innermost K loop, as the tiles read it."""
        c, plan = self.c, self.plan
        if plan.pack_a:
            if c.a.strides[c.m[1] if c.m else -1] == ONE:
                return 1, plan.tile_rows * plan.rows
            return plan.depth_block or f.extent(c.depth[0][0]), 1
        dim = c.depth[-1][1]
        return self.stride(f, c.a), f.extent(c.a.strides[dim]) if dim >= 0 else 0

    def row(self, f: TileFrame, t: Index) -> Index:
        """The first row of tile `t`; of the tile after the last one, M."""
        row = first_row(f, self.m, self.plan.rows, t)
        return f.imin(row, f.extent(self.m)) if self.m.known is None else row
