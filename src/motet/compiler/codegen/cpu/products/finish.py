"""Corrects sums of bytes for zero points when register tiles are finished."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.builder import I32, Index, Splat
from motet.compiler.codegen.cpu.emit.epilogue import Views
from motet.compiler.codegen.cpu.gemm.microkernel import PartialVector, TileFrame, widen
from motet.compiler.codegen.cpu.gemm.space import Correction, Vectors, wrapped
from motet.compiler.codegen.cpu.products.product import Factor
from motet.compiler.codegen.cpu.products.space import LineSpace


@dataclass(frozen=True)
class ByteCorrection:
    """Emits what zero points and flipped bits of A add to sums of bytes, which the addresses of the sums of columns and
    of rows follow."""

    space: LineSpace

    def emit(self, f: TileFrame, views: Views, vectors: Vectors) -> Correction:
        """The correction of the sums of a tile."""
        corrections = f.arguments[3:5]
        views.share(self.space.c.epilogue, vectors)
        shifts = self._column_shifts(f, corrections[0], vectors)

        def correct(value: ir.Value, row: Index, column: int, lanes: PartialVector) -> ir.Value:
            value = f.add(value, shifts[column]) if column in shifts else value
            return self._correct(f, views, value, corrections, row, column, lanes)

        return correct

    def _column_shifts(
        self, f: TileFrame, columns: ir.Value, vectors: Vectors
    ) -> dict[int, ir.Value]:
        """What the sums of B's columns, stored at `columns`, add to all rows, if A's zero point is a number."""
        s = self.space
        if not s.column_sums or not isinstance(s.found.a.zero, int):
            return {}
        lanes, number = s.how.lanes, wrapped(s.how.column_factor - s.found.a.zero)
        factor = Splat(ir.VectorType(I32, lanes), number)
        return {
            column: f.mul(f.load_vector(f.at(columns, column, I32), I32, lanes), factor) for column, _ in vectors
        }

    def _correct(
        self, f: TileFrame, views: Views, value: ir.Value, sums: Sequence[ir.Value], row: Index, column: int,
        lane: PartialVector,
    ) -> ir.Value:
        """`value` and what zero points and flipped bits of A make of its sums of a column of B and of a row of A, which
        are stored at `sums`."""
        s, lanes = self.space, self.space.how.lanes
        column_sums, row_sums = sums
        a_zero = self._zero(f, views, s.found.a, row, column, lane)
        if s.column_sums and not isinstance(s.found.a.zero, int):
            factor = f.sub(Splat(a_zero.type, s.how.column_factor), a_zero)
            value = f.add(value, f.mul(f.load_vector(f.at(column_sums, column, I32), I32, lanes), factor))
        if s.row_sums:
            total = f.splat(f.load_vector(f.at(row_sums, row, I32), I32, 1), lanes)
            depth = f.splat(f.trunc(f.index(f.extent(s.k)), I32), lanes)
            b_zero = self._zero(f, views, s.found.b, row, column, lane)
            value = f.sub(value, f.mul(b_zero, f.sub(total, f.mul(depth, a_zero))))
        return value

    def _zero(
        self, f: TileFrame, views: Views, factor: Factor, row: Index, column: int, lane: PartialVector
    ) -> ir.Value:
        zero = factor.zero
        if isinstance(zero, int):
            return Splat(ir.VectorType(I32, self.space.how.lanes), wrapped(zero))
        return widen(f, views.read(zero, row, column, lane), zero.dtype, factor.zero_casts, "i32")
