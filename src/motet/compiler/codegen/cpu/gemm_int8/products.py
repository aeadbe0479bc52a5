"""Products of 8-bit integers accumulated as i32: matrix products in any order of dimensions, also quantized ones.

    sum over k of (a[m, k] - a_zero) * (b[k, n] - b_zero)          any signs, then a fused element-wise epilogue

They use the CPU's dot-product and matrix instructions (`tiles.py`). Zero points are moved out of the sum, with the sums
of A's rows and of B's columns:

    sum a*b  -  a_zero * sum b  -  b_zero * (sum a  -  K * a_zero)

A first phase (`pack_phase.py`) packs both operands in the order that the tiles read, unless that was done when
compiling or A already has this layout (for AMX also aligned to a cache line, since otherwise every row of a tile spans
two lines). `corrections.py` finishes the sums. All arithmetic wraps around as i32, so that the order of the sums does
not change the result.

Source of the zero points' terms: Jacob et al., "Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference", 2018, section 2.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.builder import I8, I32, I64, PTR, Index
from motet.compiler.codegen.cpu.gemm.microkernel import TileFrame, shared_function, task_function
from motet.compiler.codegen.cpu.gemm.tasks import ProductTasks, Range, loop_over_panels, loop_over_tiles
from motet.compiler.codegen.cpu.gemm_int8 import tiles as dot_tiles
from motet.compiler.codegen.cpu.gemm_int8.corrections import Int8Corrections
from motet.compiler.codegen.cpu.gemm_int8.gather import Int8Gather
from motet.compiler.codegen.cpu.gemm_int8.legality import check
from motet.compiler.codegen.cpu.gemm_int8.pack_phase import Int8PackPhase
from motet.compiler.codegen.cpu.gemm_int8.plan import choose
from motet.compiler.codegen.cpu.gemm_int8.reading import DotProduct, match
from motet.compiler.codegen.cpu.gemm_int8.tiles import BLOCK, DEPTH, QUAD, Operands, arithmetic_of
from motet.compiler.codegen.cpu.kernel_class import KernelClass
from motet.compiler.kernels.cost import guess, traffic
from motet.compiler.kernels.kernel_code import KernelCode, Phase
from motet.compiler.kernels.schedule import IntegerProductSchedule
from motet.compiler.targets.cpu import CpuTarget


def emit(found: DotProduct, schedule: IntegerProductSchedule, target: CpuTarget) -> KernelCode:
    """Generate code for an 8-bit product by `schedule`."""
    how = arithmetic_of(target, found.a.unsigned, found.b.unsigned, schedule.way)
    assert how is not None
    return _Int8Emitter(found, schedule, how).run()


CLASS = KernelClass(IntegerProductSchedule, lambda kernel, _: match(kernel), choose, check, emit)


@dataclass(frozen=True)
class _PanelTiles:
    """Register tiles `tiles` of panel `number` at outer coordinates `at`, whose sums begin at `sums`; `tail` says that
    the panel is incomplete."""

    at: list[Index]
    tiles: Range
    number: Index
    tail: bool
    sums: ir.Value


class _Int8Emitter(Int8PackPhase, Int8Gather, Int8Corrections):
    """Emits one module: packing, register tiles, epilogues, and the tasks that call these."""

    # -- phases --------------------------------------------------------------------------------------

    def run(self) -> KernelCode:
        kernel, plan = self.kernel, self.plan
        tasks = ProductTasks(plan, self.m, self.n, self.c.outer, self.c.rank)
        phases = [Phase(kernel.name, tasks.count)]
        f = task_function(self.module, kernel)
        begin, end, scratch = f.arguments[2:5]
        if self.how.way == "tiles":
            dot_tiles.configure(f, self.amx_rows)

        def block(at: list[Index], tiles: Range, panels: Range) -> None:
            self._block(f, at, tiles, panels, scratch)

        f.loop(begin, end, 1, lambda index, _: tasks.walk(f, index, block))
        if self.how.way == "tiles":
            dot_tiles.release(f)
        f.ret_void()
        if (packs := self.pack_phase()) is not None:
            phases.insert(0, packs)
        if (transposes := self.transpose_phase()) is not None:
            phases.insert(0, transposes)
        flops = 2 * guess(self.m) * guess(self.n) * guess(self.k)
        for size, _ in self.c.outer:
            flops *= guess(size)
        packings = {self.c.b.value: self.packing} if self.packing is not None else {}
        if self.image is not None:
            packings = {self.image.filters: self.image.filter_packing}
        moved = traffic(kernel)
        kind = "product" if self.image is None else "convolution"
        return KernelCode(
            f"integer {kind}, {self.how.way}", str(self.module), tuple(phases), self.scratch, tuple(self.workspaces),
            packings, flops, moved,
        )

    # -- tasks ---------------------------------------------------------------------------------------

    def _block(
        self, f: TileFrame, at: list[Index], tiles: Range, panels: Range, scratch: ir.Value
    ) -> None:
        """Emit the work of one task at one outer iteration."""
        plan = self.plan
        image = self.image
        a = self._gathered_rows(f, at, tiles) if image is not None and image.is_a else self._factor_a(f, at)
        b = a if image is not None and not image.is_a else self._factor_b(f, at)
        deep = self._deep(f)
        if plan.depth_block is None:
            def whole(p: Index, tail: bool) -> None:
                gathered = image is not None and not image.is_a
                at_b = self._gathered_columns(f, at, p) if gathered else self._panel(f, b, p)
                self._sum_columns(f, at_b, tail)
                self._tiles(f, a, at_b, deep, _PanelTiles(at, tiles, p, tail, scratch), ("multiply", "finish"))

            loop_over_panels(f, self.n, plan.width, panels, whole)
            return
        self._clear(f, scratch)

        def panel(p: Index, tail: bool) -> _PanelTiles:
            return _PanelTiles(at, tiles, p, tail, f.at(scratch, f.imul(f.isub(p, panels[0]), plan.width), I32))

        def block(begin: Index, _: list[ir.Value]) -> None:
            here = f.imin(f.isub(deep, begin), plan.depth_block or 1)
            a_here = f.at(a, f.imul(begin, self.how.a_bytes), I8)
            b_here = f.at(b, f.imul(begin, BLOCK), I8)
            loop_over_panels(f, self.n, plan.width, panels, lambda p, tail: self._tiles(
                f, a_here, self._panel(f, b_here, p), here, panel(p, tail), ("multiply",)))

        def last(p: Index, tail: bool) -> None:
            at_b = self._panel(f, b, p)
            self._sum_columns(f, at_b, tail)
            self._tiles(f, a, at_b, deep, panel(p, tail), ("finish",))

        f.loop(0, deep, plan.depth_block, block)
        loop_over_panels(f, self.n, plan.width, panels, last)

    def _gathered_rows(self, f: TileFrame, at: list[Index], tiles: Range) -> ir.Value:
        """Where row 0 of A would be, if all rows were gathered like those of the register tiles `tiles`."""
        first, end = self.row(f, tiles[0]), f.imin(self.row(f, tiles[1]), f.extent(self.m))
        lines = self.gathered(f, at, first, f.isub(end, first))
        return f.at(lines, f.isub(0, f.imul(first, self._a_row(f))), I8)

    def _gathered_columns(self, f: TileFrame, at: list[Index], p: Index) -> ir.Value:
        """The columns of B of panel `p`, gathered."""
        first = f.imul(p, self.plan.width)
        return self.gathered(f, at, first, f.imin(f.isub(f.extent(self.n), first), self.plan.width))

    def _deep(self, f: TileFrame) -> Index:
        """The number of steps of the tiles along K: of 64 numbers with AMX, else of four."""
        return f.imul(f.iceil(f.extent(self.k), self._step), self._step)

    @property
    def _step(self) -> int:
        return DEPTH if self.how.way == "tiles" else QUAD

    def _clear(self, f: TileFrame, sums: ir.Value) -> None:
        lanes = self.how.lanes
        zero = ir.Constant(ir.VectorType(I32, lanes), None)
        f.loop(0, self.scratch_columns // 4, lanes, lambda i, _: f.store_vector(zero, f.at(sums, i, I32), I32))

    def _factor_a(self, f: TileFrame, at: list[Index]) -> ir.Value:
        """The address of A's first row at outer coordinates `at`."""
        if self.aligns_a:
            packed = self.memory(f, self.a_workspace)
            return f.select(self.a_is_aligned(f), f.address(self.c.a, at), packed)
        if self.plan.in_place:
            return f.address(self.c.a, at)
        row = f.imul(self.outer_number(f, at, self.c.a), self.padded_rows(f))
        offset = f.imul(f.imul(row, self.padded_depth(f)), self.how.a_bytes)
        return f.at(self.memory(f, self.a_workspace), offset, I8)

    def _factor_b(self, f: TileFrame, at: list[Index]) -> ir.Value:
        packed = self.packing is not None
        memory = f.pointer(self.c.b.value) if packed else self.memory(f, self.b_workspace)
        column = f.imul(self.outer_number(f, at, self.c.b), self.padded_columns(f))
        return f.at(memory, f.imul(column, self.padded_depth(f)), I8)

    def _panel(self, f: TileFrame, b: ir.Value, p: Index) -> ir.Value:
        return f.at(b, f.imul(f.imul(p, self.plan.width), self.padded_depth(f)), I8)

    def _a_row(self, f: TileFrame) -> Index:
        """A's stride between rows in bytes."""
        if self.plan.in_place:
            return f.extent(self.c.a.strides[self.row_dim]) if self.row_dim is not None else 0
        return f.imul(self.padded_depth(f), self.how.a_bytes)

    # -- panels and tiles ----------------------------------------------------------------------------

    def _sum_columns(self, f: TileFrame, b: ir.Value, tail: bool) -> None:
        """Compute the sums of a panel's columns in scratch memory."""
        if not self.column_sums:
            return
        name = f"{self.kernel.name}.columns{'_tail' if tail else ''}"

        def write(g: TileFrame) -> None:
            quads = g.iceil(g.extent(self.k), QUAD)
            dot_tiles.column_sums(
                g, self.how, self.blocks(tail), g.arguments[2], g.imul(self.padded_depth(g), BLOCK), g.arguments[3],
                quads,
            )

        function = shared_function(self.module, name, [PTR, PTR, PTR, PTR], self.kernel, write)
        f.call(function, [*f.arguments[:2], b, f.at(self._scratch_base(f), self.scratch_columns, I8)])

    def _scratch_base(self, f: TileFrame) -> ir.Value:
        return f.arguments[4]

    def _tiles(
        self, f: TileFrame, a: ir.Value, b: ir.Value, deep: Index, panel: _PanelTiles,
        what: tuple[Literal["multiply", "finish"], ...],
    ) -> None:
        """Multiply and finish the register tiles of a panel."""
        at, tail = panel.at, panel.tail
        n = f.imul(panel.number, self.plan.width)
        columns = f.at(self._scratch_base(f), self.scratch_columns, I8)
        row0 = self.row(f, panel.tiles[0])

        def one(m: Index, rows: int) -> None:
            at_sums = panel.sums
            if self.blocked:
                at_sums = f.at(panel.sums, f.imul(f.isub(m, row0), self.tile_width), I32)
            if "multiply" in what:
                at_a = f.at(a, f.imul(m, self._a_row(f)), I8)
                f.call(self._multiply(rows, tail), [
                    *f.arguments[:2], at_a, b, at_sums, f.index(f.idiv(deep, self._step))])
            if "finish" in what:
                row_sums = at_sums
                if self.row_sums and self.image is not None and self.image.is_a:
                    row_sums = f.at(f.at(self._scratch_base(f), self.scratch_sums, I8), f.isub(m, row0), I32)
                elif self.row_sums:
                    row = f.iadd(f.imul(self.outer_number(f, at, self.c.a), self.padded_rows(f)), m)
                    row_sums = f.at(self.memory(f, self.sums_workspace), row, I32)
                existing = f.imin(f.isub(f.extent(self.m), m), rows) if self.how.way == "tiles" else rows
                numbers = [f.index(v) for v in (m, n, f.isub(f.extent(self.n), n), existing)]
                outer = [f.index(at[dim]) for _, dim in self.c.outer]
                f.call(self.finish_function(tail), [*f.arguments[:2], at_sums, columns, row_sums, *numbers, *outer])

        self._row_tiles(f, panel.tiles, one)

    def _row_tiles(self, f: TileFrame, tiles: Range, one: Callable[[Index, int], None]) -> None:
        """Call `one(first row, rows)` for register tiles: AMX uses a whole one, or half of one, for the last rows."""
        rows, m = self.plan.rows, f.extent(self.m)
        if self.how.way != "tiles":
            loop_over_tiles(f, self.m, rows, tiles, lambda _, row, rows: one(row, rows))
            return
        whole = f.idiv(m, rows)
        f.loop(tiles[0], f.imin(tiles[1], whole), 1, lambda t, _: one(f.imul(t, rows), rows))
        if self.m.known is not None and self.m.known % rows == 0:
            return
        row, left, half = f.imul(whole, rows), f.irem(m, rows), self.amx_rows
        with f.if_then(f.icmp_signed(">", f.index(tiles[1]), f.index(whole))):
            if rows == half:
                one(row, rows)
                return
            with f.if_else(f.icmp_signed(">", f.index(left), f.index(half))) as (both, single):
                with both:
                    one(row, rows)
                with single:
                    one(row, half)

    def _multiply(self, rows: int, tail: bool) -> ir.Function:
        """The function `(buffers, sizes, a, b, sums, steps)` that multiplies one register tile."""
        name = f"{self.kernel.name}.tile{rows}{'_tail' if tail else ''}"

        def write(f: TileFrame) -> None:
            a, b, sums, steps = f.arguments[2:6]
            known = self.k.known is not None and not self.blocked
            length = f.idiv(self._deep(f), self._step) if known else steps
            block = f.imul(self.padded_depth(f), BLOCK)
            at = Operands(a, self._a_row(f), b, block, sums, self.tile_width, not self.blocked)
            if self.how.way == "tiles":
                half = self.amx_rows
                dot_tiles.multiply_amx(
                    f, self.how, rows // half, half, self.blocks(tail), at, length)
            else:
                dot_tiles.multiply_tile(f, self.how, rows, self.blocks(tail), at, length)

        return shared_function(self.module, name, [PTR] * 5 + [I64], self.kernel, write)
