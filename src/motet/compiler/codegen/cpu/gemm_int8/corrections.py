"""Finishes register tiles of 8-bit products: corrects their sums for zero points and runs the epilogue."""

from __future__ import annotations

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.builder import I32, I64, PTR, Index, Splat
from motet.compiler.codegen.cpu.emit.epilogue import Views, finish
from motet.compiler.codegen.cpu.gemm.microkernel import PartialVector, TileFrame, shared_function, widen
from motet.compiler.codegen.cpu.gemm_int8.reading import Factor
from motet.compiler.codegen.cpu.gemm_int8.space import Int8Space
from motet.compiler.kernels.strides import StridedAccess


class Int8Corrections(Int8Space):
    """Emits the functions that finish tiles, row by row."""

    def finish_function(self, tail: bool) -> ir.Function:
        """The function `(buffers, sizes, sums, columns, row sums, m, n, left, rows, outer…)` that corrects a tile's
        sums for zero points and runs the epilogue on them, row by row."""
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
        views.share(c.epilogue, vectors)
        shifts = self._column_shifts(f, columns, vectors)

        def line(row: Index, _: list[ir.Value]) -> None:
            for column, lane in vectors:
                value = f.load_vector(f.at(sums, f.iadd(f.imul(row, self.tile_width), column), I32), I32, lanes)
                if column in shifts:
                    value = f.add(value, shifts[column])
                value = self._correct(f, views, value, (columns, row_sums), row, column, lane)
                value = f.add(value, self._initial(f, views, row, column, lane))
                finish(f, c.epilogue, views, value, row, column, lane)

        f.loop(0, rows, 1, line)

    def _column_shifts(
        self, f: TileFrame, columns: ir.Value, vectors: list[tuple[int, PartialVector]]
    ) -> dict[int, ir.Value]:
        """What the sums of B's columns, stored at `columns`, add to all rows, if A's zero point is a number."""
        if not self.column_sums or not isinstance(self.found.a.zero, int):
            return {}
        lanes, number = self.how.lanes, _wrapped(self.how.column_factor - self.found.a.zero)
        factor = Splat(ir.VectorType(I32, lanes), number)
        return {
            column: f.mul(f.load_vector(f.at(columns, column, I32), I32, lanes), factor) for column, _ in vectors
        }

    def _vectors(self, f: TileFrame, tail: bool, left: Index) -> list[tuple[int, PartialVector]]:
        """The first column of each vector of a panel, and the lanes of it that exist."""
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
        if self.column_sums and not isinstance(self.found.a.zero, int):
            factor = f.sub(Splat(a_zero.type, self.how.column_factor), a_zero)
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
