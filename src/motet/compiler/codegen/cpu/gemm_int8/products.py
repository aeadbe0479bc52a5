"""Products of 8-bit integers summed up as i32: matrix products in any order of dimensions, quantized ones included.

    sum over k of (a[m, k] - a_zero) * (b[k, n] - b_zero)          any signs, then element-wise stages, fused

The processor's dot-product and matrix instructions are used where it has them (`dot_tiles.py`). Zero points come out
of the sum: with the sums of A's rows and of B's columns,

    sum a*b  -  a_zero * sum b  -  b_zero * (sum a  -  K * a_zero)

A phase brings both factors into the order that the tiles read, except where that was done when compiling or A already
lies so (at a multiple of a cache line, where AMX reads it: else every row of a tile is two lines). All arithmetic wraps
around as i32, so that the order of the sums changes no bit.

Source of the zero points' terms: Jacob et al., "Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference", 2018, section 2.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from llvmlite import ir

from motet.artifact.expressions import apply, ceildiv, product, round_up
from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu.emit.builder import I8, I32, I64, PTR, Index
from motet.compiler.codegen.cpu.emit.epilogue import Views, finish
from motet.compiler.codegen.cpu.gemm.microkernel import LINE, PartialVector, TileFrame, shared_function, widen
from motet.compiler.codegen.cpu.gemm.tasks import ProductTasks, Range
from motet.compiler.codegen.cpu.gemm_int8 import tiles as dot_tiles
from motet.compiler.codegen.cpu.gemm_int8.legality import check
from motet.compiler.codegen.cpu.gemm_int8.packing import SQUARE, PackedLines, packing_function
from motet.compiler.codegen.cpu.gemm_int8.plan import choose, needs_row_sums, packing_of, used_loops, worth_aligning
from motet.compiler.codegen.cpu.gemm_int8.reading import DotProduct, Factor, match
from motet.compiler.codegen.cpu.gemm_int8.tiles import BLOCK, DEPTH, QUAD, Arithmetic, Operands, arithmetic_of
from motet.compiler.codegen.cpu.kernel_class import KernelClass
from motet.compiler.kernels.contraction import Loop
from motet.compiler.kernels.cost import guess, traffic
from motet.compiler.kernels.kernel import KernelCode, Phase
from motet.compiler.kernels.schedule import IntegerProductSchedule
from motet.compiler.kernels.strides import ONE, Extent, StridedAccess
from motet.compiler.targets.cpu import CpuTarget

_PACKED_LINES = 64  # of one task


def emit(found: DotProduct, schedule: IntegerProductSchedule, target: CpuTarget) -> KernelCode:
    """Code for a product of bytes that is cut as `schedule` says."""
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


class _Int8Emitter:
    """Emits one module: packing, register tiles, what follows them, and the tasks that call these."""

    def __init__(self, found: DotProduct, plan: IntegerProductSchedule, how: Arithmetic) -> None:
        self.found, self.plan, self.c = found, plan, found.c
        self.how = how
        self.packing = packing_of(found)
        self.kernel = self.c.kernel
        self.module = ir.Module(self.kernel.name)
        self.m = self.c.m[0] if self.c.m else ONE
        self.n, self.k = self.c.n[0], self.c.depth[0][0]
        self.row_dim = self.c.m[1] if self.c.m else None
        self.row_sums = needs_row_sums(found)
        self.column_sums = self.how.column_factor != 0 or found.a.zero != 0
        self.blocked = plan.depth_block is not None
        self.tile_width = plan.width * (plan.panels if self.blocked else 1)
        tile_height = plan.rows * (plan.tile_rows if self.blocked else 1)
        self.scratch_columns = tile_height * self.tile_width * 4
        self.scratch = max(self.scratch_columns + plan.width * 4, SQUARE)
        self.workspaces: list[Expr] = []
        self.a_workspace = self.b_workspace = self.sums_workspace = -1
        self.aligns_a = plan.in_place and worth_aligning(self.c, self.how)
        self._plan_workspaces()

    # -- workspaces ----------------------------------------------------------------------------------

    def _plan_workspaces(self) -> None:
        a_outer, b_outer = (_count(used_loops(self.c.outer, place)) for place in (self.c.a, self.c.b))
        lines = apply("*", a_outer, round_up(self.m.expression, BLOCK))
        deep = round_up(self.k.expression, DEPTH)
        if not self.plan.in_place or self.aligns_a:
            self.a_workspace = self._workspace(product((lines, deep, self.how.a_bytes)))
        if self.packing is None:
            columns = round_up(self.n.expression, BLOCK if self.n.known is not None else self.plan.width)
            self.b_workspace = self._workspace(product((b_outer, columns, deep)))
        if self.row_sums:
            self.sums_workspace = self._workspace(apply("*", lines, 4))

    def _workspace(self, size: Expr) -> int:
        self.workspaces.append(size)
        return len(self.kernel.externals) + len(self.workspaces) - 1

    def _memory(self, f: TileFrame, buffer: int) -> ir.Value:
        with f.goto_entry_block():
            return f.load(f.at(f.arguments[0], buffer, PTR), typ=PTR, align=8)

    def _padded_depth(self, f: TileFrame) -> Index:
        return f.imul(f.iceil(f.extent(self.k), DEPTH), DEPTH)

    def _padded_rows(self, f: TileFrame) -> Index:
        return f.imul(f.iceil(f.extent(self.m), BLOCK), BLOCK)

    def _padded_columns(self, f: TileFrame) -> Index:
        multiple = BLOCK if self.n.known is not None else self.plan.width
        return f.imul(f.iceil(f.extent(self.n), multiple), multiple)

    # -- phases --------------------------------------------------------------------------------------

    def run(self) -> KernelCode:
        kernel, plan = self.kernel, self.plan
        tasks = ProductTasks(plan, self.m, self.n, self.c.outer, self.c.rank)
        phases = [Phase(kernel.name, tasks.count)]
        f = self._phase(kernel.name)
        begin, end, scratch = f.arguments[2:5]
        if self.how.way == "tiles":
            dot_tiles.configure(f, self._amx_rows)

        def block(at: list[Index], tiles: Range, panels: Range) -> None:
            self._block(f, at, tiles, panels, scratch)

        f.loop(begin, end, 1, lambda index, _: tasks.walk(f, index, block))
        if self.how.way == "tiles":
            dot_tiles.release(f)
        f.ret_void()
        if (packs := self._pack_phase()) is not None:
            phases.insert(0, packs)
        flops = 2 * guess(self.m) * guess(self.n) * guess(self.k)
        for size, _ in self.c.outer:
            flops *= guess(size)
        packings = {self.c.b.value: self.packing} if self.packing is not None else {}
        moved = traffic(kernel)
        return KernelCode(
            f"integer product, {self.how.way}", str(self.module), tuple(phases), self.scratch, tuple(self.workspaces),
            packings, flops, moved,
        )

    def _phase(self, name: str) -> TileFrame:
        function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), [PTR, PTR, I64, I64, PTR]), name)
        function.attributes.add("nounwind")
        return TileFrame(self.kernel, function)

    @property
    def _amx_rows(self) -> int:
        """Rows of one AMX tile."""
        known = self.m.known
        return 16 if known is None else -(-known // -(-known // 16))

    # -- packing -------------------------------------------------------------------------------------

    def _pack_phase(self) -> Phase | None:
        """Packs what the tiles do not read in place: tasks of 64 rows of A, then of 64 columns of B."""
        c = self.c
        counts: list[Expr] = []
        for place, extent, packed in ((c.a, self.m, self.a_workspace >= 0), (c.b, self.n, self.b_workspace >= 0)):
            count = apply("*", _count(used_loops(c.outer, place)), ceildiv(extent.expression, _PACKED_LINES))
            counts.append(count if packed else 0)
        if counts == [0, 0]:
            return None
        name = f"{self.kernel.name}_pack"
        f = self._phase(name)
        first = 0
        if self.a_workspace >= 0:
            first = f.imul(self._outer_count(f, c.a), f.iceil(f.extent(self.m), _PACKED_LINES))
            self._pack_loop(f, f.arguments[2], f.imin(f.arguments[3], first), self._pack_a(f))
        if self.b_workspace >= 0:
            pack = self._pack_b(f)
            begin, end = (f.isub(f.index(limit), first) for limit in f.arguments[2:4])
            begin = f.select(f.icmp_signed("<", f.index(begin), f.index(0)), f.index(0), f.index(begin))
            self._pack_loop(f, begin, end, pack)
        f.ret_void()
        return Phase(name, apply("+", *counts))

    def _pack_loop(self, f: TileFrame, begin: Index, end: Index, pack: Callable[[Index], None]) -> None:
        f.loop(begin, end, 1, lambda index, _: pack(index))

    def _pack_a(self, f: TileFrame) -> Callable[[Index], None]:
        c, how = self.c, self.how

        def lines(g: TileFrame) -> PackedLines:
            line = g.extent(c.a.strides[self.row_dim]) if self.row_dim is not None else 0
            return PackedLines(
                line, g.extent(c.a.strides[c.depth[0][1]]), False, how.a_unsigned, how.flips_a, how.a_bytes == 2,
                self.row_sums,
            )

        function = packing_function(self.module, self.kernel, f"{self.kernel.name}.pack_a", lines)

        def pack(index: Index) -> None:
            at, outer, line = self._packed_lines(f, index, c.a, self.m)
            if self.row_dim is not None:
                at[self.row_dim] = line
            row = f.iadd(f.imul(outer, self._padded_rows(f)), line)
            offset = f.imul(f.imul(row, self._padded_depth(f)), how.a_bytes)
            target = f.at(self._memory(f, self.a_workspace), offset, I8)
            sums = f.at(self._memory(f, self.sums_workspace), row, I32) if self.row_sums else target
            if not self.aligns_a:
                self._call_pack(f, function, f.address(c.a, at), target, sums, f.isub(f.extent(self.m), line))
                return
            with f.if_then(f.not_(self._a_is_aligned(f))):
                self._call_pack(f, function, f.address(c.a, at), target, sums, f.isub(f.extent(self.m), line))

        return pack

    def _a_is_aligned(self, f: TileFrame) -> ir.Value:
        place = f.ptrtoint(f.address(self.c.a, [0] * self.c.rank), I64)
        return f.icmp_unsigned("==", f.and_(place, f.index(LINE - 1)), f.index(0))

    def _pack_b(self, f: TileFrame) -> Callable[[Index], None]:
        c = self.c

        def lines(g: TileFrame) -> PackedLines:
            strides = g.extent(c.b.strides[c.column]), g.extent(c.b.strides[c.depth[0][1]])
            return PackedLines(*strides, True, self.how.b_unsigned)

        function = packing_function(self.module, self.kernel, f"{self.kernel.name}.pack_b", lines)

        def pack(index: Index) -> None:
            at, outer, line = self._packed_lines(f, index, c.b, self.n)
            at[c.column] = line
            column = f.iadd(f.imul(outer, self._padded_columns(f)), line)
            target = f.at(self._memory(f, self.b_workspace), f.imul(column, self._padded_depth(f)), I8)
            self._call_pack(f, function, f.address(c.b, at), target, target, f.isub(f.extent(self.n), line))

        return pack

    def _packed_lines(
        self, f: TileFrame, index: Index, place: StridedAccess, extent: Extent
    ) -> tuple[list[Index], Index, Index]:
        """Coordinates in the outer loops, their number among those that `place` knows, and the first line."""
        groups = f.iceil(f.extent(extent), _PACKED_LINES)
        outer, group = f.idiv(index, groups), f.irem(index, groups)
        at: list[Index] = [0] * self.c.rank
        rest = outer
        for size, dim in reversed(used_loops(self.c.outer, place)):
            at[dim] = f.irem(rest, f.extent(size))
            rest = f.idiv(rest, f.extent(size))
        return at, outer, f.imul(group, _PACKED_LINES)

    def _call_pack(
        self, f: TileFrame, function: ir.Value, source: ir.Value, target: ir.Value, sums: ir.Value, left: Index
    ) -> None:
        numbers = [f.index(value) for value in (f.imin(left, _PACKED_LINES), f.extent(self.k), self._padded_depth(f))]
        f.call(function, [*f.arguments[:2], source, target, sums, f.arguments[4], *numbers])

    def _outer_count(self, f: TileFrame, place: StridedAccess) -> Index:
        result: Index = 1
        for size, _ in used_loops(self.c.outer, place):
            result = f.imul(result, f.extent(size))
        return result

    # -- tasks ---------------------------------------------------------------------------------------

    def _block(
        self, f: TileFrame, at: list[Index], tiles: tuple[Index, Index], panels: tuple[Index, Index], scratch: ir.Value
    ) -> None:
        """All the work of one task at one outer iteration."""
        plan = self.plan
        a, b = self._factor_a(f, at), self._factor_b(f, at)
        deep = self._deep(f)
        if plan.depth_block is None:
            def whole(p: Index, tail: bool) -> None:
                at_b = self._panel(f, b, p)
                self._sum_columns(f, at_b, tail)
                self._tiles(f, a, at_b, deep, _PanelTiles(at, tiles, p, tail, scratch), ("multiply", "finish"))

            self._panels(f, panels, whole)
            return
        self._clear(f, scratch)

        def panel(p: Index, tail: bool) -> _PanelTiles:
            return _PanelTiles(at, tiles, p, tail, f.at(scratch, f.imul(f.isub(p, panels[0]), plan.width), I32))

        def block(begin: Index, _: list[ir.Value]) -> None:
            here = f.imin(f.isub(deep, begin), plan.depth_block or 1)
            a_here = f.at(a, f.imul(begin, self.how.a_bytes), I8)
            b_here = f.at(b, f.imul(begin, BLOCK), I8)
            self._panels(f, panels, lambda p, tail: self._tiles(
                f, a_here, self._panel(f, b_here, p), here, panel(p, tail), ("multiply",)))

        def last(p: Index, tail: bool) -> None:
            at_b = self._panel(f, b, p)
            self._sum_columns(f, at_b, tail)
            self._tiles(f, a, at_b, deep, panel(p, tail), ("finish",))

        f.loop(0, deep, plan.depth_block, block)
        self._panels(f, panels, last)

    def _deep(self, f: TileFrame) -> Index:
        """How far the tiles go along the depth: in sixty-fours by AMX, in fours else."""
        step = DEPTH if self.how.way == "tiles" else QUAD
        return f.imul(f.iceil(f.extent(self.k), step), step)

    def _clear(self, f: TileFrame, sums: ir.Value) -> None:
        lanes = self.how.lanes
        zero = ir.Constant(ir.VectorType(I32, lanes), None)
        f.loop(0, self.scratch_columns // 4, lanes, lambda i, _: f.store_vector(zero, f.at(sums, i, I32), I32))

    def _factor_a(self, f: TileFrame, at: list[Index]) -> ir.Value:
        """A's first row at outer coordinates `at`."""
        if self.aligns_a:
            packed = self._memory(f, self.a_workspace)
            return f.select(self._a_is_aligned(f), f.address(self.c.a, at), packed)
        if self.plan.in_place:
            return f.address(self.c.a, at)
        row = f.imul(self._outer_number(f, at, self.c.a), self._padded_rows(f))
        offset = f.imul(f.imul(row, self._padded_depth(f)), self.how.a_bytes)
        return f.at(self._memory(f, self.a_workspace), offset, I8)

    def _factor_b(self, f: TileFrame, at: list[Index]) -> ir.Value:
        packed = self.packing is not None
        memory = f.pointer(self.c.b.value) if packed else self._memory(f, self.b_workspace)
        column = f.imul(self._outer_number(f, at, self.c.b), self._padded_columns(f))
        return f.at(memory, f.imul(column, self._padded_depth(f)), I8)

    def _outer_number(self, f: TileFrame, at: list[Index], place: StridedAccess) -> Index:
        result: Index = 0
        for size, dim in used_loops(self.c.outer, place):
            result = f.iadd(f.imul(result, f.extent(size)), at[dim])
        return result

    def _panel(self, f: TileFrame, b: ir.Value, p: Index) -> ir.Value:
        return f.at(b, f.imul(f.imul(p, self.plan.width), self._padded_depth(f)), I8)

    def _a_row(self, f: TileFrame) -> Index:
        """Bytes from row to row of A."""
        if self.plan.in_place:
            return f.extent(self.c.a.strides[self.row_dim]) if self.row_dim is not None else 0
        return f.imul(self._padded_depth(f), self.how.a_bytes)

    # -- panels and tiles ----------------------------------------------------------------------------

    def _panels(self, f: TileFrame, panels: tuple[Index, Index], panel: Callable[[Index, bool], None]) -> None:
        """Whole panels in a loop, then the one that is not."""
        whole = f.idiv(f.extent(self.n), self.plan.width)
        f.loop(panels[0], f.imin(panels[1], whole), 1, lambda p, _: panel(p, False))
        if self.n.known is not None and self.n.known % self.plan.width == 0:
            return
        with f.if_then(f.icmp_signed(">", f.index(panels[1]), f.index(whole))):
            panel(whole, True)

    def _blocks(self, tail: bool) -> int:
        """Blocks of a panel that are calculated; of a tail of unknown width, all."""
        if not tail or self.n.known is None:
            return self.plan.blocks
        return -(-(self.n.known % self.plan.width) // BLOCK)

    def _sum_columns(self, f: TileFrame, b: ir.Value, tail: bool) -> None:
        """The sums of a panel's columns, to the scratch memory."""
        if not self.column_sums:
            return
        name = f"{self.kernel.name}.columns{'_tail' if tail else ''}"

        def write(g: TileFrame) -> None:
            quads = g.iceil(g.extent(self.k), QUAD)
            dot_tiles.column_sums(
                g, self.how, self._blocks(tail), g.arguments[2], g.imul(self._padded_depth(g), BLOCK), g.arguments[3],
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
        row0 = self._row(f, panel.tiles[0])

        def one(m: Index, rows: int) -> None:
            at_sums = panel.sums
            if self.blocked:
                at_sums = f.at(panel.sums, f.imul(f.isub(m, row0), self.tile_width), I32)
            if "multiply" in what:
                at_a = f.at(a, f.imul(m, self._a_row(f)), I8)
                f.call(self._multiply(rows, tail), [*f.arguments[:2], at_a, b, at_sums, f.index(deep)])
            if "finish" in what:
                row_sums = at_sums
                if self.row_sums:
                    row = f.iadd(f.imul(self._outer_number(f, at, self.c.a), self._padded_rows(f)), m)
                    row_sums = f.at(self._memory(f, self.sums_workspace), row, I32)
                existing = f.imin(f.isub(f.extent(self.m), m), rows)
                numbers = [f.index(v) for v in (m, n, f.isub(f.extent(self.n), n), existing)]
                outer = [f.index(at[dim]) for _, dim in self.c.outer]
                f.call(self._finish(tail), [*f.arguments[:2], at_sums, columns, row_sums, *numbers, *outer])

        self._row_tiles(f, panel.tiles, one)

    def _row(self, f: TileFrame, t: Index) -> Index:
        """The first row of register tile `t`."""
        if self.how.way == "tiles" or self.m.known is None:
            return f.imul(t, self.plan.rows)
        size, longer = divmod(self.m.known, -(-self.m.known // self.plan.rows))
        return f.iadd(f.imul(t, size), f.imin(t, longer))

    def _row_tiles(self, f: TileFrame, tiles: tuple[Index, Index], one: Callable[[Index, int], None]) -> None:
        """Call `one(first row, rows)` for register tiles: balanced where M is known; else whole ones, then less."""
        rows, m = self.plan.rows, f.extent(self.m)
        begin, end = tiles
        if self.how.way != "tiles" and self.m.known is not None:
            count = -(-self.m.known // rows)
            size, longer = divmod(self.m.known, count)
            for here, low, high in ((size + 1, 0, longer), (size, longer, count)):
                if high > low:
                    f.loop(f.imax(begin, low), f.imin(end, high), 1,
                           lambda t, _, here=here: one(self._row(f, t), here))
            return
        whole = f.idiv(m, rows)
        f.loop(begin, f.imin(end, whole), 1, lambda t, _: one(f.imul(t, rows), rows))
        if self.m.known is not None and self.m.known % rows == 0:
            return
        with f.if_then(f.icmp_signed(">", f.index(end), f.index(whole))):
            self._rest(f, f.imul(whole, rows), f.irem(m, rows), one)

    def _rest(self, f: TileFrame, row: Index, left: Index, one: Callable[[Index, int], None]) -> None:
        """The rows after the last whole tile: AMX takes whole tiles of them, vectors as many as there are."""
        rows = self.plan.rows
        if self.how.way == "tiles":
            half = self._amx_rows
            if rows == half:
                one(row, rows)
                return
            with f.if_else(f.icmp_signed(">", f.index(left), f.index(half))) as (both, single):
                with both:
                    one(row, rows)
                with single:
                    one(row, half)
            return
        part = 1 << ((rows - 1).bit_length() - 1) if rows > 1 else 0
        while part:
            with f.if_then(f.icmp_unsigned("!=", f.and_(f.index(left), f.index(part)), f.index(0))):
                one(row, part)
            row = f.iadd(row, f.and_(f.index(left), f.index(part)))
            part //= 2

    def _multiply(self, rows: int, tail: bool) -> ir.Function:
        """The function `(buffers, sizes, a, b, sums, deep)` that multiplies one register tile."""
        name = f"{self.kernel.name}.tile{rows}{'_tail' if tail else ''}"

        def write(f: TileFrame) -> None:
            a, b, sums, deep = f.arguments[2:6]
            known = self.k.known is not None and not self.blocked
            length = self._deep(f) if known else deep
            block = f.imul(self._padded_depth(f), BLOCK)
            at = Operands(a, self._a_row(f), b, block, sums, self.tile_width, not self.blocked)
            if self.how.way == "tiles":
                half = self._amx_rows
                dot_tiles.multiply_amx(
                    f, self.how, rows // half, half, self._blocks(tail), at, f.idiv(length, DEPTH))
            else:
                dot_tiles.multiply_tile(f, self.how, rows, self._blocks(tail), at, f.idiv(length, QUAD))

        return shared_function(self.module, name, [PTR] * 5 + [I64], self.kernel, write)

    # -- what follows --------------------------------------------------------------------------------

    def _finish(self, tail: bool) -> ir.Function:
        """The function `(buffers, sizes, sums, columns, row sums, m, n, left, rows, outer…)` that corrects a tile's
        sums and runs the epilogue on them, row by row."""
        name = f"{self.kernel.name}.finish{'_tail' if tail else ''}"
        arguments = [PTR] * 5 + [I64] * (4 + len(self.c.outer))
        return shared_function(self.module, name, arguments, self.kernel, lambda f: self._write_finish(f, tail))

    def _write_finish(self, f: TileFrame, tail: bool) -> None:
        c, lanes = self.c, self.how.lanes
        sums, columns, row_sums, m, n, left, rows = f.arguments[2:9]
        coordinates: list[Index] = [0] * c.rank
        for (_, dim), value in zip(c.outer, f.arguments[9:], strict=True):
            coordinates[dim] = value
        if self.row_dim is not None:
            coordinates[self.row_dim] = m
        coordinates[c.column] = n
        views = Views(f, [*c.places, *self.found.zeros], coordinates, self.row_dim, c.column)
        vectors = self._vectors(f, tail, left)

        def line(row: Index, _: list[ir.Value]) -> None:
            for column, lane in vectors:
                value = f.load_vector(f.at(sums, f.iadd(f.imul(row, self.tile_width), column), I32), I32, lanes)
                value = self._correct(f, views, value, (columns, row_sums), row, column, lane)
                value = f.add(value, self._initial(f, views, row, column, lane))
                finish(f, c.epilogue, views, value, row, column, lane)

        f.loop(0, rows, 1, line)

    def _vectors(self, f: TileFrame, tail: bool, left: Index) -> list[tuple[int, PartialVector]]:
        """The first column of each vector of a panel, and which of its lanes exist."""
        lanes, width = self.how.lanes, self.plan.width
        if not tail:
            return [(column, PartialVector(lanes)) for column in range(0, width, lanes)]
        if self.n.known is None:
            return [(column, PartialVector(lanes, f.isub(left, column))) for column in range(0, width, lanes)]
        count = self.n.known % width
        return [
            (column, PartialVector(lanes) if count - column >= lanes else PartialVector(lanes, count - column))
            for column in range(0, count, lanes)
        ]

    def _correct(
        self, f: TileFrame, views: Views, value: ir.Value, sums: tuple[ir.Value, ir.Value], row: Index, column: int,
        lane: PartialVector,
    ) -> ir.Value:
        """`value` and what zero points and flipped bits of A make of its sums of a column of B and of a row of A, which
        are stored at `sums`."""
        column_sums, row_sums = sums
        lanes = self.how.lanes
        a_zero = self._zero(f, views, self.found.a, row, column, lane)
        if self.column_sums:
            factor = f.sub(ir.Constant(a_zero.type, [self.how.column_factor] * lanes), a_zero)
            value = f.add(value, f.mul(f.load_vector(f.at(column_sums, column, I32), I32, lanes), factor))
        if self.row_sums:
            total = f.splat(f.load_vector(f.at(row_sums, row, I32), I32, 1), lanes)
            depth = f.splat(f.trunc(f.index(f.extent(self.k)), I32), lanes)
            b_zero = self._zero(f, views, self.found.b, row, column, lane)
            value = f.sub(value, f.mul(b_zero, f.sub(total, f.mul(depth, a_zero))))
        return value

    def _zero(
        self, f: TileFrame, views: Views, factor: Factor, row: Index, column: int, lane: PartialVector
    ) -> ir.Value:
        kind = ir.VectorType(I32, self.how.lanes)
        zero = factor.zero
        if isinstance(zero, int):
            return ir.Constant(kind, [_wrapped(zero)] * self.how.lanes)
        return widen(f, views.read(zero, row, column, lane), zero.dtype, factor.zero_casts, "i32")

    def _initial(self, f: TileFrame, views: Views, row: Index, column: int, lane: PartialVector) -> ir.Value:
        init = self.c.init
        if isinstance(init, StridedAccess):
            return widen(f, views.read(init, row, column, lane), init.dtype, (), "i32")
        return ir.Constant(ir.VectorType(I32, self.how.lanes), [_wrapped(int(init))] * self.how.lanes)


def _wrapped(number: int) -> int:
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)


def _count(loops: Sequence[Loop]) -> Expr:
    return product(size.expression for size, _ in loops)
