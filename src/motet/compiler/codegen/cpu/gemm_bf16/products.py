"""Products of bf16 numbers, summed in f32: matrix products in any order of dimensions, with a fused epilogue.

They use the CPU's matrix and dot-product instructions (`tiles.py`), which multiply exactly; the order of the sums
differs from the program's, as in every contraction. A first phase (`pack_phase.py`) packs both operands in the order
that the tiles read, unless that was done when compiling or A already has this layout.

AMX tiles have equal numbers of rows. If these do not divide M, the last tile begins so early that it ends with the last
row; its first rows are computed twice and stored once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.builder import F32, I16, I64, PTR, Index
from motet.compiler.codegen.cpu.emit.epilogue import Views, finish
from motet.compiler.codegen.cpu.gemm.microkernel import (
    Depth,
    PartialVector,
    TileFrame,
    narrow,
    shared_function,
    task_function,
    widen,
)
from motet.compiler.codegen.cpu.gemm.tasks import ProductTasks, Range, loop_over_panels, loop_over_tiles
from motet.compiler.codegen.cpu.gemm_bf16 import tiles as pair_tiles
from motet.compiler.codegen.cpu.gemm_bf16.image_phase import BfloatImagePhase
from motet.compiler.codegen.cpu.gemm_bf16.legality import check
from motet.compiler.codegen.cpu.gemm_bf16.pack_phase import BfloatPackPhase
from motet.compiler.codegen.cpu.gemm_bf16.plan import choose
from motet.compiler.codegen.cpu.gemm_bf16.reading import match
from motet.compiler.codegen.cpu.gemm_bf16.tiles import BLOCK, DEPTH, LANES, PAIR, PAIR_NUMBERS, BfloatOperands
from motet.compiler.codegen.cpu.gemm_bf16.windows import BfloatProduct
from motet.compiler.codegen.cpu.kernel_class import KernelClass
from motet.compiler.kernels.cost import guess, traffic
from motet.compiler.kernels.kernel_code import KernelCode, Phase
from motet.compiler.kernels.schedule import BfloatProductSchedule
from motet.compiler.kernels.strides import StridedAccess, product_of
from motet.compiler.targets.cpu import CpuTarget


def emit(c: BfloatProduct, schedule: BfloatProductSchedule, target: CpuTarget) -> KernelCode:
    """Generate code for a bf16 product by `schedule`."""
    return _BfloatEmitter(c, schedule).run()


CLASS = KernelClass(BfloatProductSchedule, match, choose, check, emit)


@dataclass(frozen=True)
class _BfloatPanel:
    """Register tiles `tiles` of panel `number` at outer coordinates `at`, whose sums begin at `sums`; `tail` says that
    the panel is incomplete."""

    at: list[Index]
    tiles: Range
    number: Index
    tail: bool
    sums: ir.Value


@dataclass(frozen=True)
class _TileRows:
    """Rows of a register tile: it computes those from `start` on, of which it stores `count` from `first` on."""

    start: Index
    first: Index
    count: Index


class _BfloatEmitter(BfloatPackPhase, BfloatImagePhase):
    """Emits one module: packing, register tiles, epilogues, and the tasks that call these."""

    # -- phases --------------------------------------------------------------------------------------

    def run(self) -> KernelCode:
        kernel, plan, c = self.kernel, self.plan, self.c
        tasks = ProductTasks(plan, self.m, self.n, c.outer, c.rank)
        phases = [Phase(kernel.name, tasks.count)]
        f = task_function(self.module, kernel)
        begin, end, scratch = f.arguments[2:5]
        if plan.way == "tiles":
            pair_tiles.configure(f, self.amx_rows(f))

        def block(at: list[Index], tiles: Range, panels: Range) -> None:
            self._block(f, at, tiles, panels, scratch)

        f.loop(begin, end, 1, lambda index, _: tasks.walk(f, index, block))
        if plan.way == "tiles":
            pair_tiles.release(f)
        f.ret_void()
        if (packs := self.pack_phase() if c.image is None else self.image_phase(c.image)) is not None:
            phases.insert(0, packs)
        flops = 2 * guess(self.m * self.n) * guess(product_of([*c.outer, *c.depth]))
        packings = {c.b.value: self.packing} if self.packing is not None else {}
        return KernelCode(
            f"bf16 product, {plan.way}", str(self.module), tuple(phases), self.scratch, tuple(self.workspaces),
            packings, flops, traffic(kernel),
        )

    # -- tasks ---------------------------------------------------------------------------------------

    def _block(self, f: TileFrame, at: list[Index], tiles: Range, panels: Range, scratch: ir.Value) -> None:
        """Emit the work of one task at one outer iteration."""
        plan = self.plan
        a, b = self._factor_a(f, at), self._factor_b(f, at)
        deep = self._padded(f)
        if plan.depth_block is None:
            loop_over_panels(f, self.n, plan.width, panels, lambda p, tail: self._tiles(
                f, a, self._panel(f, b, p), deep, _BfloatPanel(at, tiles, p, tail, scratch), ("multiply", "finish")))
            return
        zero = ir.Constant(ir.VectorType(F32, LANES), None)
        f.loop(0, self.scratch // 4, LANES, lambda i, _: f.store_vector(zero, f.at(scratch, i, F32), F32))

        def panel(p: Index, tail: bool) -> _BfloatPanel:
            return _BfloatPanel(at, tiles, p, tail, f.at(scratch, f.imul(f.isub(p, panels[0]), plan.width), F32))

        def block(begin: Index, _: list[ir.Value]) -> None:
            here = f.imin(f.isub(deep, begin), plan.depth_block or 1)
            a_here = f.at(a, begin, I16)
            b_here = f.at(b, f.imul(begin, BLOCK), I16)
            loop_over_panels(f, self.n, plan.width, panels, lambda p, tail: self._tiles(
                f, a_here, self._panel(f, b_here, p), here, panel(p, tail), ("multiply",)))

        f.loop(0, deep, plan.depth_block, block)
        loop_over_panels(f, self.n, plan.width, panels, lambda p, tail: self._tiles(
            f, a, b, deep, panel(p, tail), ("finish",)))

    @property
    def _step(self) -> int:
        """The numbers along K that one instruction multiplies."""
        return DEPTH if self.plan.way == "tiles" else PAIR

    def _padded(self, f: TileFrame) -> Index:
        """The numbers along the innermost loop of K, in whole steps."""
        return f.imul(f.iceil(f.extent(self.k), self._step), self._step)

    def _factor_a(self, f: TileFrame, at: list[Index]) -> ir.Value:
        """The address of A's first row at outer coordinates `at`."""
        if self.c.image is not None:
            return f.at(self.memory(f, self.a_workspace), f.offset(self.c.a, at), I16)
        if self.plan.in_place:
            return f.address(self.c.a, at)
        row = f.imul(self.outer_number(f, at, self.c.a), self.padded_rows(f))
        return f.at(self.memory(f, self.a_workspace), f.imul(row, self.padded_depth(f)), I16)

    def _factor_b(self, f: TileFrame, at: list[Index]) -> ir.Value:
        memory = f.pointer(self.c.b.value) if self.packing is not None else self.memory(f, self.b_workspace)
        column = f.imul(self.outer_number(f, at, self.c.b), self.padded_columns(f))
        return f.at(memory, f.imul(column, self.column_depth(f)), I16)

    def _panel(self, f: TileFrame, b: ir.Value, p: Index) -> ir.Value:
        return f.at(b, f.imul(f.imul(p, self.plan.width), self.column_depth(f)), I16)

    def _a_row(self, f: TileFrame) -> Index:
        """A's stride between rows."""
        if self.plan.in_place:
            return f.extent(self.c.a.strides[self.row_dim]) if self.row_dim is not None else 0
        return self.padded_depth(f)

    # -- panels and tiles ----------------------------------------------------------------------------

    def _tiles(
        self, f: TileFrame, a: ir.Value, b: ir.Value, deep: Index, panel: _BfloatPanel,
        what: tuple[Literal["multiply", "finish"], ...],
    ) -> None:
        """Multiply and finish the register tiles of a panel."""
        n = f.imul(panel.number, self.plan.width)
        begin = self.row(f, panel.tiles[0])
        apart = self.amx_rows(f) if self.plan.way == "tiles" else 0

        def one(parts: Sequence[_TileRows], rows: int) -> None:
            sums = panel.sums
            if self.blocked:
                sums = f.at(sums, f.imul(f.isub(parts[0].first, begin), self.tile_width), F32)
            if "multiply" in what:
                lines = [f.at(a, f.imul(part.start, self._a_row(f)), I16) for part in parts]
                f.call(self._multiply(rows, panel.tail), [
                    *f.arguments[:2], *self._addresses(lines), b, sums, f.index(f.idiv(deep, self._step))])
            if "finish" in what:
                for i, part in enumerate(parts):
                    row = f.iadd(f.imul(i, apart), f.isub(part.first, part.start))
                    numbers = (part.first, n, f.isub(f.extent(self.n), n), part.count)
                    f.call(self._finish(panel.tail), [
                        *f.arguments[:2], f.at(sums, f.imul(row, self.tile_width), F32), *map(f.index, numbers),
                        *(f.index(panel.at[dim]) for _, dim in self.c.outer)])

        (self._amx_tiles if self.plan.way == "tiles" else self._vector_tiles)(f, panel.tiles, one)

    def _amx_tiles(self, f: TileFrame, tiles: Range, one: Callable[[Sequence[_TileRows], int], None]) -> None:
        """Call `one(parts, rows)` for register tiles of two AMX tiles of rows, then for the last one of one tile."""
        rows, height, m = self.plan.rows, self.height, f.extent(self.m)
        last = f.isub(m, self.amx_rows(f))

        def tile(t: Index, count: int) -> None:
            firsts = [f.iadd(f.imul(t, rows), i * height) for i in range(count)]
            one([
                _TileRows(f.imin(first, last), first, f.imin(f.isub(m, first), height)) for first in firsts
            ], count * height)

        begin, end = tiles
        pairs = f.iceil(f.imax(f.isub(m, height), 0), rows) if rows > height else 0
        if rows > height:
            f.loop(begin, f.imin(end, pairs), 1, lambda t, _: tile(t, 2))
            begin = f.imax(begin, pairs)
        f.loop(begin, end, 1, lambda t, _: tile(t, 1))

    def _addresses(self, lines: list[ir.Value]) -> list[ir.Value]:
        """Those of A's rows that register tiles take: of the first rows of both AMX tiles, or of all."""
        return [lines[0], lines[-1]] if self.plan.way == "tiles" else lines

    def _vector_tiles(self, f: TileFrame, tiles: Range, one: Callable[[Sequence[_TileRows], int], None]) -> None:
        """Call `one(part, rows)` for register tiles."""
        loop_over_tiles(f, self.m, self.plan.rows, tiles, lambda _, row, rows: one([_TileRows(row, row, rows)], rows))

    def _multiply(self, rows: int, tail: bool) -> ir.Function:
        """The function `(buffers, sizes, a, second a, b, sums, steps)` that multiplies one register tile."""
        name = f"{self.kernel.name}.tile{rows}{'_tail' if tail else ''}"

        def write(f: TileFrame) -> None:
            *a, b, sums, steps = f.arguments[2:]
            block = f.imul(self.column_depth(f), BLOCK)
            lines = a if rows > self.height else a[:1]
            at = BfloatOperands(lines, self._a_row(f), b, block, sums, self.tile_width, not self.blocked)
            depth = self._depth(f, steps)
            if self.plan.way == "tiles":
                pair_tiles.multiply_amx(f, self.amx_rows(f), self.blocks(tail), at, depth)
            else:
                pair_tiles.multiply_tile(f, rows, self.blocks(tail), at, depth)

        return shared_function(self.module, name, [PTR] * (6 if self.plan.way == "tiles" else 5) + [I64], self.kernel, write)

    def _depth(self, f: TileFrame, steps: ir.Value) -> list[Depth]:
        """The loops along K, with their strides in numbers."""
        known = self.k.known is not None and not self.blocked
        length = f.idiv(self._padded(f), self._step) if known else steps
        result = [Depth(length, self._step, self._step * PAIR_NUMBERS // PAIR)]
        b_step = f.imul(self.padded_depth(f), BLOCK)
        for size, dim in reversed(self.c.depth[:-1]):
            result.insert(0, Depth(f.extent(size), f.extent(self.c.a.strides[dim]), b_step))
            b_step = f.imul(b_step, f.extent(size))
        return result

    # -- epilogue ------------------------------------------------------------------------------------

    def _finish(self, tail: bool) -> ir.Function:
        """The function `(buffers, sizes, sums, m, n, left, rows, outer…)` that runs the epilogue on sums, row by
        row."""
        name = f"{self.kernel.name}.finish{'_tail' if tail else ''}"
        arguments = [PTR] * 3 + [I64] * (4 + len(self.c.outer))
        return shared_function(self.module, name, arguments, self.kernel, lambda f: self._write_finish(f, tail))

    def _write_finish(self, f: TileFrame, tail: bool) -> None:
        c = self.c
        sums, m, n, left, rows = f.arguments[2:7]
        coordinates: list[Index] = [0] * c.rank
        for (_, dim), value in zip(c.outer, f.arguments[7:], strict=True):
            coordinates[dim] = value
        if self.row_dim is not None:
            coordinates[self.row_dim] = m
        coordinates[c.column] = n
        views = Views(f, c.places, coordinates, self.row_dim, c.column)

        def line(row: Index, _: list[ir.Value]) -> None:
            for column, lane in self._vectors(f, tail, left):
                value = f.load_vector(f.at(sums, f.iadd(f.imul(row, self.tile_width), column), F32), F32, LANES)
                value = self._with_initial(f, views, value, row, column, lane)
                finish(f, c.epilogue, views, narrow(f, value, c.output), row, column, lane)

        f.loop(0, rows, 1, line)

    def _vectors(self, f: TileFrame, tail: bool, left: Index) -> list[tuple[int, PartialVector]]:
        """The first column of each vector of a panel, and the lanes of it that exist."""
        width = self.plan.width
        if not tail:
            return [(column, PartialVector(LANES)) for column in range(0, width, LANES)]
        if self.n.known is None:
            return [(column, PartialVector(LANES, f.isub(left, column))) for column in range(0, width, LANES)]
        count = self.n.known % width
        return [
            (column, PartialVector(LANES) if count - column >= LANES else PartialVector(LANES, count - column))
            for column in range(0, count, LANES)
        ]

    def _with_initial(
        self, f: TileFrame, views: Views, value: ir.Value, row: Index, column: int, lane: PartialVector
    ) -> ir.Value:
        init = self.c.init
        if isinstance(init, StridedAccess):
            return f.fadd(value, widen(f, views.read(init, row, column, lane), init.dtype, (), "f32"))
        return f.fadd(value, ir.Constant(value.type, [float(init)] * LANES)) if init else value
