"""The phase that packs the operands of an 8-bit product in the order that its tiles read.

It is omitted if operands are packed when compiling or read in place.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from motet.artifact.expressions import apply, ceildiv
from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu.emit.builder import I8, I32, Index
from motet.compiler.codegen.cpu.gemm.microkernel import TileFrame, task_function
from motet.compiler.codegen.cpu.gemm.packed_lines import LINES, count_of, used_loops
from motet.compiler.codegen.cpu.gemm_int8.packing import PackedLines, packing_function
from motet.compiler.codegen.cpu.gemm_int8.space import Int8Space
from motet.compiler.kernels.kernel_code import Phase
from motet.compiler.kernels.strides import StridedAccess


class Int8PackPhase(Int8Space):
    """Emits the phase that packs operands."""

    def pack_phase(self) -> Phase | None:
        """The phase that packs operands which tiles do not read in place: tasks of 64 rows of A, then of 64 columns of
        B."""
        c = self.c
        counts: list[Expr] = []
        for place, extent, packed in ((c.a, self.m, self.a_workspace >= 0), (c.b, self.n, self.b_workspace >= 0)):
            count = apply("*", count_of(used_loops(c.outer, place)), ceildiv(extent.expression, LINES))
            counts.append(count if packed else 0)
        if counts == [0, 0]:
            return None
        name = f"{self.kernel.name}_pack"
        f = task_function(self.module, self.kernel, name)
        first = 0
        if self.a_workspace >= 0:
            first = f.imul(self._outer_count(f, c.a), f.iceil(f.extent(self.m), LINES))
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
            at, outer, line = self.packed_lines(f, index, c.a, self.m)
            if self.row_dim is not None:
                at[self.row_dim] = line
            row = f.iadd(f.imul(outer, self.padded_rows(f)), line)
            offset = f.imul(f.imul(row, self.padded_depth(f)), how.a_bytes)
            target = f.at(self.memory(f, self.a_workspace), offset, I8)
            sums = f.at(self.memory(f, self.sums_workspace), row, I32) if self.row_sums else target
            if not self.aligns_a:
                self._call_pack(f, function, f.address(c.a, at), target, sums, f.isub(f.extent(self.m), line))
                return
            with f.if_then(f.not_(self.a_is_aligned(f))):
                self._call_pack(f, function, f.address(c.a, at), target, sums, f.isub(f.extent(self.m), line))

        return pack

    def _pack_b(self, f: TileFrame) -> Callable[[Index], None]:
        c = self.c

        def lines(g: TileFrame) -> PackedLines:
            strides = g.extent(c.b.strides[c.column]), g.extent(c.b.strides[c.depth[0][1]])
            return PackedLines(*strides, True, self.how.b_unsigned)

        function = packing_function(self.module, self.kernel, f"{self.kernel.name}.pack_b", lines)

        def pack(index: Index) -> None:
            at, outer, line = self.packed_lines(f, index, c.b, self.n)
            at[c.column] = line
            column = f.iadd(f.imul(outer, self.padded_columns(f)), line)
            target = f.at(self.memory(f, self.b_workspace), f.imul(column, self.padded_depth(f)), I8)
            self._call_pack(f, function, f.address(c.b, at), target, target, f.isub(f.extent(self.n), line))

        return pack

    def _call_pack(
        self, f: TileFrame, function: ir.Value, source: ir.Value, target: ir.Value, sums: ir.Value, left: Index
    ) -> None:
        numbers = [f.index(value) for value in (f.imin(left, LINES), f.extent(self.k), self.padded_depth(f))]
        f.call(function, [*f.arguments[:2], source, target, sums, f.arguments[4], *numbers])

    def _outer_count(self, f: TileFrame, place: StridedAccess) -> Index:
        result: Index = 1
        for size, _ in used_loops(self.c.outer, place):
            result = f.imul(result, f.extent(size))
        return result
