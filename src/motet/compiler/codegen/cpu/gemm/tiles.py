"""Register tiles of contractions. Sums are initialised and finished in registers or in scratch memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.builder import I64, PTR, Index, Splat
from motet.compiler.codegen.cpu.emit.epilogue import Views, finish
from motet.compiler.codegen.cpu.gemm.microkernel import (
    LINE,
    MEMORY_TYPES,
    Ahead,
    Depth,
    PartialVector,
    TileFrame,
    TileOperands,
    accumulate,
    horizontal_sum,
    narrow,
    read_vector,
    shared_function,
    widen,
)
from motet.compiler.codegen.cpu.gemm.space import ContractionSpace
from motet.compiler.codegen.cpu.gemm.tasks import loop_over_panels
from motet.compiler.kernels.strides import StridedAccess


class Tiles(ContractionSpace):
    """Emits register tiles as functions of the module, one for each number of rows."""

    def tile(self, rows: int, tail: bool, prefetches: bool = True) -> ir.Function:
        """The function that computes one register tile: `(buffers, sizes, a, b, sums, m, n, left, deep, outer…,
        ahead)`.
        """
        name = f"{self.c.kernel.name}.tile{rows}{'_tail' if tail else ''}{'' if prefetches else '_plain'}"
        arguments = [PTR] * 5 + [I64] * (4 + len(self.c.outer)) + [PTR]
        ahead = self.plan.ahead if prefetches else 0

        def emit(f: TileFrame) -> None:
            if self.plan.b_mode == "along_k":
                self._emit_tile_along_k(f, rows, tail)
            else:
                self._emit_tile(f, rows, tail, ahead)

        return shared_function(self.module, name, arguments, self.c.kernel, emit)

    def tile_lanes(self, f: TileFrame, tail: bool, left: Index) -> list[PartialVector]:
        """The vectors of a tile; of a tail, those that exist, with a mask for an incomplete one."""
        plan = self.plan
        if not tail:
            return [PartialVector(plan.lanes)] * plan.vectors
        if self.n.known is None:
            return [PartialVector(plan.lanes, f.isub(left, v * plan.lanes)) for v in range(plan.vectors)]
        columns = self.n.known % plan.width
        result = [PartialVector(plan.lanes)] * (columns // plan.lanes)
        return result + ([PartialVector(plan.lanes, columns % plan.lanes)] if columns % plan.lanes else [])

    def coordinates(self, f: TileFrame) -> list[Index]:
        c = self.c
        result: list[Index] = [0] * c.rank
        m, n = f.arguments[5:7]
        for (_, dim), value in zip(c.outer, f.arguments[9:9 + len(c.outer)], strict=True):
            result[dim] = value
        if self.row_dim is not None:
            result[self.row_dim] = m
        result[c.column] = n
        return result

    def _emit_tile(self, f: TileFrame, rows: int, tail: bool, lines: int) -> None:
        c, plan = self.c, self.plan
        a, b, sums, _, _, left, deep = f.arguments[2:9]
        lanes = self.tile_lanes(f, tail, left)
        packed = plan.b_mode in ("packed", "scratch")
        widened = plan.b_mode == "scratch" or self.widens
        a_row, a_step = self.a_steps(f)
        factors = TileOperands(
            c.product, c.product.dtype if plan.pack_a else c.a.dtype, () if plan.pack_a else c.product.lhs.casts, a_row,
            c.product.dtype if widened else c.b.dtype, () if widened else c.product.rhs.casts,
            tuple(PartialVector(plan.lanes) for _ in lanes) if packed else tuple(lanes),
        )
        depth = self._depth(f, a_step, packed, deep)
        blocked = plan.depth_block is not None
        views = None if blocked else Views(f, c.places, self.coordinates(f), self.row_dim, c.column)
        start = self._load_sums(f, rows, lanes, sums) if views is None else [
            self.initial(f, views, row, v * plan.lanes, lane)
            for row in range(rows) for v, lane in enumerate(lanes)
        ]
        ahead = Ahead(f.arguments[-1], lines, lines * LINE) if lines else None
        result = accumulate(f, factors, start, a, b, depth, plan.unroll, ahead)
        if views is not None and self.straight:
            for row in range(rows):
                for v, lane in enumerate(lanes):
                    value = narrow(f, result[row * len(lanes) + v], c.output)
                    finish(f, c.epilogue, views, value, row, v * plan.lanes, lane)
            return
        for row in range(rows):
            for v in range(len(lanes)):
                at = f.at(sums, row * self.tile_width + v * plan.lanes, self.element)
                f.store_vector(result[row * len(lanes) + v], at, self.element)
        if views is not None:
            self.finish_rows(f, views, sums, rows, lanes)

    def _depth(self, f: TileFrame, a_step: Index, packed: bool, deep: Index) -> list[Depth]:
        c, plan = self.c, self.plan
        result: list[Depth] = []
        b_step: Index = plan.packed_width if plan.b_mode == "packed" and not self.widens else plan.width
        for level, (size, dim) in reversed(list(enumerate(c.depth))):
            last = level + 1 == len(c.depth)
            length = deep if plan.depth_block is not None else f.extent(size)
            a = a_step if last else f.extent(c.a.strides[dim])
            b = b_step if packed else (f.extent(c.b.strides[dim]) if dim >= 0 else 0)
            result.insert(0, Depth(length, a, b))
            b_step = f.imul(b_step, length)
        return result

    def _load_sums(self, f: TileFrame, rows: int, lanes: Sequence[PartialVector], sums: ir.Value) -> list[ir.Value]:
        width, lanes_each = self.tile_width, self.plan.lanes
        return [
            f.load_vector(f.at(sums, row * width + v * lanes_each, self.element), self.element, lanes_each)
            for row in range(rows) for v in range(len(lanes))
        ]

    def initial(self, f: TileFrame, views: Views, row: Index, column: Index, lanes: PartialVector) -> ir.Value:
        init = self.c.init
        kind = ir.VectorType(self.element, lanes.lanes)
        if isinstance(init, StridedAccess):
            value = views.read(init, row, column, lanes)
            return widen(f, value, init.dtype, (), self.c.product.dtype)
        number = float(init) if self.c.product.is_float else int(init)
        return Splat(kind, number) if number else ir.Constant(kind, None)

    def finish_rows(
        self, f: TileFrame, views: Views, sums: ir.Value, rows: Index, lanes: Sequence[PartialVector]
    ) -> None:
        """Run the epilogue over sums that are in scratch, row by row."""
        def line(row: Index, _: list[ir.Value]) -> None:
            for v, lane in enumerate(lanes):
                at = f.at(sums, f.iadd(f.imul(row, self.tile_width), v * self.plan.lanes), self.element)
                value = narrow(f, f.load_vector(at, self.element, self.plan.lanes), self.c.output)
                finish(f, self.c.epilogue, views, value, row, v * self.plan.lanes, lane)

        f.loop(0, rows, 1, line)

    def tile_pass(
        self, f: TileFrame, what: Literal["start", "finish"], outer: list[Index], tiles: tuple[Index, Index],
        panels: tuple[Index, Index], tile: ir.Value,
    ) -> None:
        """Initialise the sums before the first block of K (`start`), or run the epilogue after the last one
        (`finish`)."""
        plan = self.plan
        row0 = self.row(f, tiles[0])
        rows = f.isub(self.row(f, tiles[1]), row0)

        def panel(p: Index, tail: bool) -> None:
            n = f.imul(p, plan.width)
            function = self._pass_function(what, tail)
            sums = f.at(tile, f.imul(f.isub(p, panels[0]), plan.width), self.element)
            coordinates = [f.index(outer[dim]) for _, dim in self.c.outer]
            left = f.isub(f.extent(self.n), n)
            numbers = [f.index(value) for value in (row0, n, left, rows)]
            f.call(function, [*f.arguments[:2], sums, sums, sums, *numbers, *coordinates])

        loop_over_panels(f, self.n, self.plan.width, panels, panel)

    def _pass_function(self, what: str, tail: bool) -> ir.Function:
        name = f"{self.c.kernel.name}.{what}{'_tail' if tail else ''}"

        def write(f: TileFrame) -> None:
            sums, left, rows = f.arguments[4], f.arguments[7], f.arguments[8]
            lanes = self.tile_lanes(f, tail, left)
            views = Views(f, self.c.places, self.coordinates(f), self.row_dim, self.c.column)
            if what == "finish":
                self.finish_rows(f, views, sums, rows, lanes)
            else:
                self._start_rows(f, views, sums, rows, lanes)

        return shared_function(
            self.module, name, [PTR] * 5 + [I64] * (4 + len(self.c.outer)), self.c.kernel, write
        )

    def _start_rows(
        self, f: TileFrame, views: Views, sums: ir.Value, rows: Index, lanes: Sequence[PartialVector]
    ) -> None:
        def line(row: Index, _: list[ir.Value]) -> None:
            for v, lane in enumerate(lanes):
                at = f.at(sums, f.iadd(f.imul(row, self.tile_width), v * self.plan.lanes), self.element)
                f.store_vector(self.initial(f, views, row, v * self.plan.lanes, lane), at, self.element)

        f.loop(0, rows, 1, line)

    def _emit_tile_along_k(self, f: TileFrame, rows: int, tail: bool) -> None:
        """Emit `rows x columns` dot products along K, then the epilogue on each row's vector of columns."""
        c, plan = self.c, self.plan
        a, b = f.arguments[2:4]
        columns = (c.n[0].known or 0) % plan.width if tail else plan.width
        a_row, b_row = self.stride(f, c.a), f.extent(c.b.strides[c.column])
        deep = f.extent(c.depth[0][0])
        count = rows * columns
        zero = ir.Constant(ir.VectorType(self.element, plan.lanes), None)

        def steps(lanes: PartialVector) -> Callable[[Index, list[ir.Value]], list[ir.Value]]:
            def body(k: Index, sums: list[ir.Value]) -> list[ir.Value]:
                xs = [
                    self._along(f, a, f.iadd(f.imul(r, a_row), k), c.a.dtype, c.product.lhs.casts, lanes)
                    for r in range(rows)
                ]
                ys = [
                    self._along(f, b, f.iadd(f.imul(j, b_row), k), c.b.dtype, c.product.rhs.casts, lanes)
                    for j in range(columns)
                ]
                return [
                    f.multiply_add(xs[i // columns], ys[i % columns], total) if c.product.is_float
                    else f.add(f.mul(xs[i // columns], ys[i % columns]), total)
                    for i, total in enumerate(sums)
                ]
            return body

        whole = f.imul(f.idiv(deep, plan.lanes), plan.lanes)
        sums = f.loop(0, whole, plan.lanes, steps(PartialVector(plan.lanes)), [zero] * count)
        assert isinstance(deep, int) and isinstance(whole, int)
        if deep > whole:
            sums = steps(PartialVector(plan.lanes, deep - whole))(whole, sums)
        views = Views(f, c.places, self.coordinates(f), self.row_dim, c.column)
        wide = max(2, 1 << (plan.width - 1).bit_length())  # bodies have no vectors of one lane
        for row in range(rows):
            vector: ir.Value = ir.Constant(ir.VectorType(self.element, wide), None)
            for j in range(columns):
                total = horizontal_sum(f, sums[row * columns + j], c.product.is_float)
                vector = f.insert_element(vector, total, ir.Constant(ir.IntType(32), j))
            lane = PartialVector(wide, columns if columns < wide else None)
            start = self.initial(f, views, row, 0, lane)
            vector = f.fadd(start, vector) if c.product.is_float else f.add(start, vector)
            finish(f, c.epilogue, views, narrow(f, vector, c.output), row, 0, lane)

    def _along(
        self, f: TileFrame, base: ir.Value, offset: Index, dtype: str, casts: tuple[str, ...], lanes: PartialVector
    ) -> ir.Value:
        raw = read_vector(f, f.at(base, offset, MEMORY_TYPES[dtype]), dtype, 1, lanes)
        return widen(f, raw, dtype, casts, self.c.product.dtype)
