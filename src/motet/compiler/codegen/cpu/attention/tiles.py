"""Emits the work of attention on one tile of rows and one block of keys: scores, weights and sums of values.

Weights are powers of differences from the largest score so far. When a block raises it, earlier sums are scaled down
(Milakov, Gimelshein: "Online normalizer calculation for softmax", 2018; Dao et al.: "FlashAttention", 2022).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

from motet.compiler.codegen.cpu.attention.packing import PackedAttention
from motet.compiler.codegen.cpu.attention.scores import ScoreVector
from motet.compiler.codegen.cpu.emit import vector_math
from motet.compiler.codegen.cpu.emit.builder import I32, I64, PTR, Index
from motet.compiler.codegen.cpu.gemm.microkernel import (
    MEMORY_TYPES,
    Depth,
    PartialVector,
    TileFrame,
    TileOperands,
    accumulate,
    horizontal_sum,
    read_vector,
    shared_function,
    widen,
)
from motet.compiler.kernels.strides import StridedAccess

_FUSED_STEPS = 224  # vector multiply-adds in one iteration of the innermost loop
_UNROLLED = 4  # vectors of scores in flight


@dataclass(frozen=True)
class TileAddresses:
    """Where a tile of rows and a block of keys are: in scratch memory, except keys and values that are not packed."""

    queries: ir.Value
    keys: ir.Value
    values: ir.Value
    outputs: ir.Value
    maxima: ir.Value
    sums: ir.Value
    factors: ir.Value
    weights: ir.Value


class AttentionTiles(PackedAttention):
    """Emits functions of tiles of `rows` rows."""

    def begin(self, f: TileFrame) -> None:
        """Emit what precedes all tasks of a call."""

    def end(self, f: TileFrame) -> None:
        """Emit what follows them."""

    # -- scores --

    def scores(
        self, f: TileFrame, rows: int, place: StridedAccess, at: TileAddresses, keys: Index, present: Index
    ) -> None:
        """Write the products of `rows` queries, of which `present` exist, and `keys` keys as weights."""
        name = f"{self.label}.scores{rows}.{place.value}"
        emit = self._emit_along_depth if self.plan.key_mode == "along_depth" else self._emit_scores
        function = shared_function(
            self.module, name, [PTR] * 5 + [I64] * 2, self.c.kernel, lambda g: emit(g, rows, place)
        )
        f.call(function, [*f.arguments[:2], at.queries, at.keys, at.weights, f.index(keys), f.index(present)])

    def known_keys(self, given: Index) -> Index:
        """The number of keys of a block: `given`, unless all blocks have the same."""
        known = self.c.key_count.known
        if self.single and known is not None and self.c.attention.causal is None:
            return known
        return given

    def _emit_scores(self, g: TileFrame, rows: int, place: StridedAccess) -> None:
        queries, keys, weights = g.arguments[2:5]
        count = self.known_keys(g.arguments[5])
        packed, lanes, width = self.plan.key_mode == "packed", self.plan.lanes, self.score_width
        stored = self.c.computed if packed else place.dtype
        step = width if packed else g.extent(place.strides[self.c.attention.depth])

        def panel(p: Index, vectors: int, left: Index | None) -> None:
            first = g.imul(p, width)
            b_lanes = tuple(
                PartialVector(lanes, None if left is None else g.isub(left, v * lanes)) for v in range(vectors)
            )
            factors = TileOperands(self.product, self.c.computed, (), self.c.depth, stored, (), b_lanes)
            source = g.at(keys, g.imul(first, self.c.depth) if packed else first, MEMORY_TYPES[stored])
            zeros: list[ir.Value] = [self.numbers(0.0)] * (rows * vectors)
            sums = accumulate(g, factors, zeros, queries, source, [Depth(self.c.depth, 1, step)], _FUSED_STEPS)
            for number, total in enumerate(sums):
                row, v = divmod(number, vectors)
                to = g.at(weights, g.iadd(row * self.padded_keys + v * lanes, first), self.element)
                g.store_vector(total, to, self.element)

        self.panels(g, count, self.plan.score_vectors, panel, masked=not packed)

    def panels(
        self, g: TileFrame, count: Index, vectors: int, panel: Callable[[Index, int, Index | None], None], masked: bool
    ) -> None:
        """Call `panel(number, vectors, left)` for whole panels, then for an incomplete one, with the vectors that it
        needs if `count` is known; if `masked`, with the elements that exist."""
        lanes = self.plan.lanes
        width = vectors * lanes
        if not masked and not isinstance(count, int):
            g.loop(0, g.iceil(count, width), 1, lambda p, _: panel(p, vectors, None))
            return
        whole, rest = g.idiv(count, width), g.irem(count, width)
        g.loop(0, whole, 1, lambda p, _: panel(p, vectors, None))
        if isinstance(rest, int):
            if rest:
                panel(whole, -(-rest // lanes), rest if masked and rest % lanes else None)
            return
        with g.if_then(g.icmp_signed(">", g.index(rest), g.index(0))):
            panel(whole, vectors, rest)

    def _emit_along_depth(self, g: TileFrame, rows: int, place: StridedAccess) -> None:
        """Products of few queries with keys whose depth is contiguous, as sums of lanes: keys are read once, in
        place. Keys after the last one repeat it."""
        queries, keys, weights, count, present = g.arguments[2:7]
        lanes, depth = self.plan.lanes, self.c.depth
        stored = MEMORY_TYPES[place.dtype]
        step = g.extent(place.strides[self.c.attention.key])
        pieces = [
            (k, PartialVector(lanes, None if k + lanes <= depth else depth - k)) for k in range(0, depth, lanes)
        ]

        def group(n: Index, lines: list[ir.Value]) -> None:
            def row(r: Index, _: list[ir.Value]) -> None:
                query = g.at(queries, g.imul(r, depth), self.element)
                factors = [read_vector(g, g.at(query, k, self.element), self.c.computed, 1, part) for k, part in pieces]
                totals: list[ir.Value] = []
                for line in lines:
                    total: ir.Value = self.numbers(0.0)
                    for (k, part), factor in zip(pieces, factors, strict=True):
                        raw = read_vector(g, g.at(line, k, stored), place.dtype, 1, part)
                        total = g.multiply_add(factor, widen(g, raw, place.dtype, (), self.c.computed), total)
                    totals.append(total)
                to = g.at(weights, g.iadd(g.imul(r, self.padded_keys), n), self.element)
                g.store_vector(self._sums_of_lanes(g, totals), to, self.element)

            g.loop(0, 1 if rows == 1 else present, 1, row)

        def whole(n: Index, _: list[ir.Value]) -> None:
            group(n, [g.at(keys, g.imul(g.iadd(n, i), step), stored) for i in range(lanes)])

        end = g.imul(g.idiv(count, lanes), lanes)
        g.loop(0, end, lanes, whole)
        with g.if_then(g.icmp_signed(">", g.index(count), g.index(end))):
            last = g.isub(count, 1)
            group(end, [g.at(keys, g.imul(g.imin(g.iadd(end, i), last), step), stored) for i in range(lanes)])

    def _sums_of_lanes(self, g: TileFrame, vectors: list[ir.Value]) -> ir.Value:
        """The sums of the lanes of as many vectors as one has lanes, by adding even and odd lanes of pairs."""
        lanes = len(vectors)
        even, odd = (ir.Constant(ir.VectorType(I32, lanes), list(range(start, 2 * lanes, 2))) for start in (0, 1))
        while len(vectors) > 1:
            pairs = zip(vectors[::2], vectors[1::2], strict=True)
            vectors = [g.fadd(g.shuffle_vector(a, b, even), g.shuffle_vector(a, b, odd)) for a, b in pairs]
        return vectors[0]

    # -- weights --

    def weights(
        self, f: TileFrame, at: TileAddresses, outer: list[Index], row: Index, rows: Index, first: Index, keys: Index
    ) -> None:
        """Replace the scores of `rows` rows from `row` on, and `keys` keys from `first` on, by weights; update maxima
        and sums, and write the factors of earlier outputs."""
        dims = [dim for _, dim in self.c.outer]

        def write(g: TileFrame) -> None:
            g.scales = self.target.scales
            here: list[Index] = [0] * len(outer)
            for dim, value in zip(dims, g.arguments[10:], strict=True):
                here[dim] = value
            maxima, sums, factors, weights, row_, rows_, first_, keys_ = g.arguments[2:10]
            addresses = TileAddresses(weights, weights, weights, weights, maxima, sums, factors, weights)
            count = self.known_keys(keys_)
            g.loop(0, rows_, 1, lambda r, _: self._row(
                g, addresses, self.at_row(g, here, g.iadd(row_, r)), r, first_, count))

        name = f"{self.label}.weights"
        kinds = [PTR] * 6 + [I64] * (4 + len(dims))
        function = shared_function(self.module, name, kinds, self.c.kernel, write)
        numbers = [row, rows, first, keys, *(outer[dim] for dim in dims)]
        f.call(function, [
            *f.arguments[:2], at.maxima, at.sums, at.factors, at.weights, *(f.index(number) for number in numbers)
        ])

    def _row(self, g: TileFrame, at: TileAddresses, here: list[Index], r: Index, first: Index, keys: Index) -> None:
        """The weights of one row."""
        scores = g.at(at.weights, g.imul(r, self.padded_keys), self.element)
        highest = self._highest(g, scores, here, first, keys)
        maximum = g.at(at.maxima, r, self.element)
        before = g.load_vector(maximum, self.element, 1)
        after = highest if self.single else g.select(g.fcmp_ordered(">", highest, before), highest, before)
        none = g.fcmp_ordered("==", after, self.number(-math.inf))
        base = g.select(none, self.number(0.0), after)
        factor = self.number(self.c.attention.scale * math.log2(math.e))
        wide_base, wide_factor = g.splat(base, self.plan.lanes), g.splat(factor, self.plan.lanes)

        def some(j: Index, totals: list[ir.Value]) -> list[ir.Value]:
            result: list[ir.Value] = []
            for u, total in enumerate(totals):
                place = g.at(scores, g.iadd(j, u * self.plan.lanes), self.element)
                score = g.load_vector(place, self.element, self.plan.lanes)
                weight = vector_math.exp2(g, g.fmul(g.fsub(score, wide_base), wide_factor))
                self.store_weight(g, scores, g.iadd(j, u * self.plan.lanes), weight)
                result.append(g.fadd(total, weight))
            return result

        total = self._along(g, 0, g.iceil(keys, self.plan.lanes), some, self.numbers(0.0), g.fadd)
        self.end_weights(g, scores, keys)
        place = g.at(at.sums, g.imul(r, self.plan.lanes), self.element)
        if not self.single:
            g.store_vector(after, maximum, self.element)
            scaled = vector_math.exp2(g, g.fmul(g.fsub(before, base), factor))
            g.store_vector(scaled, g.at(at.factors, r, self.element), self.element)
            earlier = g.load_vector(place, self.element, self.plan.lanes)
            total = g.multiply_add(earlier, g.splat(scaled, self.plan.lanes), total)
        g.store_vector(total, place, self.element)

    def store_weight(self, g: TileFrame, row: ir.Value, j: Index, weight: ir.Value) -> None:
        """Store a vector of weights, of keys from `j` on, in place of the scores at `row`."""
        g.store_vector(weight, g.at(row, j, self.element), self.element)

    def end_weights(self, g: TileFrame, row: ir.Value, keys: Index) -> None:
        """Write what the products read after the last weight."""

    def _along(
        self, g: TileFrame, begin: Index, end: Index, some: Callable[[Index, list[ir.Value]], list[ir.Value]],
        start: ir.Value, join: Callable[[ir.Value, ir.Value], ir.Value],
    ) -> ir.Value:
        """Vectors `[begin, end)` by `some(first element, running values)`, several at a time; the joined values."""
        lanes = self.plan.lanes
        whole = g.iadd(begin, g.imul(g.idiv(g.isub(end, begin), _UNROLLED), _UNROLLED))
        values = g.loop(begin, whole, _UNROLLED, lambda v, inner: some(g.imul(v, lanes), inner), [start] * _UNROLLED)
        rest = g.loop(whole, end, 1, lambda v, inner: some(g.imul(v, lanes), inner), [values[0]])
        return join(join(rest[0], values[1]), join(values[2], values[3]))

    def _highest(self, g: TileFrame, scores: ir.Value, here: list[Index], first: Index, keys: Index) -> ir.Value:
        """The largest score of a row, after masks and other work; scores of keys that do not exist become -inf."""
        causal, row = self.c.attention.causal, self.c.attention.row
        if causal is None or row is None:
            return self._masked(g, scores, here, (first, keys), True)
        reach = g.iadd(here[row], causal.offset)
        sees_all = g.icmp_signed("<=", g.index(g.iadd(first, g.isub(keys, 1))), g.index(reach))
        found: list[tuple[ir.Value, ir.Block]] = []
        with g.if_else(sees_all) as (then, otherwise):
            for branch, careful in ((then, False), (otherwise, True)):
                with branch:
                    found.append((self._masked(g, scores, here, (first, keys), careful), g.block))
        result = g.phi(self.element)
        for value, block in found:
            result.add_incoming(value, block)
        return result

    def _masked(
        self, g: TileFrame, scores: ir.Value, here: list[Index], span: tuple[Index, Index], careful: bool
    ) -> ir.Value:
        first, keys = span
        lanes, lowest = self.plan.lanes, self.numbers(-math.inf)

        def scored(j: Index, count: Index | None) -> ir.Value:
            place = g.at(scores, j, self.element)
            product = g.load_vector(place, self.element, lanes)
            at = list(here)
            at[self.c.attention.key] = g.iadd(first, j)
            part = PartialVector(lanes, count)
            score = ScoreVector(g, self.c, at, part, product, careful).value()
            if count is not None:
                score = g.select(g.lane_mask(count, lanes), score, lowest)
            if score is not product:
                g.store_vector(score, place, self.element)
            return score

        def some(j: Index, highest: list[ir.Value]) -> list[ir.Value]:
            values = [scored(g.iadd(j, u * lanes), None) for u in range(len(highest))]
            return [self._larger(g, value, high) for value, high in zip(values, highest, strict=True)]

        whole = g.idiv(keys, lanes)
        highest = self._along(g, 0, whole, some, lowest, lambda a, b: self._larger(g, a, b))
        done = g.imul(whole, lanes)

        def last(j: Index, highest: list[ir.Value]) -> list[ir.Value]:
            return [self._larger(g, scored(j, g.isub(keys, j)), highest[0])]

        highest = g.loop(done, keys, lanes, last, [highest])[0]
        return self._largest_lane(g, highest)

    def _larger(self, g: TileFrame, a: ir.Value, b: ir.Value) -> ir.Value:
        """The larger of `a` and `b`, `b` if `a` is NaN: a NaN score makes its weight NaN, and so the sum."""
        return g.select(g.fcmp_ordered(">", a, b), a, b)

    def _largest_lane(self, g: TileFrame, vector: ir.Value) -> ir.Value:
        lanes = self.plan.lanes
        while lanes > 1:
            lanes //= 2
            orders = [list(range(start, start + lanes)) for start in (0, lanes)]
            low, high = (
                g.shuffle_vector(vector, vector, ir.Constant(ir.VectorType(I32, lanes), order)) for order in orders
            )
            vector = self._larger(g, low, high)
        return g.extract_element(vector, ir.Constant(I32, 0))

    # -- values --

    def values(
        self, f: TileFrame, rows: int, place: StridedAccess, at: TileAddresses, keys: Index, deep: Index
    ) -> None:
        """Add the products of the weights of `rows` rows and the values of `keys` keys to their scaled outputs. Packed
        panels of values are `deep` keys long."""
        name = f"{self.label}.values{rows}.{place.value}"
        function = shared_function(
            self.module, name, [PTR] * 6 + [I64] * 2, self.c.kernel, lambda g: self._emit_values(g, rows, place)
        )
        panel = f.imul(deep, self.value_width)
        f.call(function, [
            *f.arguments[:2], at.weights, at.values, at.outputs, at.factors, f.index(keys), f.index(panel)
        ])

    def _emit_values(self, g: TileFrame, rows: int, place: StridedAccess) -> None:
        weights, values, outputs, factors = g.arguments[2:6]
        count, stride = self.known_keys(g.arguments[6]), g.arguments[7]
        packed, lanes, width = self.plan.pack_values, self.plan.lanes, self.value_width
        stored = self.c.computed if packed else place.dtype
        step = width if packed else g.extent(place.strides[self.c.attention.key])
        scales = [] if self.single else [
            g.splat(g.load_vector(g.at(factors, row, self.element), self.element, 1), lanes) for row in range(rows)
        ]

        def panel(p: Index, vectors: int, left: Index | None) -> None:
            first = g.imul(p, width)
            b_lanes = tuple(
                PartialVector(lanes, None if left is None else g.isub(left, v * lanes)) for v in range(vectors)
            )
            read = TileOperands(self.product, self.c.computed, (), self.padded_keys, stored, (), b_lanes)
            source = g.at(values, g.imul(p, stride) if packed else first, MEMORY_TYPES[stored])
            places = [
                g.at(outputs, g.iadd(row * self.padded_columns + v * lanes, first), self.element)
                for row in range(rows) for v in range(vectors)
            ]
            start: list[ir.Value] = [self.numbers(0.0)] * len(places) if self.single else [
                g.fmul(g.load_vector(to, self.element, lanes), scales[number // vectors])
                for number, to in enumerate(places)
            ]
            sums = accumulate(g, read, start, weights, source, [Depth(count, 1, step)], _FUSED_STEPS)
            for total, to in zip(sums, places, strict=True):
                g.store_vector(total, to, self.element)

        self.panels(g, self.c.columns, self.plan.value_vectors, panel, masked=not packed)

    # -- results --

    def inverse(self, g: TileFrame, sums: ir.Value, row: Index) -> ir.Value:
        """The reciprocal of the sum of weights of `row`: infinite if there are none, so that the result is NaN, as a
        softmax of scores that are all -inf is, unless the program or an empty sum says otherwise."""
        vector = g.load_vector(g.at(sums, g.imul(row, self.plan.lanes), self.element), self.element, self.plan.lanes)
        total = horizontal_sum(g, vector, True)
        result = g.fdiv(self.number(1.0), total)
        if self.c.attention.repairs:
            return g.select(g.fcmp_ordered(">", total, self.number(0.0)), result, self.number(0.0))
        empty = g.fcmp_ordered("==", total, self.number(0.0))
        if self.c.attention.safe:
            return g.select(empty, self.number(0.0), result)
        if self.c.key_count.known is None:
            none = g.icmp_signed("==", g.index(g.extent(self.c.key_count)), g.index(0))
            return g.select(none, self.number(0.0), result)
        return result

    def divided(self, g: TileFrame, outputs: ir.Value, inverse: ir.Value) -> ir.Value:
        """A vector of outputs divided by the sum of weights, whose reciprocal is in all lanes of `inverse`."""
        result = g.fmul(outputs, inverse)
        if not self.c.attention.repairs:
            return result
        return g.select(g.fcmp_ordered("==", inverse, self.numbers(0.0)), self.numbers(0.0), result)
