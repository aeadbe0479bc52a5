"""The phase that packs the operands of a product of lines in the order that its tiles read.

It is omitted if operands are packed when compiling or read in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

from motet.artifact.expressions import apply, ceildiv
from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu.emit.builder import I32, Index
from motet.compiler.codegen.cpu.gemm.microkernel import TileFrame, task_function
from motet.compiler.codegen.cpu.products.instructions import LINES
from motet.compiler.codegen.cpu.products.space import LineSpace, count_of
from motet.compiler.codegen.cpu.products.squares import PackedLines, packing_function
from motet.compiler.kernels.kernel_code import Phase
from motet.compiler.kernels.strides import Extent, StridedAccess, product_of

_Packer = Callable[[ir.Value, Index, Index], None]  # packs lines from an address on, as packed line n, of those left


@dataclass(frozen=True)
class PackPhase:
    """Emits the phase that packs operands."""

    space: LineSpace

    def emit(self) -> Phase | None:
        """The phase that packs operands which tiles do not read in place: tasks of 64 rows of A, then of 64 columns of
        B."""
        s, c = self.space, self.space.c
        counts: list[Expr] = []
        for place, extent, packed in ((c.a, s.m, s.a_workspace >= 0), (c.b, s.n, s.b_workspace >= 0)):
            count = apply("*", count_of(c.outer_of(place)), ceildiv(extent.expression, LINES))
            counts.append(count if packed else 0)
        if counts == [0, 0]:
            return None
        name = f"{s.kernel.name}_pack"
        f = task_function(s.module, s.kernel, name)
        begin, end = f.arguments[2:4]
        first: Index = 0
        if s.a_workspace >= 0:
            outer = f.extent(product_of(c.outer_of(c.a)))
            first = f.imul(outer, f.iceil(f.extent(s.m), LINES))
            rows = self._lines(f, c.a, s.m, s.row_dim, s.padded_rows(f), self._pack_rows(f))
            f.loop(begin, f.imin(end, first), 1, lambda index, _: rows(index))
        if s.b_workspace >= 0:
            columns = self._lines(f, c.b, s.n, c.column, s.padded_columns(f), self._pack_columns(f))
            f.loop(f.isub(f.imax(begin, first), first), f.isub(end, first), 1, lambda index, _: columns(index))
        f.ret_void()
        return Phase(name, apply("+", *counts))

    def _lines(
        self, f: TileFrame, place: StridedAccess, extent: Extent, dim: int | None, padded: Index, pack: _Packer
    ) -> Callable[[Index], None]:
        """The task with a number among those that pack `place`, whose lines go along dimension `dim`."""
        s = self.space

        def task(index: Index) -> None:
            groups = f.iceil(f.extent(extent), LINES)
            outer, line = f.idiv(index, groups), f.imul(f.irem(index, groups), LINES)
            at = s.coordinates(f, s.c.outer_of(place), outer)
            if dim is not None:
                at[dim] = line
            pack(f.address(place, at), f.iadd(f.imul(outer, padded), line), f.isub(f.extent(extent), line))

        return task

    def _pack_rows(self, f: TileFrame) -> _Packer:
        s, how = self.space, self.space.how

        def lines(g: TileFrame) -> PackedLines:
            line = g.extent(s.c.a.strides[s.row_dim]) if s.row_dim is not None else 0
            number = g.extent(s.c.a.strides[s.found.inner[1]])
            return PackedLines(line, number, False, how.a_unsigned, how.flips_a, how.a_scale > 1, s.row_sums)

        pack = self._packer(f, "pack_a", lines, s.a_workspace, how.a_scale)
        if not s.aligns_a:
            return pack

        def unless_aligned(source: ir.Value, row: Index, left: Index) -> None:
            with f.if_then(f.not_(s.a_is_aligned(f))):
                pack(source, row, left)

        return unless_aligned

    def _pack_columns(self, f: TileFrame) -> _Packer:
        s = self.space

        def lines(g: TileFrame) -> PackedLines:
            strides = g.extent(s.c.b.strides[s.c.column]), g.extent(s.c.b.strides[s.found.inner[1]])
            return PackedLines(*strides, True, s.how.b_unsigned)

        return self._packer(f, "pack_b", lines, s.b_workspace, 1)

    def _packer(
        self, f: TileFrame, name: str, lines: Callable[[TileFrame], PackedLines], workspace: int, scale: int
    ) -> _Packer:
        """What packs `lines` to `workspace`, where a number has the room of `scale` ones, and sums rows."""
        s = self.space
        function = packing_function(s.module, s.kernel, f"{s.kernel.name}.{name}", s.numbers, lines)

        def pack(source: ir.Value, line: Index, left: Index) -> None:
            offset = f.imul(f.imul(line, s.padded_depth(f)), scale)
            target = f.at(s.memory(f, workspace), offset, s.numbers.element)
            sums = f.at(s.memory(f, s.sums_workspace), line, I32) if s.row_sums and name == "pack_a" else target
            buffers = [] if s.numbers.masked else [sums, f.arguments[4]]
            sizes = (f.imin(left, LINES), f.extent(s.k), s.padded_depth(f))
            f.call(function, [*f.arguments[:2], source, target, *buffers, *map(f.index, sizes)])

        return pack
