"""Products of bytes summed as i32, and of bf16 numbers summed as f32: matrix products in any order of dimensions and
convolutions, with a fused element-wise epilogue.

    sum over k of (a[m, k] - a_zero) * (b[k, n] - b_zero)          any signs; bf16 numbers have no zero points

They use the CPU's dot-product and matrix instructions (`instructions.py`). A first phase (`pack_phase.py`) packs both
operands in the order that the tiles read, unless that was done when compiling or A already has this layout (for AMX and
bytes also aligned to a cache line, since otherwise every row of a tile spans two lines).

Zero points are moved out of the sum, with the sums of A's rows and of B's columns, and `finish.py` adds them again:

    sum a*b  -  a_zero * sum b  -  b_zero * (sum a  -  K * a_zero)

All arithmetic of bytes wraps around as i32, so that the order of the sums does not change the result. Products of bf16
numbers are exact; the order of their sums differs from the program's, as in every contraction.

AMX tiles have equal numbers of rows. If these do not divide M, the last tile begins so early that it ends with the last
row; its first rows are computed twice and stored once.

Source of the zero points' terms: Jacob et al., "Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference", 2018, section 2.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.builder import I8, I32, Index
from motet.compiler.codegen.cpu.gemm.microkernel import TileFrame, task_function
from motet.compiler.codegen.cpu.gemm.space import Range
from motet.compiler.codegen.cpu.kernel_class import KernelClass
from motet.compiler.codegen.cpu.products import bfloat_reading, byte_reading, tiles
from motet.compiler.codegen.cpu.products.bfloat_copy import ImageCopy
from motet.compiler.codegen.cpu.products.byte_gather import ByteGather
from motet.compiler.codegen.cpu.products.finish import ByteCorrection
from motet.compiler.codegen.cpu.products.instructions import BLOCK, BYTES
from motet.compiler.codegen.cpu.products.legality import check
from motet.compiler.codegen.cpu.products.pack_phase import PackPhase
from motet.compiler.codegen.cpu.products.plan import choose
from motet.compiler.codegen.cpu.products.product import LineProduct, ProductSchedule
from motet.compiler.codegen.cpu.products.space import LineSpace
from motet.compiler.codegen.cpu.products.tiles import Operands, inner_depth
from motet.compiler.kernels.kernel_code import KernelCode
from motet.compiler.kernels.schedule import BfloatProductSchedule, IntegerProductSchedule
from motet.compiler.targets.cpu import CpuTarget


def emit(found: LineProduct, schedule: ProductSchedule, target: CpuTarget) -> KernelCode:
    """Generate code for a product by `schedule`."""
    how = found.arithmetic(target, schedule.way)
    assert how is not None
    return _ProductEmitter(LineSpace(found, schedule, how)).run()


INTEGER_CLASS = KernelClass(IntegerProductSchedule, byte_reading.match, choose, check, emit)
BFLOAT_CLASS = KernelClass(BfloatProductSchedule, bfloat_reading.match, choose, check, emit)


@dataclass(frozen=True)
class _PanelTiles:
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


# Emits a register tile of so many rows, by the first rows that are read for its AMX tiles (two, or the same one twice),
# and its parts.
_OneTile = Callable[[Sequence[Index], Sequence[_TileRows], int], None]
_What = tuple[Literal["multiply", "finish"], ...]


class _ProductEmitter:
    """Emits one module: packing, register tiles, epilogues, and the tasks that call these."""

    def __init__(self, space: LineSpace) -> None:
        self.space = space
        self.correction = ByteCorrection(space) if space.numbers is BYTES else None
        image = space.found.gathered
        self.gather = None if image is None else ByteGather(space, image)

    # -- phases --------------------------------------------------------------------------------------

    def run(self) -> KernelCode:
        s, gather = self.space, self.gather
        f = task_function(s.module, s.kernel)
        begin, end = f.arguments[2:4]
        if s.how.way == "tiles":
            tiles.configure(f, s.amx_rows(f))
        f.loop(begin, end, 1, lambda index, _: s.walk(f, index, lambda *block: self._block(f, *block)))
        if s.how.way == "tiles":
            tiles.release(f)
        f.ret_void()
        packs = PackPhase(s).emit() if s.found.copied is None else ImageCopy(s, s.found.copied).emit()
        transposes = None if gather is None else gather.transpose_phase()
        packings = {} if s.packing is None else {s.c.b.value: s.packing}
        if gather is not None:
            packings = {gather.image.filters: gather.image.filter_packing}
        title = f"{s.numbers.title} {'product' if gather is None else 'convolution'}, {s.how.way}"
        return s.code(title, [transposes, packs], s.scratch, s.workspaces, packings)

    # -- tasks ---------------------------------------------------------------------------------------

    def _block(self, f: TileFrame, at: list[Index], rows: Range, panels: Range) -> None:
        """Emit the work of one task at one outer iteration."""
        s, plan, scratch, gather = self.space, self.space.plan, f.arguments[4], self.gather
        element, total = s.numbers.element, s.numbers.total
        gathers_columns = gather is not None and not gather.image.is_a
        a = s.address_a(f, at) if gather is None or gathers_columns else gather.gathered_rows(f, at, rows)
        b = a if gathers_columns else s.address_b(f, at)
        deep = s.stepped_depth(f)
        if plan.depth_block is None:
            def whole(p: Index, tail: bool) -> None:
                columns = gather.gathered_columns(f, at, p) if gather and gathers_columns else s.panel(f, b, p)
                self._sum_columns(f, columns, tail)
                self._tiles(f, (a, columns, deep), _PanelTiles(at, rows, p, tail, scratch), ("multiply", "finish"))

            s.loop_over_panels(f, panels, whole)
            return
        s.clear(f, scratch, s.sums_bytes // 4)

        def panel(p: Index, tail: bool) -> _PanelTiles:
            return _PanelTiles(at, rows, p, tail, f.at(scratch, f.imul(f.isub(p, panels[0]), plan.width), total))

        def block(begin: Index, here: Index) -> None:
            a_here = f.at(a, f.imul(begin, s.how.a_scale), element)
            b_here = f.at(b, f.imul(begin, BLOCK), element)
            s.loop_over_panels(f, panels, lambda p, tail: self._tiles(
                f, (a_here, s.panel(f, b_here, p), here), panel(p, tail), ("multiply",)))

        def last(p: Index, tail: bool) -> None:
            columns = s.panel(f, b, p)
            self._sum_columns(f, columns, tail)
            self._tiles(f, (a, columns, deep), panel(p, tail), ("finish",))

        s.loop_over_depth(f, deep, block)
        s.loop_over_panels(f, panels, last)

    # -- panels and tiles ----------------------------------------------------------------------------

    def _sum_columns(self, f: TileFrame, b: ir.Value, tail: bool) -> None:
        """Compute the sums of a panel's columns in scratch memory."""
        s = self.space
        if not s.column_sums:
            return

        def write(g: TileFrame) -> None:
            groups = g.iceil(g.extent(s.k), s.numbers.group)
            block = g.imul(s.padded_depth(g), BLOCK)
            tiles.column_sums(g, s.how, s.blocks(tail), g.arguments[2], block, g.arguments[3], groups)

        s.call(f, f"columns{'_tail' if tail else ''}", (b, f.at(f.arguments[4], s.sums_bytes, I8)), write)

    def _tiles(
        self, f: TileFrame, operands: tuple[ir.Value, ir.Value, Index], panel: _PanelTiles, what: _What
    ) -> None:
        """Multiply and finish the register tiles of a panel, of A and B at `operands`, along so many numbers of K."""
        s, tail = self.space, panel.tail
        a, b, deep = operands
        begin = s.row(f, panel.tiles[0])

        def one(starts: Sequence[Index], parts: Sequence[_TileRows], rows: int) -> None:
            sums = panel.sums
            if s.blocked:
                sums = f.at(sums, f.imul(f.isub(parts[0].first, begin), s.tile_width), s.numbers.total)
            if "multiply" in what:
                lines = [f.at(a, f.imul(start, s.a_row(f)), s.numbers.element) for start in starts]
                operands = (*lines, b, sums, f.idiv(deep, s.how.step))
                s.call(f, f"tile{rows}{'_tail' if tail else ''}", operands, lambda g: self._multiply(g, rows, tail))
            if "finish" in what:
                for i, part in enumerate(parts):
                    self._finish(f, panel, sums, i, part)

        if s.how.way == "tiles":
            self._amx_tiles(f, panel.tiles, one)
        else:
            s.loop_over_tiles(f, panel.tiles, lambda _, row, rows: one([row], [_TileRows(row, row, rows)], rows))

    def _finish(self, f: TileFrame, panel: _PanelTiles, sums: ir.Value, number: int, part: _TileRows) -> None:
        """Finish part `number` of a register tile."""
        s = self.space
        row = f.isub(part.first, part.start)
        if number:
            row = f.iadd(f.imul(number, s.amx_rows(f)), row)
        own = [f.at(sums, f.imul(row, s.tile_width), s.numbers.total)]
        where = (part.first, panel.number, panel.tail)
        if self.correction is None:
            s.finish_tile(f, own, where, part.count, panel.at)
            return
        columns, of_rows = f.at(f.arguments[4], s.sums_bytes, I8), own[0]
        if s.row_sums and self.gather is not None and self.gather.image.is_a:
            begin = s.first_row(f, panel.tiles[0])
            of_rows = f.at(f.at(f.arguments[4], s.scratch_sums, I8), f.isub(part.first, begin), I32)
        elif s.row_sums:
            line = f.iadd(f.imul(s.outer_number(f, panel.at, s.c.a), s.padded_rows(f)), part.first)
            of_rows = f.at(s.memory(f, s.sums_workspace), line, I32)
        s.finish_tile(f, [*own, columns, of_rows], where, part.count, panel.at, self.correction.emit)

    def _amx_tiles(self, f: TileFrame, tiles: Range, one: _OneTile) -> None:
        """Emit register tiles of two AMX tiles of rows, then the last one of one tile. The last AMX tile ends with the
        last row."""
        rows, height, m = self.space.plan.rows, self.space.height, f.extent(self.space.m)
        last = f.isub(m, self.space.amx_rows(f))

        def pair(t: Index, _: list[ir.Value]) -> None:
            first = f.imul(t, rows)
            one([first, f.iadd(first, height)], [_TileRows(first, first, rows)], rows)

        def tile(t: Index, count: int) -> None:
            firsts = [f.iadd(f.imul(t, rows), i * height) for i in range(count)]
            parts = [_TileRows(f.imin(first, last), first, f.imin(f.isub(m, first), height)) for first in firsts]
            one([parts[0].start, parts[-1].start], parts, count * height)

        begin, end = tiles
        if rows > height:
            whole, pairs = f.idiv(m, rows), f.iceil(f.imax(f.isub(m, height), 0), rows)
            f.loop(begin, f.imin(end, whole), 1, pair)
            f.loop(f.imax(begin, whole), f.imin(end, pairs), 1, lambda t, _: tile(t, 2))
            begin = f.imax(begin, f.imax(whole, pairs))
        f.loop(begin, end, 1, lambda t, _: tile(t, 1))

    def _multiply(self, f: TileFrame, rows: int, tail: bool) -> None:
        """Emit the function `(buffers, sizes, a, b, sums, steps)` that multiplies one register tile. With AMX, the
        address of the second tile's rows follows that of the first one's, `a`."""
        s = self.space
        *a, b, sums, steps = f.arguments[2:]
        block = f.imul(s.column_depth(f), BLOCK)
        at = Operands(a[: 2 if rows > s.height else 1], s.a_row(f), b, block, sums, s.tile_width, not s.blocked)
        if s.k.known is not None and not s.blocked:
            steps = f.idiv(s.stepped_depth(f), s.how.step)
        depth = s.depth_nest(f, inner_depth(s.how, steps), f.imul(s.padded_depth(f), BLOCK))
        if s.how.way == "tiles":
            tiles.multiply_amx(f, s.how, s.amx_rows(f), s.blocks(tail), at, depth)
        else:
            tiles.multiply_tile(f, s.how, rows, s.blocks(tail), at, depth)
