"""Reductions as text: how partial results are combined, and the number that they begin with."""

from __future__ import annotations

from motet.compiler.codegen.triton.text.scalars import BOOLEAN, carried_type, extreme, number, rounded, unsigned
from motet.compiler.kernels.reduction import Reduction

_SIGNS = {"addf": "+", "mulf": "*", "addi": "+", "muli": "*", "andi": "&", "ori": "|", "xori": "^"}


def beginning(reduction: Reduction) -> str:
    """The number to begin with, as a literal."""
    return number(reduction.identity, reduction.dtype)


def masked(reduction: Reduction, mask: str, x: str) -> str:
    """`x`, carried, with the number to begin with in points outside `mask`."""
    chosen = f"tl.where({mask}, {x}, {beginning(reduction)})"
    return f"{chosen}.to({carried_type(reduction.dtype)})" if reduction.dtype == "i1" else chosen


def combine(reduction: Reduction, x: str, y: str) -> str:
    """Two partial results, carried."""
    name, dtype = reduction.op.partition(".")[2], reduction.dtype
    kind = carried_type(reduction.accumulator)
    if dtype == "i1":
        name = BOOLEAN.get(name, name)
    if name in _SIGNS:
        return f"({x} {_SIGNS[name]} {y}).to({kind})"
    if name.endswith("f"):
        return extreme(name, x, y)
    function = "tl.maximum" if name.startswith("max") else "tl.minimum"
    if name.endswith("ui"):
        return f"{function}({unsigned(x, dtype)}, {unsigned(y, dtype)}).to({kind}, bitcast=True)"
    return f"{function}({x}, {y})"


def narrowed(reduction: Reduction, total: str) -> str:
    """The accumulated result, as its dtype is carried."""
    return rounded(total, reduction.dtype)


def helper_of(reduction: Reduction) -> tuple[str, str]:
    """The name and the text of a function of two partial results, for `tl.reduce`."""
    name = f"combine_{reduction.op.partition('.')[2]}_{reduction.accumulator}"
    return name, f"def {name}(x, y):\n    return {combine(reduction, 'x', 'y')}"
