"""Dimensions that go together, against a brute-force search over numbers put in for the symbols."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from motet.compiler.passes.normalise.reassociation import Monomial, match_groups

B, L = Monomial(1, (("b", 1),)), Monomial(1, (("l", 1),))
VALUES = {"b": 10007, "l": 10009}  # primes: equal products are equal monomials


def number(monomial: Monomial) -> int:
    return monomial.number * math.prod(VALUES[factor] ** power for factor, power in monomial.factors)


def test_merging_and_splitting() -> None:
    assert match_groups([B, L, Monomial(16)], [B.times(L), Monomial(16)]) == [([0, 1], [0]), ([2], [1])]
    assert match_groups([L, B, Monomial(16)], [L, B.times(Monomial(2)), Monomial(8)]) == [([0], [0]), ([1, 2], [1, 2])]
    assert match_groups([B, Monomial(1)], [B]) == [([0, 1], [0])]
    assert match_groups([], [Monomial(1)]) == [([], [0])]
    assert match_groups([B, L], [L, B]) == [([0, 1], [0, 1])]


factors = st.lists(
    st.sampled_from([B, L, Monomial(2), Monomial(3), Monomial(4), Monomial(1)]), min_size=1, max_size=6
)


@given(factors, st.data())
def test_every_group_has_equal_products(parts: list[Monomial], data: st.DataObject) -> None:
    """Both shapes are made of one list of factors, so every way to cut it gives a pair that belongs together."""

    def cut() -> list[Monomial]:
        marks = data.draw(st.lists(st.booleans(), min_size=len(parts) - 1, max_size=len(parts) - 1))
        shape = [parts[0]]
        for part, mark in zip(parts[1:], marks, strict=True):
            if mark:
                shape.append(part)
            else:
                shape[-1] = shape[-1].times(part)
        return shape

    source, target = cut(), cut()
    groups = match_groups(source, target)
    assert [axis for axes, _ in groups for axis in axes] == list(range(len(source)))
    assert [axis for _, axes in groups for axis in axes] == list(range(len(target)))
    for before, after in groups:
        assert math.prod(number(source[axis]) for axis in before) == math.prod(number(target[axis]) for axis in after)
        assert before and after
