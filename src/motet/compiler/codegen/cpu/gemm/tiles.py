"""Register tiles of contractions. Sums are initialised and finished in registers or in scratch memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.builder import Index
from motet.compiler.codegen.cpu.gemm.microkernel import (
    LINE,
    Ahead,
    Depth,
    PartialVector,
    TileFrame,
    TileOperands,
    accumulate,
    horizontal_sum,
)
from motet.compiler.codegen.cpu.gemm.space import ContractionSpace


class Tiles(ContractionSpace):
    """Emits register tiles as functions of the module, one for each number of rows."""

    def tile(
        self, f: TileFrame, rows: int, tail: bool, operands: Sequence[Index], prefetches: bool = True
    ) -> None:
        """Compute one register tile. `operands` are `(a, b, sums, m, n, left, deep, outer…, ahead)`."""
        def emit(g: TileFrame) -> None:
            if self.plan.b_mode == "along_k":
                self._emit_tile_along_k(g, rows, tail)
            else:
                self._emit_tile(g, rows, tail, self.plan.ahead if prefetches else 0)

        name = f"tile{rows}{'_tail' if tail else ''}{'' if prefetches else '_plain'}"
        self.call(f, name, operands, emit)

    def _emit_tile(self, f: TileFrame, rows: int, tail: bool, lines: int) -> None:
        c, plan = self.c, self.plan
        a, b, sums, m, n, left, deep, *outer, following = f.arguments[2:]
        vectors = self.vectors(f, tail, left)
        packed = plan.b_mode in ("packed", "scratch")
        widened = plan.b_mode == "scratch" or self.widens
        a_row, a_step = self.a_steps(f)
        factors = TileOperands(
            c.product, c.product.dtype if plan.pack_a else c.a.dtype, () if plan.pack_a else c.product.lhs.casts, a_row,
            c.product.dtype if widened else c.b.dtype, () if widened else c.product.rhs.casts,
            tuple(PartialVector(plan.lanes) if packed else lanes for _, lanes in vectors),
        )
        size, dim = c.depth[-1]
        length = deep if self.blocked else f.extent(size)
        width = plan.packed_width if plan.b_mode == "packed" and not self.widens else plan.width
        b_step = width if packed else f.extent(c.b.strides[dim]) if dim >= 0 else 0
        depth = self.depth_nest(f, Depth(length, a_step, b_step), f.imul(width, length) if packed else None)
        places = [(row, column, lanes) for row in range(rows) for column, lanes in vectors]
        memory = [f.at(sums, row * self.tile_width + column, self.element) for row, column, _ in places]
        views = None if self.blocked else self.views(f, m, n, outer)
        zero = ir.Constant(ir.VectorType(self.element, plan.lanes), None)
        start = [zero] * len(places)
        if self.blocked:
            start = [f.load_vector(at, self.element, plan.lanes) for at in memory]
        elif views is not None and self.straight:
            start = [self.initial(f, views, *place) or zero for place in places]
        ahead = Ahead(following, lines, lines * LINE) if lines else None
        result = accumulate(f, factors, start, a, b, depth, plan.unroll, ahead)
        if views is not None and self.straight:
            for place, value in zip(places, result, strict=True):
                self.finish(f, views, value, *place)
            return
        for at, value in zip(memory, result, strict=True):
            f.store_vector(value, at, self.element)
        if views is not None:
            self.finish_rows(f, views, sums, rows, vectors)

    def _emit_tile_along_k(self, f: TileFrame, rows: int, tail: bool) -> None:
        """Emit `rows x columns` dot products along K, then the epilogue on each row's vector of columns."""
        c, plan = self.c, self.plan
        a, b, _, m, n, _, _, *outer, _ = f.arguments[2:]
        columns = (c.n[0].known or 0) % plan.width if tail else plan.width
        a_row, b_row = self.stride(f, c.a), f.extent(c.b.strides[c.column])
        deep = f.extent(c.depth[0][0])
        count = rows * columns
        zero = ir.Constant(ir.VectorType(self.element, plan.lanes), None)

        def steps(lanes: PartialVector) -> Callable[[Index, list[ir.Value]], list[ir.Value]]:
            def body(k: Index, sums: list[ir.Value]) -> list[ir.Value]:
                xs = [self.read(f, c.a, a, f.iadd(f.imul(r, a_row), k), 1, lanes) for r in range(rows)]
                ys = [self.read(f, c.b, b, f.iadd(f.imul(j, b_row), k), 1, lanes) for j in range(columns)]
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
        views = self.views(f, m, n, outer)
        wide = max(2, 1 << (plan.width - 1).bit_length())  # bodies have no vectors of one lane
        for row in range(rows):
            vector: ir.Value = ir.Constant(ir.VectorType(self.element, wide), None)
            for j in range(columns):
                total = horizontal_sum(f, sums[row * columns + j], c.product.is_float)
                vector = f.insert_element(vector, total, ir.Constant(ir.IntType(32), j))
            lane = PartialVector(wide, columns if columns < wide else None)
            self.finish(f, views, self.add(f, vector, self.initial(f, views, row, 0, lane)), row, 0, lane)
