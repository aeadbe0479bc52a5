"""Sines and cosines of one number share their series; constants of 64 bits leave vectors of f32 as long as they are."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.compiler.codegen.cpu.harness import build, native_target
from tests.unit.compiler.codegen.cpu.kernels import at, kernel, op, stage, value

from motet.compiler.codegen.cpu.rows import loops
from motet.compiler.kernels.kernel import Kernel


def waves(count: int, dtype: str, others: bool) -> Kernel:
    """sin(x) ** 2 - 3 cos(x); with `others`, the sine of another number stands between both."""
    between = [op("math.sin", 4, dtype=dtype)] if others else []
    cosine = 6 + len(between)
    last = op("addf", cosine + 2, 5, dtype=dtype) if others else op("addf", cosine + 2, 3, dtype=dtype)
    body = [
        op("constant", dtype="i64", value=2),
        op("math.sin", 0, dtype=dtype), op("math.fpowi", 3, 2, dtype=dtype), op("constant", dtype=dtype, value=-3.0),
        *between, op("math.cos", 0, dtype=dtype), op("mulf", cosine, 5, dtype=dtype),
        op("addf", cosine + 1, 4, dtype=dtype), last,
    ]
    return kernel(
        [value((count,), dtype), value((count,), dtype, role="result")],
        stage((count,), "p", [at(0, 1, 0)], [at(1, 1, 0)], body),
    )


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize("count", [1, 15, 16, 17, 31, 4099])
def test_sines_and_cosines_of_one_number(dtype: str, others: bool, count: int) -> None:
    x = (np.random.default_rng(count).standard_normal(count) * 50).astype({"f32": "f4", "f64": "f8"}[dtype])
    x[count // 2] = 3e7  # beyond the series: the C library
    (got,) = build(loops.CLASS.generate, waves(count, dtype, others))(x, split=1)
    wide = x.astype("f8")
    power = np.sin(wide) ** 2
    expected = power - 3 * np.cos(wide) + (-3 if others else np.sin(wide))
    np.testing.assert_allclose(got, expected, atol={"f32": 3e-6, "f64": 1e-14}[dtype] if count else 0)


def test_a_constant_exponent_leaves_vectors_whole() -> None:
    target = native_target()
    chosen = loops.choose(loops.match(waves(4096, "f32", False), target), target)
    assert chosen is not None and chosen.phases[0].lanes == target.lanes(32)
