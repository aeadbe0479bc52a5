"""Groups of stages over short rows, whose vectors run across neighbouring rows, against numpy in f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.unit.compiler.codegen.cpu.harness import DTYPES, Executable, build, levels
from tests.unit.compiler.codegen.cpu.kernels import at, kernel, layer_norm, op, softmax, stage, value

from motet.compiler.codegen.cpu.rows import loops, rows
from motet.compiler.kernels.kernel import Kernel, Size
from motet.compiler.targets.cpu import CpuTarget

TARGETS = list({target.vector_bits: target for target in levels()}.values())
TOLERANCES = {"f16": 3e-3, "bf16": 2e-2, "f32": 3e-6, "f64": 1e-13}


def made(found: Kernel, target: CpuTarget | None = None) -> Executable:
    """The kernel's code, which must run across rows."""
    chosen = target or TARGETS[-1]
    one = rows.group(found, range(len(found.stages)), chosen)
    assert one is not None and one.across
    return build(loops.CLASS.generate, found, chosen)


def exact_softmax(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    found = np.exp(wide - wide.max(-1, keepdims=True))
    return found / found.sum(-1, keepdims=True)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("count, length", [(64, 2), (37, 3), (130, 5), (33, 8), (16, 17), (77, 31), (19, 127)])
def test_softmax(count: int, length: int, target: CpuTarget) -> None:
    x = (np.random.default_rng(length).standard_normal((count, length)) * 4).astype(np.float32)
    (got,) = made(softmax(count, length), target)(x, split=3)
    np.testing.assert_allclose(got, exact_softmax(x), rtol=3e-6)


@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16"])
def test_softmax_of_every_dtype(dtype: str) -> None:
    for length in (3, 13):
        x = np.random.default_rng(1).standard_normal((41, length)).astype(DTYPES[dtype])
        (got,) = made(softmax(41, length, dtype))(x)
        tolerance = TOLERANCES[dtype]
        np.testing.assert_allclose(got.astype(np.float64), exact_softmax(x), rtol=tolerance, atol=tolerance)


def test_rows_without_finite_elements() -> None:
    x = np.zeros((40, 9), np.float32)
    x[0, 3:], x[1, 7], x[2], x[3], x[39, 8] = -np.inf, np.nan, 1e30, -np.inf, np.inf
    (got,) = made(softmax(40, 9))(x)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(got, exact_softmax(x), rtol=3e-6)


@pytest.mark.parametrize("count", [0, 1, 7, 16, 50])
def test_any_number_of_rows(count: int) -> None:
    x = np.random.default_rng(count).standard_normal((count, 11)).astype(np.float32)
    (got,) = made(softmax("n", 11))(x, symbols={"n": count}, split=2)
    np.testing.assert_allclose(got, exact_softmax(x), rtol=3e-6)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("length", [2, 6, 16, 33])
def test_layer_norm(length: int, target: CpuTarget) -> None:
    rng = np.random.default_rng(length)
    x, g, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((75, length), length, length))
    (got,) = made(layer_norm(75, length), target)(x, g, b, split=2)
    wide = x.astype(np.float64)
    exact = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5) * g + b
    np.testing.assert_allclose(got, exact, rtol=2e-4, atol=2e-5)


def weighed(outer: int, count: Size, length: int, order: tuple[int, ...], dtype: str) -> Kernel:
    """p[i, j, k] = x[i, j, k] w[j] - b[i, j]; s[i, j] = sum of p; y = exp(p) / s, and p also as f32; `order` is the
    physical one of x."""
    shape: tuple[Size, ...] = (outer, count, length)
    values = [
        value(shape, dtype, order=order), value((count,), dtype), value((outer, count), dtype),
        value(shape, dtype, "result"), value(shape[:2], dtype, "result"), value(shape, "f32", "result"),
    ]
    cast = {"f16": [op("extf", 0)], "f64": [op("truncf", 0)]}.get(dtype, [])
    return kernel(
        [*values, value(shape, dtype, "temporary")],
        stage(shape, "ppp", [at(0, 3, 0, 1, 2), at(1, 3, 1), at(2, 3, 0, 1)], [at(6, 3, 0, 1, 2)],
              [op("mulf", 0, 1, dtype=dtype), op("subf", 4, 2, dtype=dtype)]),
        stage(shape, "ppr", [at(6, 3, 0, 1, 2)], [at(4, 3, 0, 1)], [op("addf", 0, 1, dtype=dtype)], inits=[2.0]),
        stage(shape, "ppp", [at(6, 3, 0, 1, 2)], [at(5, 3, 0, 1, 2)], cast, yields=(2 if cast else 0,)),
        stage(shape, "ppp", [at(6, 3, 0, 1, 2), at(4, 3, 0, 1)], [at(3, 3, 0, 1, 2)],
              [op("math.exp", 0, dtype=dtype), op("divf", 3, 1, dtype=dtype)]),
        symbols=[count] if isinstance(count, str) else [],
    )  # fmt: skip


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("dtype, order", [
    ("f32", (0, 1, 2)), ("f32", (0, 2, 1)), ("f64", (0, 1, 2)), ("f16", (0, 1, 2)), ("f32", (2, 0, 1)),
])
def test_chains_with_several_results(dtype: str, order: tuple[int, ...], target: CpuTarget) -> None:
    rng = np.random.default_rng(3)
    x, w, b = (rng.uniform(0.5, 1.5, s).astype(DTYPES[dtype]) for s in ((3, 21, 10), 21, (3, 21)))
    arrays: list[Any] = [x, w, b * DTYPES[dtype](0.1)]
    y, s, p = made(weighed(3, 21, 10, order, dtype), target)(*arrays, split=2)
    wide = arrays[0].astype(np.float64) * arrays[1][:, None] - arrays[2][:, :, None].astype(np.float64)
    total = wide.sum(-1) + 2
    tolerance = TOLERANCES[dtype if dtype != "f64" else "f64"]
    np.testing.assert_allclose(s.astype(np.float64), total, rtol=tolerance)
    np.testing.assert_allclose(p.astype(np.float64), wide, rtol=max(tolerance, 1e-6), atol=tolerance)
    np.testing.assert_allclose(y.astype(np.float64), np.exp(wide) / total[..., None], rtol=2 * tolerance)


def test_a_result_may_be_where_the_argument_is() -> None:
    """Each block reads its rows before it writes them, its last columns and rows included."""
    code = made(softmax(45, 11)).code
    assert code.phases and not code.workspaces
    x = np.random.default_rng(5).standard_normal((45, 11)).astype(np.float32)
    invocation = made(softmax(45, 11)).prepare([x])
    invocation.share(0, 1)
    invocation.run(2)
    np.testing.assert_allclose(invocation.results()[0], exact_softmax(x), rtol=3e-6)
