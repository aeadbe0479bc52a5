"""Small products in full precision: few results for each program, no loop along the sum."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.compiler.codegen.triton.building import Generated, check, generate, random
from tests.unit.compiler.codegen.triton.texts import product


def first_label(made: Generated) -> str:
    (program,) = made.programs.values()
    return program.forms[0].label


@pytest.mark.parametrize(("m", "n", "k"), [(64, 128, 128), (17, 96, 31), (8, 8, 8), (33, 65, 100), (16, 512, 128)])
@pytest.mark.parametrize("right", ["k, j", "j, k"])
def test_small_products_are_spread_over_all_processors(m: int, n: int, k: int, right: str) -> None:
    text = product(m, n, k, "f32", "f32", right=right)
    y = random(k, n, seed=1)
    made = check(text, [random(m, k), np.ascontiguousarray(y.T) if right == "j, k" else y, random(n, seed=2)])
    assert first_label(made).startswith("spread")
    (program,) = made.programs.values()
    tasks = program.forms[0].tasks
    assert isinstance(tasks, int) and tasks <= 132
    assert "for k in" not in program.forms[0].source and "tl.dot" not in program.forms[0].source


def test_factors_of_64_bits() -> None:
    text = product(24, 40, 48, "f64", "f64")
    inputs = [random(*shape, seed=i).astype("f8") for i, shape in enumerate(((24, 48), (48, 40), (40,)))]
    made = check(text, inputs, 1e-12)
    assert first_label(made).startswith("spread")


def test_what_is_not_there_counts_as_nothing() -> None:
    """Beyond the 20 products of each result lie, as padding up to 32, numbers of the next row and column."""
    a, b, bias = random(9, 20), random(20, 11, seed=1), random(11, seed=2)
    a[3, 4], b[7, 2] = np.inf, np.nan
    made = check(product(9, 11, 20, "f32", "f32"), [a, b, bias])
    assert first_label(made).startswith("spread")


@pytest.mark.parametrize(("m", "n", "k"), [(512, 512, 128), (64, 128, 1024), (128, 4096, 64)])
def test_larger_products_are_not(m: int, n: int, k: int) -> None:
    made = generate(product(m, n, k, "f32", "f32"))
    assert all(not form.label.startswith("spread") for program in made.programs.values() for form in program.forms)
