"""Copies queries, keys and values of a task to its scratch memory, widened, in the order that tiles read."""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from motet.compiler.codegen.cpu.attention.space import AttentionMemory
from motet.compiler.codegen.cpu.emit.builder import I16, I64, PTR, Index
from motet.compiler.codegen.cpu.gemm.microkernel import (
    MEMORY_TYPES,
    PartialVector,
    TileFrame,
    read_vector,
    shared_function,
    transpose,
    widen,
)
from motet.compiler.kernels.strides import StridedAccess


@dataclass(frozen=True)
class Panels:
    """A right operand that is packed as [panel][depth][width]: its access, and the loops along its depth and columns.
    Panels are `deep` steps long, or as many as are packed at a time if it is None."""

    name: str
    place: StridedAccess
    depth: int
    column: int
    vectors: int
    deep: int | None


class PackedAttention(AttentionMemory):
    """Emits functions that copy operands."""

    def _pack(
        self, f: TileFrame, what: Panels, source: ir.Value, target: ir.Value, deep: Index, columns: Index
    ) -> None:
        """Pack `deep` steps of `columns` columns."""
        name = f"{self.label}.pack_{what.name}.{what.place.value}"
        function = shared_function(
            self.module, name, [PTR] * 4 + [I64] * 2, self.c.kernel, lambda g: self._emit_pack(g, what)
        )
        f.call(function, [*f.arguments[:2], source, target, f.index(deep), f.index(columns)])

    def _emit_pack(self, g: TileFrame, what: Panels) -> None:
        source, target, deep, columns = g.arguments[2:6]
        depth: Index = deep if what.deep is None else what.deep
        lanes = self.plan.lanes
        stored = MEMORY_TYPES[what.place.dtype]
        step, step_n = (g.extent(what.place.strides[dim]) for dim in (what.depth, what.column))
        width = what.vectors * lanes

        def vector(number: Index, _: list[ir.Value]) -> None:
            first = g.imul(number, lanes)
            at = g.at(source, g.imul(first, step_n), stored)
            panel, inside = g.idiv(first, width), g.irem(first, width)
            to = g.at(target, g.iadd(g.imul(g.imul(panel, width), depth), inside), self.element)
            left = g.isub(columns, first)
            if isinstance(step, int) and step == 1 and not (isinstance(step_n, int) and step_n == 1):
                self._transposed(g, what, (at, to), depth, left)
            else:
                self._rows(g, what, (at, to), depth, left)

        # Scores of whole panels are computed: what old memory holds may be subnormal, and slow.
        whole = g.imul(g.iceil(columns, width), what.vectors)
        g.loop(0, whole if what.name == "keys" else g.iceil(columns, lanes), 1, vector)

    def _rows(
        self, g: TileFrame, what: Panels, addresses: tuple[ir.Value, ir.Value], depth: Index, left: Index
    ) -> None:
        """Copy one vector of columns, of which `left` exist, at every step."""
        lanes = self.plan.lanes
        stored = MEMORY_TYPES[what.place.dtype]
        step, step_n = (g.extent(what.place.strides[dim]) for dim in (what.depth, what.column))

        def all_steps(count: Index | None) -> None:
            def one(k: Index, _: list[ir.Value]) -> None:
                at = g.at(addresses[0], g.imul(k, step), stored)
                raw = read_vector(g, at, what.place.dtype, step_n, PartialVector(lanes, count))
                wide = widen(g, raw, what.place.dtype, (), self.c.computed)
                to = g.at(addresses[1], g.imul(k, what.vectors * lanes), self.element)
                g.store_vector(wide, to, self.element)
            g.loop(0, depth, 1, one)

        with g.if_else(g.icmp_signed(">=", g.index(left), g.index(lanes))) as (then, otherwise):
            with then:
                all_steps(None)
            with otherwise:
                all_steps(left)

    def _transposed(
        self, g: TileFrame, what: Panels, addresses: tuple[ir.Value, ir.Value], depth: Index, left: Index
    ) -> None:
        """Copy one vector of columns whose steps are contiguous: squares are transposed in registers. Columns that do
        not exist repeat the last one."""
        lanes = self.plan.lanes
        stored = MEMORY_TYPES[what.place.dtype]
        step_n = g.extent(what.place.strides[what.column])
        lines = [
            g.at(addresses[0], g.imul(g.imin(i, g.isub(left, 1)), step_n), stored) for i in range(lanes)
        ]

        def square(k: Index, count: Index | None) -> None:
            part = PartialVector(lanes, count)
            raw = [read_vector(g, g.at(line, k, stored), what.place.dtype, 1, part) for line in lines]
            wide = [widen(g, each, what.place.dtype, (), self.c.computed) for each in raw]
            for i, each in enumerate(transpose(g, wide)):
                to = g.at(addresses[1], g.imul(g.iadd(k, i), what.vectors * lanes), self.element)
                if count is None or (isinstance(count, int) and i < count):
                    g.store_vector(each, to, self.element)
                elif not isinstance(count, int):
                    with g.if_then(g.icmp_signed("<", g.index(i), g.index(count))):
                        g.store_vector(each, to, self.element)

        whole = g.imul(g.idiv(depth, lanes), lanes)
        g.loop(0, whole, lanes, lambda k, _: square(k, None))
        rest = g.isub(depth, whole)
        if isinstance(rest, int):
            if rest:
                square(whole, rest)
            return
        with g.if_then(g.icmp_signed(">", g.index(rest), g.index(0))):
            square(whole, rest)

    def pack_keys(self, f: TileFrame, place: StridedAccess, source: ir.Value, target: ir.Value, keys: Index) -> None:
        """Pack `keys` keys from `source` on."""
        a = self.c.attention
        what = Panels("keys", place, a.depth, a.key, self.plan.score_vectors, self.c.depth)
        self._pack(f, what, source, target, self.c.depth, keys)

    def pack_values(self, f: TileFrame, place: StridedAccess, source: ir.Value, target: ir.Value, keys: Index) -> None:
        """Pack `keys` values from `source` on."""
        a = self.c.attention
        what = Panels("values", place, a.key, a.column, self.plan.value_vectors, None)
        self._pack(f, what, source, target, keys, self.c.columns)

    def begin_rows(self, f: TileFrame, at: list[Index], first: Index, rows: Index, scratch: ir.Value) -> None:
        """Copy the queries of `rows` rows from row `first` of the problem at `at`, and clear what is summed. Rows up to
        a whole tile, and the numbers of a row up to its padded depth, are zeros."""
        tile, depth = self.plan.tile, self.padded_depth
        padded = rows if tile == 1 else f.imul(f.iceil(rows, tile), tile)
        self._clear(f, scratch, "queries", 0 if depth > self.c.depth else f.imul(rows, depth), f.imul(padded, depth))
        self._clear(f, scratch, "outputs", 0, f.imul(padded, self.padded_columns))
        self._clear(f, scratch, "sums", 0, f.imul(padded, self.plan.lanes))
        f.loop(0, rows, 1, lambda r, _: self._query(f, self.at_row(f, at, f.iadd(first, r)), scratch, r))
        f.loop(0, padded, 1, lambda r, _: f.store_vector(
            self.number(float("-inf")), self.scratch(f, scratch, "maxima", r), self.element))

    def _clear(self, f: TileFrame, scratch: ir.Value, name: str, begin: Index, end: Index) -> None:
        """Write zeros to elements `[begin, end)` of a part, to those after the last whole vector one by one."""
        lanes, kind = self.plan.lanes, self._kind(name)
        zeros, zero = ir.Constant(ir.VectorType(kind, lanes), None), ir.Constant(kind, 0)
        whole = f.iadd(begin, f.imul(f.idiv(f.isub(end, begin), lanes), lanes))
        f.loop(begin, whole, lanes, lambda i, _: f.store_vector(zeros, self.scratch(f, scratch, name, i), kind))
        f.loop(whole, end, 1, lambda i, _: f.store_vector(zero, self.scratch(f, scratch, name, i), kind))

    def _query(self, f: TileFrame, at: list[Index], scratch: ir.Value, row: Index) -> None:
        place, lanes, depth = self.c.query, self.plan.lanes, self.c.depth
        source, step = f.address(place, at), f.extent(place.strides[self.c.attention.depth])
        target = self.scratch(f, scratch, "queries", f.imul(row, self.padded_depth))

        def vector(k: Index, lanes_here: int) -> None:
            here = f.at(source, f.imul(k, step), MEMORY_TYPES[place.dtype])
            raw = read_vector(f, here, place.dtype, step, PartialVector(lanes_here))
            wide = raw if self.stored == I16 else widen(f, raw, place.dtype, (), self.c.computed)
            f.store_vector(wide, f.at(target, k, self.stored), self.stored)

        whole = depth // lanes * lanes
        f.loop(0, whole, lanes, lambda k, _: vector(k, lanes))
        f.loop(whole, depth, 1, lambda k, _: vector(k, 1))
