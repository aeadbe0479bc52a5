"""Products by constant weights of 4 or 8 bits in blocks, read as stored: matrix products with a fused epilogue.

Words and sides are packed when compiling, in the order in which they are read. For a few rows a
register tile streams a panel, widens it in registers, and scales the sums of each block; what is limited by memory then
reads the stored bytes alone. For more rows a task widens a piece of a panel to floats once, which stay in a cache, and
multiplies them like any packed panel (`gemm/contraction.py`). If the number of rows is only known in a call, one row is
streamed.
"""

from __future__ import annotations

from dataclasses import replace

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.builder import F32, Index
from motet.compiler.codegen.cpu.gemm.contraction import ContractionEmitter
from motet.compiler.codegen.cpu.gemm.microkernel import TileFrame
from motet.compiler.codegen.cpu.gemm.plan import scratch_layout
from motet.compiler.codegen.cpu.gemm.space import Range
from motet.compiler.codegen.cpu.gemm_blocks.plan import (
    check,
    choose,
    contraction_schedule,
    packing_of,
    side_packing_of,
)
from motet.compiler.codegen.cpu.gemm_blocks.reading import BlockProduct, match
from motet.compiler.codegen.cpu.gemm_blocks.streams import BlockStreams
from motet.compiler.codegen.cpu.kernel_class import KernelClass
from motet.compiler.kernels.kernel import Packing
from motet.compiler.kernels.kernel_code import KernelCode
from motet.compiler.kernels.schedule import BlockProductSchedule
from motet.compiler.targets.cpu import CpuTarget


def emit(found: BlockProduct, schedule: BlockProductSchedule, target: CpuTarget) -> KernelCode:
    """Generate code for a product by weights of a few bits by `schedule`."""
    return _BlockEmitter(found, schedule, target).run()


CLASS = KernelClass(BlockProductSchedule, match, choose, check, emit)


class _BlockEmitter(BlockStreams, ContractionEmitter):
    """Emits one module: tiles that stream panels, or tiles over panels that a task has widened."""

    def __init__(self, found: BlockProduct, schedule: BlockProductSchedule, target: CpuTarget) -> None:
        c = replace(found.c, b=replace(found.c.b, dtype="f32"))
        super().__init__(c, contraction_schedule(schedule))
        self.read_blocks(found, schedule, target)
        self.title = f"product by {found.bits}-bit weights, {'streamed' if self.streams else 'widened'}"
        self.widens = not self.streams
        layout = scratch_layout(c, self.plan, widens=self.widens)
        self.scratch_b, self.scratch_a, size = layout
        self.scratch_sums, self.scratch_bytes = size, size + self.sums_bytes

    def packings(self) -> dict[int, Packing]:
        return {self.found.words: packing_of(), **dict.fromkeys(self.found.sides, side_packing_of())}

    def block(self, f: TileFrame, outer: list[Index], tiles: Range, panels: Range, scratch: ir.Value) -> None:
        if not self.streams and self.m.known is None:
            with f.if_else(f.icmp_signed("==", f.index(f.extent(self.m)), f.index(1))) as (single, several):
                with single:
                    self.stream(f, 1, outer, panels, scratch)
                with several:
                    super().block(f, outer, tiles, panels, scratch)
        elif self.streams:
            self.stream(f, self.plan.rows, outer, panels, scratch)
        else:
            super().block(f, outer, tiles, panels, scratch)

    def packed_operand(
        self, f: TileFrame, at: list[Index], p: Index, k: Index, deep: Index, scratch: ir.Value
    ) -> tuple[ir.Value, ir.Value]:
        """Widens `deep` steps of panel `p` from step `k` on to `scratch`."""
        self.call(f, "widen", (scratch, p, k, deep), self._emit_widen)
        return scratch, scratch

    def _emit_widen(self, f: TileFrame) -> None:
        """Emit `widen(buffers, sizes, target, panel, k, deep)`."""
        target, panel, k, deep = f.arguments[2:6]
        width, lanes, per_word = self.plan.width, self.plan.lanes, self.found.per_word
        first, column = f.idiv(k, per_word), f.imul(panel, width)
        columns = [f.imin(f.iadd(column, v * lanes), self.last_column) for v in range(self.plan.vectors)]
        places = [self.place(f, each) for each in columns]

        def word(i: Index, _: list[ir.Value]) -> None:
            number = f.iadd(first, i)
            block = f.idiv(number, self.found.block // per_word)
            for v, place in enumerate(places):
                vector = place.words(f, number)
                scale, zero, shift = place.sides(f, block)
                for part in range(per_word):
                    value = self.number(f, vector, part)
                    value = value if zero is None else f.fsub(value, zero)
                    value = f.fmul(value, scale) if shift is None else f.multiply_add(value, scale, shift)
                    row = f.iadd(f.imul(i, per_word), part)
                    f.store_vector(value, f.at(target, f.iadd(f.imul(row, width), v * lanes), F32), F32)

        f.loop(0, f.idiv(deep, per_word), 1, word)
