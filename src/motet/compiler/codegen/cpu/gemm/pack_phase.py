"""The phase that packs the operands of a product of lines in the order that its tiles read.

It is omitted if operands are packed when compiling or read in place.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from llvmlite import ir

from motet.artifact.expressions import apply, ceildiv
from motet.artifact.schema import Expr
from motet.compiler.codegen.cpu.emit.builder import Index
from motet.compiler.codegen.cpu.gemm.microkernel import TileFrame, task_function
from motet.compiler.codegen.cpu.gemm.packed_lines import LINES, LineSpace, count_of, used_loops
from motet.compiler.kernels.kernel_code import Phase
from motet.compiler.kernels.strides import Extent, StridedAccess, product_of

Packer = Callable[[ir.Value, Index, Index], None]  # packs lines from an address on, as packed line n, of those left


class PackPhase(LineSpace, ABC):
    """Emits the phase that packs operands."""

    @abstractmethod
    def pack_rows(self, f: TileFrame) -> Packer:
        """What packs rows of A."""

    @abstractmethod
    def pack_columns(self, f: TileFrame) -> Packer:
        """What packs columns of B."""

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
            rows = self._lines(f, c.a, self.m, self.row_dim, self.padded_rows(f), self.pack_rows(f))
            f.loop(begin, f.imin(end, first), 1, lambda index, _: rows(index))
        if self.b_workspace >= 0:
            columns = self._lines(f, c.b, self.n, c.column, self.padded_columns(f), self.pack_columns(f))
            f.loop(f.isub(f.imax(begin, first), first), f.isub(end, first), 1, lambda index, _: columns(index))
        f.ret_void()
        return Phase(name, apply("+", *counts))

    def _lines(
        self, f: TileFrame, place: StridedAccess, extent: Extent, dim: int | None, padded: Index, pack: Packer
    ) -> Callable[[Index], None]:
        """The task with a number among those that pack `place`, whose lines go along dimension `dim`."""

        def task(index: Index) -> None:
            at, outer, line = self.packed_lines(f, index, place, extent)
            if dim is not None:
                at[dim] = line
            pack(f.address(place, at), f.iadd(f.imul(outer, padded), line), f.isub(f.extent(extent), line))

        return task
