"""Expressions have the value that Python's integers give them, within bounds."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.artifact.expressions import evaluate, evaluate_all, show
from motet.errors import CallError

PYTHON = {
    "+": "({} + {})", "-": "({} - {})", "*": "({} * {})", "//": "({} // {})", "ceildiv": "ceil(Fraction({}, {}))",
    "max": "max({}, {})", "min": "min({}, {})",
}  # fmt: skip
trees = st.recursive(
    st.integers(0, 50) | st.sampled_from(["n", "m"]),
    lambda inner: st.tuples(st.sampled_from(list(PYTHON)), inner, inner).map(list),
    max_leaves=8,
)


def as_python(tree) -> str:
    return PYTHON[tree[0]].format(as_python(tree[1]), as_python(tree[2])) if isinstance(tree, list) else str(tree)


@given(trees, st.integers(0, 40), st.integers(0, 40))
def test_values_are_those_of_python(tree, n: int, m: int):
    from fractions import Fraction

    names = {"n": n, "m": m, "ceil": math.ceil, "Fraction": Fraction, "max": max, "min": min}
    try:
        expected = eval(as_python(tree), names)
    except ZeroDivisionError:
        with pytest.raises(CallError, match="division by zero for n = "):
            evaluate(tree, {"n": n, "m": m})
        return
    assert evaluate(tree, {"n": n, "m": m}) == expected


def test_values_beyond_sixty_two_bits_are_errors():
    with pytest.raises(CallError, match=r"n \* n: too large for n = 4294967296"):
        evaluate(["*", "n", "n"], {"n": 1 << 32})
    assert evaluate_all([["*", "n", 2], 3, "n"], {"n": 1 << 32}) == (1 << 33, 3, 1 << 32)


def test_expressions_are_shown_as_one_reads_them():
    assert show(["*", ["+", "n", 1], ["ceildiv", "m", 4]]) == "(n + 1) * ceildiv(m, 4)"
    assert show(["max", ["-", "n", 1], 0]) == "max(n - 1, 0)"
