"""Packs the operands of a bf16 product in the order that its tiles read."""

from __future__ import annotations

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.builder import I16, Index
from motet.compiler.codegen.cpu.gemm.microkernel import TileFrame
from motet.compiler.codegen.cpu.gemm.pack_phase import Packer, PackPhase
from motet.compiler.codegen.cpu.gemm.packed_lines import LINES
from motet.compiler.codegen.cpu.gemm_bf16.packing import BfloatLines, packing_function
from motet.compiler.codegen.cpu.gemm_bf16.space import BfloatSpace


class BfloatPackPhase(BfloatSpace, PackPhase):
    """Emits the phase that packs operands."""

    def pack_rows(self, f: TileFrame) -> Packer:
        c = self.c

        def lines(g: TileFrame) -> BfloatLines:
            line = g.extent(c.a.strides[self.row_dim]) if self.row_dim is not None else 0
            return BfloatLines(line, g.extent(c.a.strides[c.depth[-1][1]]), False)

        return self._packer(f, packing_function(self.module, self.kernel, f"{self.kernel.name}.pack_a", lines),
                            self.a_workspace)

    def pack_columns(self, f: TileFrame) -> Packer:
        c = self.c

        def lines(g: TileFrame) -> BfloatLines:
            return BfloatLines(g.extent(c.b.strides[c.column]), g.extent(c.b.strides[c.depth[-1][1]]), True)

        return self._packer(f, packing_function(self.module, self.kernel, f"{self.kernel.name}.pack_b", lines),
                            self.b_workspace)

    def _packer(self, f: TileFrame, function: ir.Function, workspace: int) -> Packer:
        def pack(source: ir.Value, line: Index, left: Index) -> None:
            target = f.at(self.memory(f, workspace), f.imul(line, self.padded_depth(f)), I16)
            numbers = (f.imin(left, LINES), f.extent(self.k), self.padded_depth(f))
            f.call(function, [*f.arguments[:2], source, target, *map(f.index, numbers)])

        return pack
