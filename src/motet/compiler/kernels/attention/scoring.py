"""Finds the scale of attention scores, and masks that follow from positions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from motet.compiler.ir.affine import Affine
from motet.compiler.kernels.attention.description import HIDING, LOWEST, Causal, Term
from motet.compiler.kernels.kernel import Scalar


@dataclass
class Scorer:
    """Analyses the terms of a score for a scale and a positional mask."""

    terms: list[Term]
    known: dict[Term, int]
    dtype: str = "f32"  # in which scores are computed

    def constant(self, number: int) -> float | None:
        term = self.terms[number]
        return float(term.scalar.value or 0) if term.op == "arith.constant" and term.scalar is not None else None

    def _new(self, term: Term) -> int:
        if term not in self.known:
            self.known[term] = len(self.terms)
            self.terms.append(term)
        return self.known[term]

    # -- scales --

    def without_scale(self, number: int) -> tuple[int, float]:
        """`number` as another term times a positive factor."""
        term = self.terms[number]
        if term.op in ("arith.mulf", "arith.divf"):
            for inner, factor in (term.operands, term.operands[::-1]):
                known = self.constant(factor)
                if known is not None and 0 < known < math.inf:
                    rest, scale = self.without_scale(inner)
                    return rest, scale * known if term.op == "arith.mulf" else scale / known
                if term.op == "arith.divf":
                    break
        if term.op == "arith.select":
            condition, yes, no = term.operands
            for kept, hidden in ((yes, no), (no, yes)):
                value = self.constant(hidden)
                if value is None:
                    continue
                rest, scale = self.without_scale(kept)
                if scale == 1:
                    continue
                constant = self._scaled(value, scale)
                pair = (rest, constant) if kept == yes else (constant, rest)
                return self._new(replace(term, operands=(condition, *pair))), scale
        if term.op == "arith.addf":
            for inner, mask in (term.operands, term.operands[::-1]):
                added = self.terms[mask]
                values = [self.constant(operand) for operand in added.operands[1:]]
                if added.op != "arith.select" or None in values:
                    continue
                rest, scale = self.without_scale(inner)
                numbers = tuple(self._scaled(value or 0.0, scale) for value in values)
                select = self._new(replace(added, operands=(added.operands[0], *numbers)))
                return self._new(replace(term, operands=(rest, select))), scale
        return number, 1.0

    def _scaled(self, value: float, scale: float) -> int:
        return self._number(value if value == -math.inf else max(value, LOWEST) / scale)

    def _number(self, value: float) -> int:
        return self._new(Term("arith.constant", (), Scalar("arith.constant", (), self.dtype, value)))

    # -- masks --

    def causal(self, number: int, key: int, rows: Sequence[int]) -> tuple[int, Causal] | None:
        """The score without its causal mask, and the mask; None if it has none."""
        term = self.terms[number]
        if term.op == "arith.select":
            condition, yes, no = term.operands
            for hidden, holds in ((no, True), (yes, False)):
                value = self.constant(hidden)
                seen = self._seen(condition, holds, key, rows) if value is not None and value <= HIDING else None
                if seen is not None and value is not None:
                    return seen[0], Causal(seen[1], value == -math.inf or seen[1] >= 0)
            return self.causal(yes, key, rows) if self.constant(no) is not None else None
        if term.op == "arith.addf":
            for kept, mask in (term.operands, term.operands[::-1]):
                if self.terms[mask].op == "arith.select":
                    found = self._added(mask, key, rows)
                    if found is not None:
                        return found
                found = self.causal(kept, key, rows)
                if found is not None:
                    return found
        if term.op in ("arith.mulf", "arith.divf") and (self.constant(term.operands[1]) or 0) > 0:
            return self.causal(term.operands[0], key, rows)
        return None

    def _added(self, mask: int, key: int, rows: Sequence[int]) -> tuple[int, Causal] | None:
        """An added mask: 0 for visible keys, and a hiding value for the others."""
        condition, yes, no = self.terms[mask].operands
        for kept, hidden, holds in ((yes, no, True), (no, yes, False)):
            value = self.constant(hidden)
            if self.constant(kept) != 0 or value is None or value > HIDING:
                continue
            seen = self._seen(condition, holds, key, rows)
            if seen is not None:
                return seen[0], Causal(seen[1], value == -math.inf or seen[1] >= 0)
        return None

    def _seen(self, condition: int, holds: bool, key: int, rows: Sequence[int]) -> tuple[int, int] | None:
        """The dimension m and the number o such that `condition` is `holds` only if n <= m + o."""
        term = self.terms[condition]
        if term.op == ("arith.andi" if holds else "arith.ori"):
            found = [self._seen(operand, holds, key, rows) for operand in term.operands]
            return next((one for one in found if one is not None), None)
        if term.op == "arith.xori":
            for inner, other in (term.operands, term.operands[::-1]):
                if self.constant(other) in (1, -1):
                    return self._seen(inner, not holds, key, rows)
        if term.op != "inside" or term.place is None or not holds:
            return None
        moving = dict(term.place.terms)
        row = next((d for d in moving if d in rows), None)
        return (row, term.place.constant) if row is not None and moving == {row: 1, key: -1} else None

    def compared(self, number: int) -> int:
        """`number` with comparisons of positions as `inside` terms, and negations resolved."""
        term = self.terms[number]
        operands = tuple(self.compared(operand) for operand in term.operands)
        if term.op == "arith.xori":
            for inner, other in (operands, operands[::-1]):
                place = self.terms[inner].place
                if self.constant(other) in (1, -1) and self.terms[inner].op == "inside" and place is not None:
                    return self._outside(place)
        if (truth := self._truth(term, operands)) is not None:
            return truth
        if term.op == "arith.select":  # the hidden value comes last
            place = self.terms[operands[0]].place if self.terms[operands[0]].op == "inside" else None
            yes, no = (self.constant(operand) for operand in operands[1:])
            if place is not None and yes is not None and (no is None or yes < no):
                return self._new(replace(term, operands=(self._outside(place), operands[2], operands[1])))
        predicate = term.scalar.predicate if term.op == "arith.cmpi" and term.scalar is not None else ""
        if predicate in ("sle", "slt", "sge", "sgt"):
            left, right = (self._linear(operand) for operand in operands)
            if left is not None and right is not None:
                greater = left - right if predicate[1] == "g" else right - left
                return self._new(Term("inside", place=greater.plus(-int(predicate[2] == "t"))))
        return number if operands == term.operands else self._new(replace(term, operands=operands))

    def _truth(self, term: Term, operands: Sequence[int]) -> int | None:
        """The condition of a selection between true and false, or of a conjunction with true."""
        if term.scalar is None or term.scalar.dtype != "i1":
            return None
        values = [self.constant(operand) for operand in operands]
        if term.op == "arith.select" and None not in values[1:]:
            place = self.terms[operands[0]].place if self.terms[operands[0]].op == "inside" else None
            if values[1] and not values[2]:
                return operands[0]
            return self._outside(place) if values[2] and not values[1] and place is not None else None
        if term.op == "arith.select" and values[2] == 0:
            return self._new(replace(term, op="arith.andi", operands=(operands[0], operands[1])))
        if term.op == "arith.andi" and any(values):
            return next(other for other, value in zip(operands[::-1], values, strict=True) if value)
        return None

    def _outside(self, place: Affine) -> int:
        """Whether `place` is below 0."""
        return self._new(Term("inside", place=(place * -1).plus(-1)))

    def _linear(self, number: int) -> Affine | None:
        """A term as a linear expression of positions."""
        term = self.terms[number]
        if term.op == "index":
            return term.place
        if term.op in ("arith.index_cast", "arith.extsi", "arith.trunci"):
            return self._linear(term.operands[0])
        if term.op in ("arith.addi", "arith.subi"):
            left, right = (self._linear(operand) for operand in term.operands)
            if left is None or right is None:
                return None
            return left - right if term.op == "arith.subi" else left + right
        if term.op == "arith.constant" and term.scalar is not None:
            return Affine((), int(term.scalar.value or 0))
        return None
