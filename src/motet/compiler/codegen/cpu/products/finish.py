"""Finishes register tiles of products of lines: corrects sums of bytes for zero points and runs the epilogue."""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.builder import I32, I64, PTR, Index, Splat
from motet.compiler.codegen.cpu.emit.epilogue import Views, finish
from motet.compiler.codegen.cpu.gemm.microkernel import PartialVector, TileFrame, narrow, shared_function, widen
from motet.compiler.codegen.cpu.products.product import Factor
from motet.compiler.codegen.cpu.products.space import LineSpace
from motet.compiler.kernels.strides import StridedAccess


@dataclass(frozen=True)
class TileFinish:
    """Emits the functions that finish tiles, row by row. Those of bytes are `corrected`."""

    space: LineSpace

    @property
    def corrected(self) -> bool:
        return self.space.numbers.sums == "i32"

    def function(self, tail: bool) -> ir.Function:
        """The function `(buffers, sizes, sums, m, n, left, rows, outer…)` that runs the epilogue on a tile's sums, row
        by row. If they are corrected, the addresses of the sums of columns and of rows follow `sums`."""
        s = self.space
        name = f"{s.kernel.name}.finish{'_tail' if tail else ''}"
        arguments = [PTR] * (5 if self.corrected else 3) + [I64] * (4 + len(s.c.outer))
        return shared_function(s.module, name, arguments, s.kernel, lambda f: self._write(f, tail))

    def _write(self, f: TileFrame, tail: bool) -> None:
        s, c, numbers, lanes = self.space, self.space.c, self.space.numbers, self.space.how.lanes
        pointers = 5 if self.corrected else 3
        sums, *corrections = f.arguments[2:pointers]
        m, n, left, rows = f.arguments[pointers : pointers + 4]
        coordinates: list[Index] = [0] * c.rank
        for (_, dim), value in zip(c.outer, f.arguments[pointers + 4 :], strict=True):
            coordinates[dim] = value
        if s.row_dim is not None:
            coordinates[s.row_dim] = m
        coordinates[c.column] = n
        views = Views(f, [*c.places, *s.found.zeros], coordinates, s.row_dim, c.column)
        vectors = self._vectors(f, tail, left)
        shifts: dict[int, ir.Value] = {}
        if self.corrected:
            views.share(c.epilogue, vectors)
            shifts = self._column_shifts(f, corrections[0], vectors)

        def line(row: Index, _: list[ir.Value]) -> None:
            for column, lane in vectors:
                at = f.at(sums, f.iadd(f.imul(row, s.tile_width), column), numbers.total)
                value = f.load_vector(at, numbers.total, lanes)
                if column in shifts:
                    value = f.add(value, shifts[column])
                if corrections:
                    value = self._correct(f, views, value, corrections, row, column, lane)
                if (initial := self._initial(f, views, row, column, lane)) is not None:
                    value = numbers.add(f, value, initial)
                finish(f, c.epilogue, views, narrow(f, value, c.output), row, column, lane)

        f.loop(0, rows, 1, line)

    def _vectors(self, f: TileFrame, tail: bool, left: Index) -> list[tuple[int, PartialVector]]:
        """The first column of each vector of a panel, and the lanes of it that exist."""
        lanes, width, n = self.space.how.lanes, self.space.plan.width, self.space.n.known
        if not tail:
            return [(column, PartialVector(lanes)) for column in range(0, width, lanes)]
        if n is None:
            return [(column, PartialVector(lanes, f.isub(left, column))) for column in range(0, width, lanes)]
        count = n % width
        return [
            (column, PartialVector(lanes) if count - column >= lanes else PartialVector(lanes, count - column))
            for column in range(0, count, lanes)
        ]

    def _initial(
        self, f: TileFrame, views: Views, row: Index, column: int, lane: PartialVector
    ) -> ir.Value | None:
        """The accumulator's initial values; None if they are zeros."""
        init, numbers = self.space.c.init, self.space.numbers
        if isinstance(init, StridedAccess):
            return widen(f, views.read(init, row, column, lane), init.dtype, (), numbers.sums)
        number = float(init) if numbers.sums == "f32" else _wrapped(int(init))
        return Splat(ir.VectorType(numbers.total, self.space.how.lanes), number) if number else None

    # -- zero points ---------------------------------------------------------------------------------

    def _column_shifts(
        self, f: TileFrame, columns: ir.Value, vectors: list[tuple[int, PartialVector]]
    ) -> dict[int, ir.Value]:
        """What the sums of B's columns, stored at `columns`, add to all rows, if A's zero point is a number."""
        s = self.space
        if not s.column_sums or not isinstance(s.found.a.zero, int):
            return {}
        lanes, number = s.how.lanes, _wrapped(s.how.column_factor - s.found.a.zero)
        factor = Splat(ir.VectorType(I32, lanes), number)
        return {
            column: f.mul(f.load_vector(f.at(columns, column, I32), I32, lanes), factor) for column, _ in vectors
        }

    def _correct(
        self, f: TileFrame, views: Views, value: ir.Value, sums: list[ir.Value], row: Index, column: int,
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
            return Splat(ir.VectorType(I32, self.space.how.lanes), _wrapped(zero))
        return widen(f, views.read(zero, row, column, lane), zero.dtype, factor.zero_casts, "i32")


def _wrapped(number: int) -> int:
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)
