"""Expressions have the value that Python's integers give them, within bounds."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motet.artifact.expressions import apply, evaluate, evaluate_all, is_increasing, show
from motet.artifact.schema import Expr
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


extents = st.sampled_from(["a", "b", ["*", "c", "d"], ["max", ["-", "d", 1], 0]])
broadcasts = st.recursive(extents, lambda inner: st.tuples(st.just("broadcast"), inner, inner), max_leaves=12)


def built(tree) -> Expr:
    """The expression that the front ends write for a broadcast of two extents."""
    if not isinstance(tree, tuple):
        return tree
    left, right = built(tree[1]), built(tree[2])
    return apply("*", apply("max", left, right), apply("min", apply("min", left, right), 1))


def broadcast_extent(tree, symbols: dict[str, int]) -> int:
    if not isinstance(tree, tuple):
        return evaluate(tree, symbols)
    left, right = (broadcast_extent(side, symbols) for side in tree[1:])
    return max(left, right) if min(left, right) else 0


@given(broadcasts, st.lists(st.integers(0, 6), min_size=4, max_size=4))
def test_extents_of_broadcasts_of_broadcasts_name_each_extent_once(tree, numbers: list[int]):
    symbols = dict(zip("abcd", numbers, strict=True))
    assert evaluate(built(tree), symbols) == broadcast_extent(tree, symbols)
    assert len(show(built(tree))) < 140


@given(trees, st.integers(1, 40), st.integers(1, 40))
def test_folding_does_not_change_values(tree, n: int, m: int):
    def folded(tree) -> Expr:
        return apply(tree[0], folded(tree[1]), folded(tree[2])) if isinstance(tree, list) else tree

    try:
        expected = evaluate(tree, {"n": n, "m": m})
    except CallError:
        return
    assert evaluate(folded(tree), {"n": n, "m": m}) == expected


@given(trees)
def test_an_increasing_expression_has_its_bounds_at_those_of_its_symbols(expression: Expr) -> None:
    if is_increasing(expression):
        values = [evaluate(expression, {"n": n, "m": m}) for n in range(5) for m in range(2, 6)]
        assert (values[0], values[-1]) == (min(values), max(values))


@pytest.mark.parametrize("expression", [["-", 8, "n"], ["//", 8, "n"], ["*", ["-", "n", 3], "m"]])
def test_an_expression_that_may_decrease_is_not_increasing(expression: Expr) -> None:
    assert not is_increasing(expression)
    assert is_increasing(["*", ["max", "n", "m"], ["min", ["min", "n", "m"], 1]])  # a broadcast
