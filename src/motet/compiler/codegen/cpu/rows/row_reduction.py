"""Reductions of a row by vectors: sums and products in several accumulators, and extremes."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.addressing import Frame
from motet.compiler.codegen.cpu.emit.builder import I32
from motet.compiler.codegen.cpu.emit.combiners import across, combine
from motet.compiler.codegen.cpu.emit.compute_types import constant
from motet.compiler.codegen.cpu.emit.float_lanes import FloatLanes as Arithmetic
from motet.compiler.codegen.cpu.emit.float_lanes import Value
from motet.compiler.kernels.kernel import ITEM_BITS
from motet.compiler.kernels.reduction import Reduction


class Gathering:
    """The values that a vector of a row's accumulators carries: by default, the combiner's values."""

    width = 1

    def __init__(self, found: Reduction, lanes: int) -> None:
        self.found = found
        self.lanes = lanes

    def start(self) -> list[Value]:
        return [constant(self.found.accumulator, self.found.identity, self.lanes)]

    def add(
        self, f: Frame, carried: Sequence[Sequence[Value]], terms: Sequence[Value]
    ) -> list[list[Value]]:
        """Add one term to each of several vectors of accumulators."""
        return [[combine(f, self.found, part[0], term)] for part, term in zip(carried, terms, strict=True)]

    def merge(self, f: Frame, a: Sequence[Value], b: Sequence[Value]) -> list[Value]:
        """Combine two vectors, or two scalars, of accumulators."""
        return [combine(f, self.found, a[0], b[0])]

    def across(self, f: Frame, carried: Sequence[Value]) -> Value:
        return across(f, self.found, carried[0])

    def total(self, f: Frame, parts: Sequence[Sequence[Value]]) -> Value:
        """Reduce several vectors to one scalar, by a tree."""
        parts = list(parts)
        while len(parts) > 1:
            pairs = [self.merge(f, a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
            parts = [*pairs, *(parts[-1:] if len(parts) % 2 else [])]
        return self.across(f, parts[0])


class ExtremeGathering(Gathering):
    """The maximum (minimum) by one comparison per term. Accumulators also carry what it does not handle: the signs of
    all terms, which distinguish zeros, and whether any term is NaN."""

    width = 3

    def __init__(self, found: Reduction, lanes: int) -> None:
        super().__init__(found, lanes)
        self.greatest = found.op == "arith.maximumf"

    def start(self) -> list[Value]:
        bits = ir.VectorType(ir.IntType(ITEM_BITS[self.found.accumulator]), self.lanes)
        unseen = ir.Constant(ir.VectorType(ir.IntType(1), self.lanes), None)
        return [*super().start(), ir.Constant(bits, [-1 if self.greatest else 0] * self.lanes), unseen]

    def better(self, f: Frame, new: Value, old: Value) -> Value:
        return f.select(f.fcmp_ordered(">" if self.greatest else "<", new, old), new, old)

    def signs(self, f: Frame, a: Value, b: Value) -> Value:
        return f.and_(a, b) if self.greatest else f.or_(a, b)

    def add(
        self, f: Frame, carried: Sequence[Sequence[Value]], terms: Sequence[Value]
    ) -> list[list[Value]]:
        """Add the terms. The first of two neighbouring accumulators carries the signs and NaNs of both: one
        comparison."""
        result: list[list[Value]] = []
        for u, (part, term) in enumerate(zip(carried, terms, strict=True)):
            best, signs, strange = part
            best = self.better(f, term, best)
            if u % 2 == 0:
                near = terms[u + 1] if u + 1 < len(terms) else term
                pair = self.signs(f, *(f.bitcast(each, signs.type) for each in (term, near)))
                signs = self.signs(f, signs, pair)
                strange = f.or_(strange, f.fcmp_unordered("uno", term, near))
            result.append([best, signs, strange])
        return result

    def merge(self, f: Frame, a: Sequence[Value], b: Sequence[Value]) -> list[Value]:
        return [self.better(f, a[0], b[0]), self.signs(f, a[1], b[1]), f.or_(a[2], b[2])]

    def across(self, f: Frame, carried: Sequence[Value]) -> Value:
        best, signs, seen = carried
        lanes = ir.IntType(self.lanes)
        strange: Value = f.icmp_unsigned("!=", f.bitcast(seen, lanes), ir.Constant(lanes, 0))
        half = self.lanes // 2
        while half:
            best = self.better(f, *(_lanes_from(f, best, at, half) for at in (0, half)))
            signs = self.signs(f, *(_lanes_from(f, signs, at, half) for at in (0, half)))
            half //= 2
        arithmetic = Arithmetic(f, best.type)
        zero = arithmetic.with_sign(0.0, f.bitcast(signs, best.type))
        best = f.select(arithmetic.compare("==", best, 0.0), zero, best)
        return f.select(strange, arithmetic.number(float("nan")), best)


def gathering(found: Reduction, lanes: int) -> Gathering:
    extreme = lanes > 1 and found.op in ("arith.maximumf", "arith.minimumf")
    return (ExtremeGathering if extreme else Gathering)(found, lanes)


def _lanes_from(f: Frame, vector: Value, start: int, count: int) -> Value:
    """`count` lanes of `vector`, a scalar for one."""
    if count == 1:
        return f.extract_element(vector, ir.Constant(I32, start))
    undefined = ir.Constant(vector.type, ir.Undefined)
    pick = ir.Constant(ir.VectorType(I32, count), list(range(start, start + count)))
    return f.shuffle_vector(vector, undefined, pick)
