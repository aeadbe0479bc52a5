"""Attention on bf16 numbers by the CPU's instructions for them: both products read 16 bits, and sum in f32.

Keys and values are packed as `products/instructions.py` describes, K padded with zeros to a whole step of AMX. Weights
are rounded to bf16 in place of the scores that they come from.
"""

from __future__ import annotations

from llvmlite import ir

from motet.compiler.codegen.cpu.attention.nest import AttentionNest
from motet.compiler.codegen.cpu.attention.tiles import AttentionTiles, TileAddresses
from motet.compiler.codegen.cpu.emit.builder import I16, I64, PTR, Index
from motet.compiler.codegen.cpu.gemm.microkernel import TileFrame, shared_function
from motet.compiler.codegen.cpu.products.instructions import BFLOATS, BLOCK, BRAIN, arithmetic_of
from motet.compiler.codegen.cpu.products.squares import PackedLines, packing_function
from motet.compiler.codegen.cpu.products.tiles import (
    Operands,
    configure,
    inner_depth,
    multiply_amx,
    multiply_tile,
    release,
)
from motet.compiler.kernels.schedule import AttentionSchedule
from motet.compiler.kernels.strides import StridedAccess
from motet.compiler.targets.cpu import CpuTarget

_DEPTH = BFLOATS.depth


class BfloatAttentionTiles(AttentionTiles):
    """Emits functions of tiles whose operands are bf16 numbers."""

    def __init__(self, c: AttentionNest, plan: AttentionSchedule, target: CpuTarget) -> None:
        super().__init__(c, plan, target)
        how = None if plan.way == "vectors" else arithmetic_of(target, BFLOATS, way=plan.way)
        assert how is not None
        self.how, self.stored = how, I16
        self.padded_depth = -(-c.depth // _DEPTH) * _DEPTH
        self.padded_keys = -(-self.padded_keys // _DEPTH) * _DEPTH + BLOCK  # and zeros after the last weight
        deep = -(-plan.keys // _DEPTH) * _DEPTH
        half = self.bytes // 2
        self.sizes |= {
            "queries": plan.rows * self.padded_depth // half, "weights": plan.tile * self.padded_keys,
            "keys": self.padded_keys * self.padded_depth // half, "values": deep * self.padded_columns // half,
        }

    def begin(self, f: TileFrame) -> None:
        if self.plan.way == "tiles":
            configure(f, BLOCK)

    def end(self, f: TileFrame) -> None:
        if self.plan.way == "tiles":
            release(f)

    # -- operands --

    def pack_keys(self, f: TileFrame, place: StridedAccess, source: ir.Value, target: ir.Value, keys: Index) -> None:
        a = self.c.attention
        self._pack_lines(f, "keys", place, (a.key, a.depth), [source, target], (keys, self.c.depth, self.padded_depth))

    def pack_values(self, f: TileFrame, place: StridedAccess, source: ir.Value, target: ir.Value, keys: Index) -> None:
        a = self.c.attention
        self._pack_lines(
            f, "values", place, (a.column, a.key), [source, target], (self.c.columns, keys, self._steps(f, keys))
        )

    def _steps(self, f: TileFrame, keys: Index) -> Index:
        """`keys`, up to a whole step of AMX."""
        return f.imul(f.iceil(keys, _DEPTH), _DEPTH)

    def _pack_lines(
        self, f: TileFrame, name: str, place: StridedAccess, dims: tuple[int, int], addresses: list[ir.Value],
        numbers: tuple[Index, Index, Index],
    ) -> None:
        """Pack `numbers` lines, of so many numbers, padded to so many; `dims` are the loops along both."""
        symbol = f"{self.label}.pack_{name}.{place.value}"
        function = self.module.globals.get(symbol) or packing_function(
            self.module, self.c.kernel, symbol, BFLOATS,
            lambda g: PackedLines(g.extent(place.strides[dims[0]]), g.extent(place.strides[dims[1]]), True),
        )
        f.call(function, [*f.arguments[:2], *addresses, *map(f.index, numbers)])

    # -- products --

    def scores(
        self, f: TileFrame, rows: int, place: StridedAccess, at: TileAddresses, keys: Index, present: Index
    ) -> None:
        def write(g: TileFrame) -> None:
            queries, packed, weights = g.arguments[2:5]
            count = self.known_keys(g.arguments[5])

            def panel(p: Index, vectors: int, left: Index | None) -> None:
                first = g.imul(p, self.score_width)
                self._multiply(g, rows, vectors, Operands(
                    self._row_tiles(g, queries, self.padded_depth), self.padded_depth,
                    g.at(packed, g.imul(first, self.padded_depth), I16), BLOCK * self.padded_depth,
                    g.at(weights, first, self.element), self.padded_keys, True,
                ), self.padded_depth)

            self.panels(g, count, self.plan.score_vectors, panel, masked=False)

        name = f"{self.label}.scores{rows}"
        function = shared_function(self.module, name, [PTR] * 5 + [I64], self.c.kernel, write)
        f.call(function, [*f.arguments[:2], at.queries, at.keys, at.weights, f.index(keys)])

    def values(
        self, f: TileFrame, rows: int, place: StridedAccess, at: TileAddresses, keys: Index, deep: Index
    ) -> None:
        def write(g: TileFrame) -> None:
            weights, packed, outputs, factors = g.arguments[2:6]
            count, length = self.known_keys(g.arguments[6]), g.arguments[7]
            if not self.single:
                g.loop(0, rows, 1, lambda row, _: self._scale(g, outputs, factors, row))
            row = self.padded_keys * 2  # of 16-bit weights in place of 32-bit scores

            def panel(p: Index, vectors: int, left: Index | None) -> None:
                first = g.imul(p, self.value_width)
                self._multiply(g, rows, vectors, Operands(
                    self._row_tiles(g, weights, row), row, g.at(packed, g.imul(first, length), I16),
                    g.imul(BLOCK, length), g.at(outputs, first, self.element), self.padded_columns, self.single,
                ), self._steps(g, count))

            self.panels(g, self.c.columns, self.plan.value_vectors, panel, masked=False)

        name = f"{self.label}.values{rows}"
        function = shared_function(self.module, name, [PTR] * 6 + [I64] * 2, self.c.kernel, write)
        numbers = [f.index(keys), f.index(self._steps(f, deep))]
        f.call(function, [*f.arguments[:2], at.weights, at.values, at.outputs, at.factors, *numbers])

    def _row_tiles(self, g: TileFrame, base: ir.Value, row: int) -> list[ir.Value]:
        """The addresses of the first rows of AMX's tiles of a left operand, or of all rows."""
        count = self.plan.tile // BLOCK if self.plan.way == "tiles" else 1
        return [g.at(base, number * BLOCK * row, I16) for number in range(count)]

    def _multiply(self, g: TileFrame, rows: int, blocks: int, at: Operands, deep: Index) -> None:
        """The product of `rows` rows and `blocks` blocks along `deep` numbers, a multiple of 32."""
        depth = [inner_depth(self.how, g.idiv(deep, self.how.step))]
        if self.plan.way == "tiles":
            multiply_amx(g, self.how, BLOCK, blocks, at, depth)
        else:
            multiply_tile(g, self.how, rows, blocks, at, depth)

    def _scale(self, g: TileFrame, outputs: ir.Value, factors: ir.Value, row: Index) -> None:
        """Multiply one row of outputs by its factor."""
        lanes = self.plan.lanes
        factor = g.splat(g.load_vector(g.at(factors, row, self.element), self.element, 1), lanes)
        for j in range(0, self.padded_columns, lanes):
            place = g.at(outputs, g.iadd(g.imul(row, self.padded_columns), j), self.element)
            g.store_vector(g.fmul(g.load_vector(place, self.element, lanes), factor), place, self.element)

    # -- weights --

    def store_weight(self, g: TileFrame, row: ir.Value, j: Index, weight: ir.Value) -> None:
        short = g.intrinsic("llvm.x86.avx512bf16.cvtneps2bf16.512", ir.VectorType(BRAIN, BLOCK), [weight])
        g.store_vector(g.bitcast(short, ir.VectorType(I16, BLOCK)), g.at(row, j, I16), I16)

    def end_weights(self, g: TileFrame, row: ir.Value, keys: Index) -> None:
        """Zeros up to a whole step of AMX."""
        zeros = ir.Constant(ir.VectorType(I16, BLOCK), None)
        g.store_vector(zeros, g.at(row, g.imul(g.iceil(keys, BLOCK), BLOCK), I16), I16)
