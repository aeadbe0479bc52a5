"""Emits the operations between the two products of an attention: scales, masks, biases and other work on scores.

Where a query sees all keys of a vector by position, positional masks are omitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from llvmlite import ir

from motet.compiler.codegen.cpu.attention.nest import AttentionNest
from motet.compiler.codegen.cpu.emit.builder import I32, I64, Index
from motet.compiler.codegen.cpu.emit.compute_types import from_storage
from motet.compiler.codegen.cpu.emit.compute_types import widen as spread
from motet.compiler.codegen.cpu.emit.operations import emit_operation
from motet.compiler.codegen.cpu.gemm.microkernel import PartialVector, TileFrame, read_vector, widen
from motet.compiler.ir.affine import Affine
from motet.compiler.kernels.attention.masks import without_mask
from motet.compiler.kernels.kernel import FLOATS
from motet.compiler.kernels.strides import StridedAccess

_FAR = 1 << 30  # positions are compared as i32, and limited to it


@dataclass
class ScoreVector:
    """Scores of one query and `lanes` keys at `at`, from their products. Without `careful`, the query sees all of these
    keys by position."""

    f: TileFrame
    nest: AttentionNest
    at: Sequence[Index]
    lanes: PartialVector
    product: ir.Value
    careful: bool
    made: dict[int, ir.Value] = field(default_factory=dict[int, ir.Value])

    def value(self) -> ir.Value:
        return spread(self.f, self._of(self.nest.attention.score), self.lanes.lanes)

    def _of(self, number: int) -> ir.Value:
        if number not in self.made:
            self.made[number] = self._made(number)
        return self.made[number]

    def _made(self, number: int) -> ir.Value:
        term = self.nest.attention.terms[number]
        if term.op == "product":
            return self.product
        if term.op == "load":
            return self._load(self.nest.loads[number])
        if term.op == "index" and term.place is not None:
            return self._index(term.place)
        if term.op == "inside" and term.place is not None:
            return self._inside(term.place)
        if not self.careful and (same := without_mask(self.nest.attention, number)) is not None:
            return self._of(same)
        assert term.scalar is not None
        terms = self.nest.attention.terms
        constants = [
            scalar.value if (scalar := terms[each].scalar) is not None and terms[each].op == "arith.constant" else None
            for each in term.operands
        ]
        return emit_operation(self.f, term.scalar, [self._of(each) for each in term.operands], constants)

    def _load(self, place: StridedAccess) -> ir.Value:
        f = self.f
        step = f.extent(place.strides[self.nest.attention.key])
        single = isinstance(step, int) and step == 0
        raw = read_vector(f, f.address(place, self.at), place.dtype, step, PartialVector(1) if single else self.lanes)
        if place.dtype in FLOATS:
            return widen(f, raw, place.dtype, (), place.dtype if place.dtype == "f64" else "f32")
        return from_storage(f, raw, place.dtype)

    def _place(self, place: Affine) -> Index:
        """`place` at the first key."""
        result: Index = place.constant
        for dim, coefficient in place.terms:
            result = self.f.iadd(result, self.f.imul(coefficient, self.at[dim]))
        return result

    def _index(self, place: Affine) -> ir.Value:
        f, count = self.f, self.lanes.lanes
        first, step = f.index(self._place(place)), place.coefficient(self.nest.attention.key)
        if not step or count == 1:
            return first
        steps = ir.Constant(ir.VectorType(I64, count), [lane * step for lane in range(count)])
        return f.add(f.splat(first, count), steps)

    def _inside(self, place: Affine) -> ir.Value:
        """Whether `place` is at least 0."""
        f, count = self.f, self.lanes.lanes
        first, step = self._place(place), place.coefficient(self.nest.attention.key)
        if not step or count == 1:
            return f.icmp_signed(">=", f.index(first), f.index(0))
        limited = f.trunc(f.index(f.imax(f.imin(first, _FAR), -_FAR)), I32)
        steps = ir.Constant(ir.VectorType(I32, count), [-lane * step for lane in range(count)])
        return f.icmp_signed(">=", f.splat(limited, count), steps)
