"""Sizes as expressions keep their value however they are folded."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from motet.artifact.expressions import apply, evaluate

OPERATORS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "ceildiv": lambda a, b: -(-a // b),
    "max": max,
    "min": min,
}

trees = st.recursive(
    st.one_of(st.sampled_from(["a", "b", "c"]), st.integers(0, 12)),
    lambda inner: st.tuples(st.sampled_from(sorted(OPERATORS)), inner, inner),
    max_leaves=9,
)


def folded(tree: Any) -> Any:
    return apply(tree[0], folded(tree[1]), folded(tree[2])) if isinstance(tree, tuple) else tree


def value(tree: Any, symbols: dict[str, int]) -> int:
    if isinstance(tree, tuple):
        return OPERATORS[tree[0]](value(tree[1], symbols), value(tree[2], symbols))
    return symbols[tree] if isinstance(tree, str) else tree


@given(trees, st.tuples(*[st.integers(1, 50)] * 3))
def test_folding_changes_no_value(tree: Any, numbers: tuple[int, int, int]) -> None:
    symbols = dict(zip("abc", numbers, strict=True))
    try:
        expected = value(tree, symbols)
    except ZeroDivisionError:
        assume(False)
    try:
        found = folded(tree)
    except ZeroDivisionError:
        assume(False)
    assert evaluate(found, symbols) == expected


def test_factors_cancel() -> None:
    batch_by_length = apply("*", apply("*", "b", "l"), 24)
    assert apply("//", batch_by_length, apply("*", "b", 24)) == "l"
    assert apply("//", apply("*", "b", 8), 4) == ["*", "b", 2]
    assert apply("//", apply("//", "b", 4), 2) == ["//", "b", 8]
    assert apply("//", apply("*", "b", 3), 2) == ["//", ["*", "b", 3], 2]
