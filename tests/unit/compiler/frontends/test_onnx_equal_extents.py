"""Which extents are taken to be equal for all values of their symbols."""

from __future__ import annotations

import pytest

from motet.artifact.schema import Expr
from motet.compiler.frontends.onnx.stretches import always_equal


@pytest.mark.parametrize("left, right", [
    ("n", "n"), (["+", "n", 1], ["+", 1, "n"]), (["//", ["*", "n", 6], 3], ["*", 2, "n"]),
    (["+", ["//", ["-", ["+", "n", 2], 3], 2], 1], ["//", ["+", "n", 1], 2]), (["max", "n", 1], "n"),
    (["min", "n", ["+", "n", "m"]], "n"),
])
def test_equal_extents_are_found(left: Expr, right: Expr) -> None:
    assert always_equal(left, right) and always_equal(right, left)


@pytest.mark.parametrize("left, right", [
    ("n", "m"), ("n", 1), (["min", "n", 5000], "n"), (["max", "n", 10_000_000], 10_000_000), (["//", "n", 70_000], 0),
    (["min", "n", ["*", "m", 4096]], "n"), (["max", ["//", "n", 100_000], 1], 1), (["//", 8, ["-", "n", "n"]], 3),
])
def test_different_extents_are_not_taken_for_equal(left: Expr, right: Expr) -> None:
    assert not always_equal(left, right) and not always_equal(right, left)
