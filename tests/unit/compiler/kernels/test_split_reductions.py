"""Long reductions of any extent become pieces that cover each element once; 16-bit sums are rounded once."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.compiler.codegen.cpu.harness import build
from tests.unit.compiler.codegen.cpu.kernels import at, kernel, op, stage, value

from motet.compiler.codegen.cpu.rows import loops
from motet.compiler.kernels.kernel import Kernel
from motet.compiler.kernels.split_reductions import split_reductions

EXTENTS = (65_537, 99_991, 100_003, 131_071, 131_072, 131_073, 4 * 65_537)


def reduced(rows: int, columns: int, name: str, dtype: str, start: float) -> Kernel:
    return kernel(
        [value((rows, columns), dtype), value((rows,), dtype, role="result")],
        stage((rows, columns), "pr", [at(0, 2, 0, 1)], [at(1, 2, 0)], [op(name, 0, 1, dtype=dtype)], inits=[start]),
    )


@pytest.mark.parametrize("columns", EXTENTS)
@pytest.mark.parametrize("most", [4, 63, 64, 200])
def test_pieces_cover_every_element_once(columns: int, most: int) -> None:
    split = split_reductions(reduced(2, columns, "addf", "f32", 0.0), most_pieces=most)
    seen = np.zeros(columns, np.int64)
    for part in split.stages[:-1]:
        (entry,) = part.inputs[0].map[1:]
        where = [np.arange(size) for size in part.sizes]
        places = sum(c * where[d].reshape([-1 if k == d else 1 for k in range(len(where))]) for d, c in entry.terms)
        np.add.at(seen, np.ravel(places + entry.constant), 1)
    assert np.array_equal(seen, np.ones(columns))
    assert max(most // 2, 4) <= split.stages[-1].sizes[0] <= most


@pytest.mark.parametrize("columns", EXTENTS)
@pytest.mark.parametrize("name, start", [("addf", 0.5), ("maximumf", -np.inf), ("minimumf", np.inf)])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_reductions_of_any_extent(columns: int, name: str, start: float, dtype: str) -> None:
    x = np.random.default_rng(columns).standard_normal((3, columns)).astype({"f32": "f4", "f64": "f8"}[dtype])
    x[1, -1], x[2, columns // 2] = np.inf, np.nan
    (got,) = build(loops.CLASS.generate, reduced(3, columns, name, dtype, start))(x, split=3)
    wide = x.astype("f8")
    expected = {"addf": wide.sum(1) + 0.5, "maximumf": wide.max(1), "minimumf": wide.min(1)}[name]
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("columns", (100_003, 131_072))
def test_sums_of_halves_are_rounded_once(columns: int) -> None:
    x = np.random.default_rng(columns).standard_normal((1, columns)).astype("f2")
    (got,) = build(loops.CLASS.generate, reduced(1, columns, "addf", "f16", 0.0))(x, split=3)
    expected = x.astype("f8").sum(1)
    assert abs(float(got[0]) - expected[0]) <= abs(expected[0]) * 2.0**-10 + 1e-3
