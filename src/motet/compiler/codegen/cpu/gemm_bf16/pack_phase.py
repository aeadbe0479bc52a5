"""The phase that packs the operands of a bf16 product in the order that its tiles read.

It is omitted if operands are packed when compiling or read in place.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from motet.artifact.expressions import apply, ceildiv
from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu.emit.builder import I16, Index
from motet.compiler.codegen.cpu.gemm.microkernel import TileFrame, task_function
from motet.compiler.codegen.cpu.gemm.packed_lines import LINES, count_of, used_loops
from motet.compiler.codegen.cpu.gemm_bf16.packing import BfloatLines, packing_function
from motet.compiler.codegen.cpu.gemm_bf16.space import BfloatSpace
from motet.compiler.kernels.kernel_code import Phase
from motet.compiler.kernels.strides import product_of


class BfloatPackPhase(BfloatSpace):
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
        begin, end = f.arguments[2:4]
        first: Index = 0
        if self.a_workspace >= 0:
            outer = f.extent(product_of(used_loops(c.outer, c.a)))
            first = f.imul(outer, f.iceil(f.extent(self.m), LINES))
            pack_a = self._pack_a(f)
            f.loop(begin, f.imin(end, first), 1, lambda index, _: pack_a(index))
        if self.b_workspace >= 0:
            pack_b = self._pack_b(f)
            f.loop(f.isub(f.imax(begin, first), first), f.isub(end, first), 1, lambda index, _: pack_b(index))
        f.ret_void()
        return Phase(name, apply("+", *counts))

    def _pack_a(self, f: TileFrame) -> Callable[[Index], None]:
        c = self.c

        def lines(g: TileFrame) -> BfloatLines:
            line = g.extent(c.a.strides[self.row_dim]) if self.row_dim is not None else 0
            return BfloatLines(line, g.extent(c.a.strides[c.depth[-1][1]]), False)

        function = packing_function(self.module, self.kernel, f"{self.kernel.name}.pack_a", lines)

        def pack(index: Index) -> None:
            at, outer, line = self.packed_lines(f, index, c.a, self.m)
            if self.row_dim is not None:
                at[self.row_dim] = line
            row = f.iadd(f.imul(outer, self.padded_rows(f)), line)
            target = f.at(self.memory(f, self.a_workspace), f.imul(row, self.padded_depth(f)), I16)
            self._call_pack(f, function, f.address(c.a, at), target, f.isub(f.extent(self.m), line))

        return pack

    def _pack_b(self, f: TileFrame) -> Callable[[Index], None]:
        c = self.c

        def lines(g: TileFrame) -> BfloatLines:
            return BfloatLines(g.extent(c.b.strides[c.column]), g.extent(c.b.strides[c.depth[-1][1]]), True)

        function = packing_function(self.module, self.kernel, f"{self.kernel.name}.pack_b", lines)

        def pack(index: Index) -> None:
            at, outer, line = self.packed_lines(f, index, c.b, self.n)
            at[c.column] = line
            column = f.iadd(f.imul(outer, self.padded_columns(f)), line)
            target = f.at(self.memory(f, self.b_workspace), f.imul(column, self.padded_depth(f)), I16)
            self._call_pack(f, function, f.address(c.b, at), target, f.isub(f.extent(self.n), line))

        return pack

    def _call_pack(
        self, f: TileFrame, function: ir.Value, source: ir.Value, target: ir.Value, left: Index
    ) -> None:
        numbers = [f.index(value) for value in (f.imin(left, LINES), f.extent(self.k), self.padded_depth(f))]
        f.call(function, [*f.arguments[:2], source, target, *numbers])
