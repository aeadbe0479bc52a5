"""Contractions: sums of products of two tensors, in any order of dimensions, with a fused epilogue.

`kernels/contraction.py` recognises contractions, `plan.py` chooses their schedules, `legality.py` checks other
schedules, `packing.py` packs operands, `tiles.py` emits the register tiles, and this module emits the loop over tasks.
A constant right operand is packed when compiling. Any other right operand is packed panel by panel by the task that
reads it, is read in place if few rows use it, or, if K is contiguous and rows are few, is multiplied along K.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.builder import Index
from motet.compiler.codegen.cpu.gemm.legality import check
from motet.compiler.codegen.cpu.gemm.microkernel import AHEAD_STEPS, LINE, MEMORY_TYPES, TileFrame, task_function
from motet.compiler.codegen.cpu.gemm.packing import PackedOperands
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


@dataclass(frozen=True)
class _Block:
    """Register tiles of some panels at outer coordinates `outer`; `tile` is memory for their sums."""

    outer: list[Index]
    tiles: Range
    panels: Range
    scratch: ir.Value
    tile: ir.Value


@dataclass(frozen=True)
class _PanelOperands:
    """The operands of a panel of `left` columns from `column` on: `a` begins at row `row` where it is packed, `tail`
    says that the panel is incomplete; `b` is the panel, `next` what its tiles prefetch."""

    column: Index
    left: Index
    tail: bool
    a: ir.Value
    row: Index
    b: ir.Value
    next: ir.Value
    sums: ir.Value


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
        packs = [self.pack_phase()] if plan.shared else []
        workspaces = [self.shared_elements() * self.bytes] if plan.shared else []
        return self.code(self.title, packs, self.scratch_bytes, workspaces, self.packings())

    def packings(self) -> dict[int, Packing]:
        """The packings of constants, by value."""
        packing = packing_of(self.c, self.plan.packed_width) if self.plan.b_mode == "packed" else None
        return {self.c.b.value: packing} if packing is not None else {}

    def block(
        self, f: TileFrame, outer: list[Index], tiles: Range, panels: Range, scratch: ir.Value
    ) -> None:
        """Emit the work of one task at one outer iteration."""
        plan, depth = self.plan, self.depth(f)
        tile = f.at(scratch, self.scratch_tile, ir.IntType(8))
        task = _Block(outer, tiles, panels, scratch, tile)
        if plan.depth_block is None:
            self._depth_block(f, task, 0, depth)
            return
        rows = f.isub(self.row(f, tiles[1]), self.row(f, tiles[0]))
        self.clear(f, tile, f.imul(rows, self.tile_width))

        def block(k: Index, _: list[ir.Value]) -> None:
            size = plan.depth_block or 1
            if not isinstance(depth, int) or depth % size:
                self._depth_block(f, task, k, f.imin(f.isub(depth, k), size))
            else:
                self._depth_block(f, task, k, size)

        f.loop(0, depth, plan.depth_block, block)
        self.finish_panels(f, outer, tiles, panels, tile)

    def _depth_block(self, f: TileFrame, task: _Block, k: Index, deep: Index) -> None:
        """Emit every register tile of the task for `deep` steps of K from `k` on (from 0 if K is not blocked)."""
        c, plan = self.c, self.plan
        at = list(task.outer)
        if plan.depth_block is not None and c.depth[0][1] >= 0:  # else a depth of one step, along no dimension
            at[c.depth[0][1]] = k
        b_scratch = f.at(task.scratch, self.scratch_b, ir.IntType(8))
        a_base = f.address(c.a, at)
        row0 = self.row(f, task.tiles[0])
        if plan.pack_a:
            a_scratch = f.at(task.scratch, self.scratch_a, ir.IntType(8))
            rows = f.isub(self.row(f, task.tiles[1]), row0)
            source = f.at(a_base, f.imul(self.stride(f, c.a), row0), MEMORY_TYPES[c.a.dtype])
            self.pack_a(f, source, a_scratch, rows, deep)
            a_base = a_scratch

        def panel(p: Index, tail: bool) -> None:
            n = f.imul(p, plan.width)
            source: ir.Value | None = None
            left = f.isub(f.extent(self.n), n)
            if plan.b_mode == "packed":
                b, source = self.packed_operand(f, at, p, k, deep, b_scratch)
            elif plan.shared:
                offset = f.imul(f.iadd(f.imul(p, self.depth(f)), k), plan.width)
                b = f.at(self.memory(f, len(c.kernel.externals)), offset, self.element)
            else:
                at_n = list(at)
                at_n[c.column] = n
                b = f.address(c.b, at_n)
                if self.kept is not None:
                    with f.if_then(f.icmp_signed("!=", f.index(p), self.kept)):
                        self.pack_b(f, b, b_scratch, deep, left, tail)
                elif plan.b_mode == "scratch":
                    self.pack_b(f, b, b_scratch, deep, left, tail)
                if plan.b_mode == "scratch":
                    b = b_scratch
            acc = task.tile
            if plan.depth_block:
                acc = f.at(acc, f.imul(f.isub(p, task.panels[0]), plan.width), self.element)
            following = self._next_panel(f, task, p, source or b, deep) if plan.ahead else b
            self._rows(f, task, _PanelOperands(n, left, tail, a_base, row0, b, following, acc), deep)

        self.loop_over_panels(f, task.panels, panel)

    def _rows(self, f: TileFrame, task: _Block, panel: _PanelOperands, deep: Index) -> None:
        """Emit the register tiles down a panel."""
        c, plan = self.c, self.plan
        a_element = self.element if plan.pack_a else MEMORY_TYPES[c.a.dtype]

        def one(t: Index, m: Index, rows: int) -> None:
            local = f.isub(m, panel.row)
            a_row = self.a_steps(f)[0]
            a = f.at(panel.a, f.imul(local if plan.pack_a else m, a_row), a_element)
            at = panel.sums
            if plan.depth_block:
                at = f.at(at, f.imul(local, self.tile_width), self.element)
            coordinates = [f.index(task.outer[dim]) for _, dim in c.outer]
            extents = [f.index(m), f.index(panel.column), f.index(panel.left), f.index(deep)]
            operands = [*f.arguments[:2], a, panel.b, at, *extents, *coordinates]
            number = f.isub(t, task.tiles[0])
            if not self.first_prefetches:
                share = f.imul(f.idiv(deep, AHEAD_STEPS), plan.ahead * LINE)
                ahead = f.at(panel.next, f.imul(number, share), ir.IntType(8)) if plan.ahead else panel.b
                f.call(self.tile(rows, panel.tail), [*operands, ahead])
                return
            with f.if_else(f.icmp_signed("==", f.index(number), f.index(0))) as (first, others):
                with first:
                    f.call(self.tile(rows, panel.tail), [*operands, panel.next])
                with others:
                    f.call(self.tile(rows, panel.tail, prefetches=False), [*operands, panel.b])

        self.loop_over_tiles(f, task.tiles, one)

    def _next_panel(self, f: TileFrame, task: _Block, p: Index, source: ir.Value, deep: Index) -> ir.Value:
        """The address of what the tiles of panel `p`, at `source`, prefetch: the next packed panel, or an equal part of
        it if they read a part of theirs. The last parts in a block of K prefetch from the first panel of the next."""
        plan = self.plan
        width, depth = plan.packed_width, self.depth(f)
        element = MEMORY_TYPES[self.c.b.dtype] if plan.b_mode == "packed" else self.element
        inside = self.inside_packed(f, f.imul(p, plan.width))
        part = f.isub(f.imul(inside, deep), inside)
        several = plan.depth_block is not None and plan.panels > 1
        following = f.at(source, f.iadd(f.imul(depth if several else deep, width), part), element)
        if not several or width == plan.width:
            return following
        here, first, last = (
            f.idiv(f.imul(each, plan.width), width) for each in (p, task.panels[0], f.isub(task.panels[1], 1))
        )
        back = f.imul(f.isub(here, first), f.imul(depth, width))
        again = f.at(source, f.isub(f.iadd(f.imul(deep, width), part), back), element)
        return f.select(f.icmp_signed("==", f.index(here), f.index(last)), again, following)
