"""Which extents are taken to be equal for all values of their symbols."""

from __future__ import annotations

import random

import pytest
from tests.seeds import examples

from motet.artifact.expressions import evaluate
from motet.artifact.schema import Expr
from motet.compiler.frontends.onnx.expanded_operands import always_equal


@pytest.mark.parametrize("left, right", [
    ("n", "n"), (["+", "n", 1], ["+", 1, "n"]), (["//", ["*", "n", 6], 3], ["*", 2, "n"]),
    (["+", ["//", ["-", ["+", "n", 2], 3], 2], 1], ["//", ["+", "n", 1], 2]), (["max", "n", 1], "n"),
    (["min", "n", ["+", "n", "m"]], "n"), (["+", ["max", "n", 1], "m"], ["+", "m", "n"]),
    (["*", "n", ["//", ["+", "m", 1], 2]], ["*", ["+", ["//", ["-", "m", 1], 2], 1], "n"]),
    (["min", ["//", "n", 3], ["//", "n", 2]], ["//", ["*", "n", 2], 6]),
    (["ceildiv", "n", 4], ["//", ["+", "n", 3], 4]),
])
def test_equal_extents_are_found(left: Expr, right: Expr) -> None:
    assert always_equal(left, right) and always_equal(right, left)


@pytest.mark.parametrize("left, right", [
    ("n", "m"), ("n", 1), (["min", "n", 5000], "n"), (["max", "n", 10_000_000], 10_000_000), (["//", "n", 70_000], 0),
    (["min", "n", ["*", "m", 4096]], "n"), (["max", ["//", "n", 7919], 1], ["+", ["//", "n", 7920], 1]),
    (["max", ["//", "n", 100_000], 1], 1), (["//", 8, ["-", "n", "n"]], 3),
])
def test_different_extents_are_not_taken_for_equal(left: Expr, right: Expr) -> None:
    assert not always_equal(left, right) and not always_equal(right, left)


def test_random_extents_of_one_symbol_are_decided() -> None:
    chance, equal = random.Random(0), 0
    for _ in range(examples(6000, 6)):
        left, right = drawn(chance, chance.randint(0, 3)), drawn(chance, chance.randint(0, 3))
        values = [(evaluate(left, {"n": n}), evaluate(right, {"n": n})) for n in range(1, 400)]
        assert always_equal(left, right) == all(one == other for one, other in values), (left, right)
        equal += left != right and always_equal(left, right)
    assert equal > 5


def drawn(chance: random.Random, depth: int) -> Expr:
    """Where such extents change, n is far below 400."""
    if depth == 0:
        return chance.choice(["n", "n", chance.randint(-3, 9)])
    kind = chance.choice(["+", "-", "*", "//", "ceildiv", "min", "max"])
    if kind in ("*", "//", "ceildiv"):
        return [kind, drawn(chance, depth - 1), chance.randint(1, 6)]
    return [kind, drawn(chance, depth - 1), drawn(chance, depth - 1)]
