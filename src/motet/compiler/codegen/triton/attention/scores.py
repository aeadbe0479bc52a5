"""Writes the operations between the two products of an attention: scales, masks, and other work on scores.

For tiles in which every query sees every key by position, positional masks are omitted, and operations on masks are
simplified.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from motet.compiler.codegen.gpu.accesses import source_of
from motet.compiler.codegen.triton.text.scalars import constant, expression
from motet.compiler.codegen.triton.text.writer import Coordinate, Writer
from motet.compiler.ir.affine import Affine
from motet.compiler.kernels.attention.description import Attention, Term


@dataclass
class Scores:
    """A tile of scores, computed from the tile of products named `text`. Without `careful`, all queries of the tile see
    all of its keys by position."""

    w: Writer
    attention: Attention
    at: Mapping[int, Coordinate]
    product: str
    careful: bool

    def __post_init__(self) -> None:
        self.made: dict[int, str] = {}

    def text(self) -> str:
        score = self._of(self.attention.score)
        return score if score == self.product else self.w.spread(score, "f32")

    def _of(self, number_: int) -> str:
        if number_ not in self.made:
            self.made[number_] = self._made(number_)
        return self.made[number_]

    def _made(self, number_: int) -> str:
        a, w = self.attention, self.w
        term = a.terms[number_]
        if term.op == "product":
            return self.product
        if term.op == "load" and term.access is not None:
            return w.read(source_of(a.kernel, term.access, a.sizes), self.at, other="0")
        if term.op == "index" and term.place is not None:
            return w.define("x", w.index(w.affine(term.place, self.at)))
        if term.op == "inside" and term.place is not None:
            return self._inside(term.place)
        if (simpler := self._simpler(term)) is not None:
            return simpler
        if term.scalar is None:
            raise ValueError(f"a term {term.op} without an operation")
        if term.op == "arith.constant":
            return constant(term.scalar.value, term.scalar.dtype)
        dtypes = [self._dtype(operand) for operand in term.operands]
        return w.define("x", expression(term.scalar, [self._of(operand) for operand in term.operands], dtypes))

    def _simpler(self, term: Term) -> str | None:
        """The simplified form of a mask that hides nothing in this tile, or of a select by one."""
        if term.op == "arith.select":
            condition, yes, _ = term.operands
            if self._holds(condition):
                return self._of(yes)
        if term.op == "arith.addf":
            for mask, other in (term.operands, term.operands[::-1]):
                inner = self.attention.terms[mask]
                if inner.op == "arith.select" and self._holds(inner.operands[0]) and self._zero(inner.operands[1]):
                    return self._of(other)
        if term.op == "arith.andi":
            for known, other in (term.operands, term.operands[::-1]):
                if self._holds(known):
                    return self._of(other)
        return None

    def _holds(self, number_: int) -> bool:
        """Whether a condition is true for the whole tile."""
        a = self.attention
        term = a.terms[number_]
        if self.careful or a.causal is None or term.op != "inside" or term.place is None or a.row is None:
            return False
        return dict(term.place.terms) == {a.row: 1, a.key: -1} and term.place.constant >= a.causal.offset

    def _zero(self, number_: int) -> bool:
        term = self.attention.terms[number_]
        return term.op == "arith.constant" and term.scalar is not None and not term.scalar.value

    def _inside(self, place: Affine) -> str:
        """Whether `place` is at least 0, as a comparison of its positive and negative terms."""
        w = self.w
        above = Affine(tuple((d, c) for d, c in place.terms if c > 0), place.constant)
        below = Affine(tuple((d, -c) for d, c in place.terms if c < 0))
        return w.define("x", f"(({w.affine(above, self.at).text}) >= ({w.affine(below, self.at).text}))")

    def _dtype(self, number_: int) -> str:
        a = self.attention
        term = a.terms[number_]
        if term.scalar is not None:
            return term.scalar.dtype
        if term.access is not None:
            dtype = a.kernel.values[term.access.value].dtype
            return "f32" if dtype in ("f16", "bf16") else dtype
        return {"index": "i64", "inside": "i1"}.get(term.op, "f32")
