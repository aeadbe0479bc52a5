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
from motet.compiler.kernels.attention.description import Attention
from motet.compiler.kernels.attention.masks import without_mask


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
        if not self.careful and (same := without_mask(a, number_)) is not None:
            return self._of(same)
        if term.scalar is None:
            raise ValueError(f"a term {term.op} without an operation")
        if term.op == "arith.constant":
            return constant(term.scalar.value, term.scalar.dtype)
        dtypes = [self._dtype(operand) for operand in term.operands]
        return w.define("x", expression(term.scalar, [self._of(operand) for operand in term.operands], dtypes))

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
