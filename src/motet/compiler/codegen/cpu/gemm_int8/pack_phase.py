"""Packs the operands of an 8-bit product in the order that its tiles read."""

from __future__ import annotations

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.builder import I8, I32, Index
from motet.compiler.codegen.cpu.gemm.microkernel import TileFrame
from motet.compiler.codegen.cpu.gemm.pack_phase import Packer, PackPhase
from motet.compiler.codegen.cpu.gemm.packed_lines import LINES
from motet.compiler.codegen.cpu.gemm_int8.packing import PackedLines, packing_function
from motet.compiler.codegen.cpu.gemm_int8.space import Int8Space


class Int8PackPhase(Int8Space, PackPhase):
    """Emits the phase that packs operands."""

    def pack_rows(self, f: TileFrame) -> Packer:
        c, how = self.c, self.how

        def lines(g: TileFrame) -> PackedLines:
            line = g.extent(c.a.strides[self.row_dim]) if self.row_dim is not None else 0
            return PackedLines(
                line, g.extent(c.a.strides[c.depth[0][1]]), False, how.a_unsigned, how.flips_a, how.a_bytes == 2,
                self.row_sums,
            )

        function = packing_function(self.module, self.kernel, f"{self.kernel.name}.pack_a", lines)

        def pack(source: ir.Value, row: Index, left: Index) -> None:
            offset = f.imul(f.imul(row, self.padded_depth(f)), how.a_bytes)
            target = f.at(self.memory(f, self.a_workspace), offset, I8)
            sums = f.at(self.memory(f, self.sums_workspace), row, I32) if self.row_sums else target
            if not self.aligns_a:
                self._call_pack(f, function, source, target, sums, left)
                return
            with f.if_then(f.not_(self.a_is_aligned(f))):
                self._call_pack(f, function, source, target, sums, left)

        return pack

    def pack_columns(self, f: TileFrame) -> Packer:
        c = self.c

        def lines(g: TileFrame) -> PackedLines:
            strides = g.extent(c.b.strides[c.column]), g.extent(c.b.strides[c.depth[0][1]])
            return PackedLines(*strides, True, self.how.b_unsigned)

        function = packing_function(self.module, self.kernel, f"{self.kernel.name}.pack_b", lines)

        def pack(source: ir.Value, column: Index, left: Index) -> None:
            target = f.at(self.memory(f, self.b_workspace), f.imul(column, self.padded_depth(f)), I8)
            self._call_pack(f, function, source, target, target, left)

        return pack

    def _call_pack(
        self, f: TileFrame, function: ir.Value, source: ir.Value, target: ir.Value, sums: ir.Value, left: Index
    ) -> None:
        numbers = (f.imin(left, LINES), f.extent(self.k), self.padded_depth(f))
        f.call(function, [*f.arguments[:2], source, target, sums, f.arguments[4], *map(f.index, numbers)])
