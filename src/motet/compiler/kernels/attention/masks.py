"""Masks by position that hide nothing: where a query sees all keys of a vector or tile, scores need none of them."""

from __future__ import annotations

from motet.compiler.kernels.attention.description import Attention


def without_mask(a: Attention, number: int) -> int | None:
    """The term that term `number` equals where its query sees all keys by position: of a select by the mask, of a sum
    with it, or of its conjunction with a condition. None for other terms."""
    term = a.terms[number]
    if term.op == "arith.select" and _holds(a, term.operands[0]):
        return term.operands[1]
    if term.op not in ("arith.addf", "arith.andi"):
        return None
    for mask, other in (term.operands, term.operands[::-1]):
        if _holds(a, mask) if term.op == "arith.andi" else _adds_nothing(a, mask):
            return other
    return None


def _adds_nothing(a: Attention, number: int) -> bool:
    """Whether a term is a mask that adds zero to what it shows."""
    term = a.terms[number]
    if term.op != "arith.select" or not _holds(a, term.operands[0]):
        return False
    shown = a.terms[term.operands[1]]
    return shown.op == "arith.constant" and shown.scalar is not None and not shown.scalar.value


def _holds(a: Attention, number: int) -> bool:
    """Whether a condition is that the key is one that the query sees by position."""
    term = a.terms[number]
    if a.causal is None or term.op != "inside" or term.place is None or a.row is None:
        return False
    return dict(term.place.terms) == {a.row: 1, a.key: -1} and term.place.constant >= a.causal.offset
