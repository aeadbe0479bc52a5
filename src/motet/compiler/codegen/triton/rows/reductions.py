"""Reductions as text: combining partial results, and initial values."""

from __future__ import annotations

from motet.compiler.codegen.triton.text.scalars import BOOLEAN, carried_type, extreme, number, rounded, unsigned
from motet.compiler.kernels.reduction import Reduction

_SIGNS = {"addf": "+", "mulf": "*", "addi": "+", "muli": "*", "andi": "&", "ori": "|", "xori": "^"}


def beginning(reduction: Reduction) -> str:
    """The initial value, as a literal."""
    return number(reduction.identity, reduction.dtype)


def masked(reduction: Reduction, mask: str, x: str) -> str:
    """`x`, in its compute type, with the initial value at points outside `mask`."""
    chosen = f"tl.where({mask}, {x}, {beginning(reduction)})"
    return f"{chosen}.to({carried_type(reduction.dtype)})" if reduction.dtype == "i1" else chosen


def combine(reduction: Reduction, x: str, y: str) -> str:
    """Combine two partial results in compute types."""
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
    """The accumulated result, converted to the compute type of the result's dtype."""
    return rounded(total, reduction.dtype)


def helper_of(reduction: Reduction) -> tuple[str, str]:
    """The name and text of a function that combines two partial results, for `tl.reduce`."""
    name = f"combine_{reduction.op.partition('.')[2]}_{reduction.accumulator}"
    return name, f"def {name}(x, y):\n    return {combine(reduction, 'x', 'y')}"
