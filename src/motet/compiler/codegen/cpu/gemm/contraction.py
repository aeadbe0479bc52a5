"""Contractions: sums of products of two tensors, in any order of dimensions, with a fused epilogue.

`kernels/contraction.py` recognises contractions, `plan.py` chooses their schedules, `legality.py` checks other
schedules, `packing.py` packs operands, `tiles.py` emits the register tiles, and this module emits the loop over tasks.
A constant right operand is packed when compiling. Any other right operand is packed panel by panel by the task that
reads it, is read in place if few rows use it, or, if K is contiguous and rows are few, is multiplied along K.
"""

from __future__ import annotations

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.builder import I8, Index
from motet.compiler.codegen.cpu.gemm.legality import check
from motet.compiler.codegen.cpu.gemm.microkernel import AHEAD_STEPS, LINE, MEMORY_TYPES, TileFrame, task_function
from motet.compiler.codegen.cpu.gemm.packing import DepthBlock, PackedOperands
from motet.compiler.codegen.cpu.gemm.plan import choose, packing_of
from motet.compiler.codegen.cpu.gemm.space import Range
from motet.compiler.codegen.cpu.gemm.tiles import Tiles
from motet.compiler.codegen.cpu.kernel_class import KernelClass
from motet.compiler.kernels.contraction import Contraction
from motet.compiler.kernels.contraction import match as match_contraction
from motet.compiler.kernels.kernel import Kernel, Packing
from motet.compiler.kernels.kernel_code import KernelCode
from motet.compiler.kernels.schedule import ContractionSchedule
from motet.compiler.targets.cpu import CpuTarget


def match(kernel: Kernel, target: CpuTarget) -> Contraction | None:
    """Read `kernel` as a contraction with an element-wise epilogue; None if it is not one."""
    return match_contraction(kernel)


def emit(contraction: Contraction, schedule: ContractionSchedule, target: CpuTarget) -> KernelCode:
    """Generate code for a contraction by `schedule`."""
    return ContractionEmitter(contraction, schedule).run()


CLASS = KernelClass(ContractionSchedule, match, choose, check, emit)


class ContractionEmitter(PackedOperands, Tiles):
    """Emits one module: an internal function for each register tile, and the task loop that calls them. `title` is the
    name of the class in reports."""

    title = "contraction"

    def run(self) -> KernelCode:
        plan = self.plan
        f = task_function(self.module, self.kernel)
        begin, end, scratch = f.arguments[2:]

        def task(index: Index, kept: list[ir.Value]) -> list[ir.Value]:
            self.kept = kept[0] if kept else None
            self.walk(f, index, lambda at, tiles, panels: self.block(f, at, tiles, panels, scratch))
            each = f.iceil(f.iceil(f.extent(self.m), plan.rows), plan.tile_rows)
            return [f.index(f.idiv(index, each))] if kept else []

        f.loop(begin, end, 1, task, [f.index(-1)] if plan.keeps else [])
        f.ret_void()
        packs, workspaces = [], []
        if plan.shared:
            columns = f.imul(f.iceil(f.extent(self.n), plan.width), plan.width)
            packs, workspaces = [self.pack_phase()], [f.imul(f.imul(columns, self.depth(f)), self.bytes)]
        return self.code(self.title, packs, self.scratch_bytes, workspaces, self.packings())

    def packings(self) -> dict[int, Packing]:
        """The packings of constants, by value."""
        packing = packing_of(self.c, self.plan.packed_width) if self.plan.b_mode == "packed" else None
        return {self.c.b.value: packing} if packing is not None else {}

    def block(
        self, f: TileFrame, outer: list[Index], tiles: Range, panels: Range, scratch: ir.Value
    ) -> None:
        """Emit the work of one task at one outer iteration."""
        def steps(k: Index, deep: Index) -> None:
            at = list(outer)
            if self.blocked and self.c.depth[0][1] >= 0:  # else a depth of one step, along no dimension
                at[self.c.depth[0][1]] = k
            self._depth_block(f, DepthBlock(at, tiles, panels, scratch, k, deep))

        if not self.blocked:
            steps(0, self.depth(f))
            return
        row = self.row(f, tiles[0])
        rows = f.isub(self.row(f, tiles[1]), row)
        self.clear(f, scratch, f.imul(rows, self.tile_width))
        self.loop_over_depth(f, self.depth(f), steps)
        self.loop_over_panels(f, panels, lambda p, tail: self.finish_tile(
            f, [self._panel_sums(f, panels, p, scratch)], (row, p, tail), rows, outer))

    def _panel_sums(self, f: TileFrame, panels: Range, p: Index, sums: ir.Value) -> ir.Value:
        return f.at(sums, f.imul(f.isub(p, panels[0]), self.plan.width), self.element) if self.blocked else sums

    def _depth_block(self, f: TileFrame, block: DepthBlock) -> None:
        """Emit every register tile of a block."""
        c = self.c
        a, row = f.address(c.a, block.at), self.row(f, block.tiles[0])
        if self.plan.pack_a:
            scratch = f.at(block.scratch, self.scratch_a, I8)
            rows = f.isub(self.row(f, block.tiles[1]), row)
            source = f.at(a, f.imul(self.stride(f, c.a), row), MEMORY_TYPES[c.a.dtype])
            self.pack_a(f, source, scratch, rows, block.deep)
            a = scratch
        self.loop_over_panels(f, block.panels, lambda p, tail: self._panel(f, block, (a, row), p, tail))

    def _panel(self, f: TileFrame, block: DepthBlock, rows_of_a: tuple[ir.Value, Index], p: Index, tail: bool) -> None:
        """Emit the register tiles down panel `p`. `rows_of_a` are the address of A and the first row of the block."""
        plan, (a, first_row) = self.plan, rows_of_a
        n = f.imul(p, plan.width)
        left = f.isub(f.extent(self.n), n)
        b, stored = self.panel_of_b(f, block, p, left, tail)
        sums = self._panel_sums(f, block.panels, p, block.scratch)
        following = self._next_panel(f, block, p, stored) if plan.ahead else b
        a_element = self.element if plan.pack_a else MEMORY_TYPES[self.c.a.dtype]

        def one(t: Index, m: Index, rows: int) -> None:
            local = f.isub(m, first_row)
            own = f.at(a, f.imul(local if plan.pack_a else m, self.a_steps(f)[0]), a_element)
            at = f.at(sums, f.imul(local, self.tile_width), self.element) if self.blocked else sums
            outer = [block.at[dim] for _, dim in self.c.outer]
            operands = (own, b, at, m, n, left, block.deep, *outer)
            number = f.isub(t, block.tiles[0])
            if not self.first_prefetches:
                share = f.imul(f.idiv(block.deep, AHEAD_STEPS), plan.ahead * LINE)
                ahead = f.at(following, f.imul(number, share), I8) if plan.ahead else b
                self.tile(f, rows, tail, (*operands, ahead))
                return
            with f.if_else(f.icmp_signed("==", f.index(number), f.index(0))) as (first, others):
                with first:
                    self.tile(f, rows, tail, (*operands, following))
                with others:
                    self.tile(f, rows, tail, (*operands, b), prefetches=False)

        self.loop_over_tiles(f, block.tiles, one)

    def _next_panel(self, f: TileFrame, block: DepthBlock, p: Index, source: ir.Value) -> ir.Value:
        """The address of what the tiles of panel `p`, at `source`, prefetch: the next packed panel, or an equal part of
        it if they read a part of theirs. The last parts in a block of K prefetch from the first panel of the next."""
        plan, deep = self.plan, block.deep
        width, depth = plan.packed_width, self.depth(f)
        element = MEMORY_TYPES[self.c.b.dtype] if plan.b_mode == "packed" else self.element
        inside = self.inside_packed(f, f.imul(p, plan.width))
        part = f.isub(f.imul(inside, deep), inside)
        several = plan.depth_block is not None and plan.panels > 1
        following = f.at(source, f.iadd(f.imul(depth if several else deep, width), part), element)
        if not several or width == plan.width:
            return following
        here, first, last = (
            f.idiv(f.imul(each, plan.width), width) for each in (p, block.panels[0], f.isub(block.panels[1], 1))
        )
        back = f.imul(f.isub(here, first), f.imul(depth, width))
        again = f.at(source, f.isub(f.iadd(f.imul(deep, width), part), back), element)
        return f.select(f.icmp_signed("==", f.index(here), f.index(last)), again, following)
