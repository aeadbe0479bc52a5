"""The iteration space of a contraction, shared by packing, register tiles and the task loop."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.builder import Index
from motet.compiler.codegen.cpu.gemm.microkernel import MEMORY_TYPES, TileFrame
from motet.compiler.codegen.cpu.gemm.plan import prefetches_by_first_tile, scratch_layout, sums_stay, widens_panels
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

    def row(self, f: TileFrame, t: Index) -> tuple[Index, Index]:
        """The first row of tile `t` (of the last tile, M), and M."""
        m = f.extent(self.m)
        if self.m.known is None:
            return f.imin(f.imul(t, self.plan.rows), m), m
        size, longer = divmod(self.m.known, -(-self.m.known // self.plan.rows))
        return f.iadd(f.imul(t, size), f.imin(t, longer)), m

    def row_tiles(
        self, f: TileFrame, tiles: tuple[Index, Index], one: Callable[[Index, int, Index], None]
    ) -> None:
        """Call `one(tile, rows, first row)` for the register tiles [tiles): of nearly equal size if M is known; else
        whole tiles, then tiles of four, two and one rows."""
        rows = self.plan.rows
        known = self.m.known
        if known is not None:
            count, size, longer = -(-known // rows), *divmod(known, -(-known // rows))
            begin, end = tiles
            for rows_here, low, high in ((size + 1, 0, longer), (size, longer, count)):
                if high > low:
                    f.loop(
                        begin if low == 0 else f.imax(begin, low), f.imin(end, high), 1,
                        lambda t, _, rows_here=rows_here: one(t, rows_here, self.row(f, t)[0]),
                    )
            return
        m = f.extent(self.m)
        whole = f.idiv(m, rows)
        f.loop(tiles[0], f.imin(tiles[1], whole), 1, lambda t, _: one(t, rows, f.imul(t, rows)))
        if rows == 1:
            return
        with f.if_then(f.icmp_signed(">", f.index(tiles[1]), f.index(whole))):
            rest, done = f.irem(m, rows), f.imul(whole, rows)
            part = 1 << ((rows - 1).bit_length() - 1)
            while part:
                with f.if_then(f.icmp_unsigned("!=", f.and_(f.index(rest), f.index(part)), f.index(0))):
                    one(whole, part, done)
                done = f.iadd(done, f.and_(f.index(rest), f.index(part)))
                part //= 2

    def panels_of(self, f: TileFrame, panels: tuple[Index, Index], panel: Callable[[Index, bool], None]) -> None:
        """Emit `panel` for whole panels in a loop, then for the incomplete one."""
        n = f.extent(self.n)
        whole = f.idiv(n, self.plan.width)
        end = f.imin(panels[1], whole)
        known = self.n.known
        f.loop(panels[0], end, 1, lambda p, _: panel(p, False))
        if known is not None and known % self.plan.width == 0:
            return
        if isinstance(end, int) and isinstance(panels[1], int):
            if panels[1] > end:
                panel(end, True)
            return
        with f.if_then(f.icmp_signed(">", f.index(panels[1]), f.index(whole))):
            panel(whole, True)
