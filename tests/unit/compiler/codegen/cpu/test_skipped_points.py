"""argmax and the like along rows, of which blocks without changes are skipped, against a loop in Python."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.unit.compiler.codegen.cpu.harness import DTYPES, build
from tests.unit.compiler.codegen.cpu.kernels import at, kernel, op, stage, value

from motet.compiler.codegen.cpu.rows import loops
from motet.compiler.kernels.kernel import Kernel

RNG = np.random.default_rng(5)
NAN, INF = math.nan, math.inf
BETTER = {
    "ogt": lambda x, best: x > best,
    "oge": lambda x, best: x >= best,
    "ugt": lambda x, best: not x <= best,
    "olt": lambda x, best: x < best,
    "sgt": lambda x, best: x > best,
    "sle": lambda x, best: x <= best,
}


def places(shape: tuple[int, int], dtype: str, predicate: str, start: float, swapped: bool) -> Kernel:
    """Places of the best elements of rows; `swapped` writes the selections with their values exchanged."""
    compare = "cmpf" if dtype.startswith("f") else "cmpi"
    test = [op(compare, 0, 1, dtype="i1", predicate=predicate)]
    choices = [(0, 1), (4, 2)]
    if swapped:
        test += [op("constant", dtype="i1", value=1), op("xori", 5, 6, dtype="i1")]
        choices = [(1, 0), (2, 4)]
    flag = 4 + len(test)
    return kernel(
        [value(shape, dtype), value(shape[:1], "i64", "result"), value(shape[:1], dtype, "result")],
        stage(
            shape, "pr", [at(0, 2, 0, 1)], [at(2, 2, 0), at(1, 2, 0)],
            [
                op("linalg.index", dtype="index", value=1), op("index_cast", 3, dtype="i64"), *test,
                op("select", flag, *choices[0], dtype=dtype), op("select", flag, *choices[1], dtype="i64"),
            ],
            yields=(flag + 1, flag + 2), inits=[start, 0],
        ),
    )  # fmt: skip


def one_by_one(row: np.ndarray, predicate: str, start: float) -> tuple[int, float]:
    best, place = start, 0
    for j, x in enumerate(row.tolist()):
        if BETTER[predicate](x, best):
            best, place = x, j
    return place, best


@pytest.mark.parametrize("columns", [1, 17, 64, 127, 300, 1031])
@pytest.mark.parametrize("predicate", ["ogt", "oge", "ugt", "olt"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_places_of_floats(dtype: str, predicate: str, columns: int) -> None:
    x = RNG.integers(-40, 40, (6, columns)).astype(DTYPES[dtype])  # with equal elements
    x[1] = np.sort(x[1])
    x[2] = -INF
    x[3, columns // 2] = NAN
    x[4] = NAN
    x[5, ::3] = -0.0
    start = INF if predicate == "olt" else -INF
    found = build(loops.CLASS.generate, places(x.shape, dtype, predicate, start, columns % 2 == 0))
    place, best = found(x, split=2)
    expected = [one_by_one(row, predicate, start) for row in x]
    np.testing.assert_array_equal(place, [each[0] for each in expected])
    np.testing.assert_array_equal(best, np.array([each[1] for each in expected], DTYPES[dtype]))


@pytest.mark.parametrize("predicate, start", [("sgt", -128), ("sle", 127)])
@pytest.mark.parametrize("dtype", ["i8", "i32"])
def test_places_of_integers(dtype: str, predicate: str, start: int) -> None:
    x = RNG.integers(-128, 128, (5, 777)).astype(DTYPES[dtype])
    place, best = build(loops.CLASS.generate, places(x.shape, dtype, predicate, start, False))(x)
    expected = [one_by_one(row, predicate, start) for row in x]
    assert list(zip(place.tolist(), best.tolist(), strict=True)) == expected
