"""Contractions from text to result, against numpy (float64, or exact integers)."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.compiler.building import TARGETS, build, random, run

from motet.compiler.targets.cpu import X86_64_V3, CpuTarget

SHAPES = [(1, 1, 1), (1, 768, 64), (7, 5, 3), (14, 14, 14), (64, 128, 128), (21, 12, 32), (128, 91, 256),
          (77, 333, 100), (2, 1000, 17), (300, 48, 700), (16, 512, 1025)]


def matmul(m: str, n: str, k: str, element: str = "f32", result: str = "f32", name: str = "matmul") -> str:
    left = {"matmul_transpose_a": f"{k}x{m}"}.get(name, f"{m}x{k}")
    right = {"matmul_transpose_b": f"{n}x{k}"}.get(name, f"{k}x{n}")
    zero = "0.0" if result.startswith(("f", "bf")) else "0"
    dims = "%m = tensor.dim %a, %c0 : tensor<?x" + f"{k}x{element}>" if m == "?" else ""
    size = "%m" if m == "?" else ""
    return f"""
func.func @main(%a: tensor<{left}x{element}>, %b: tensor<{right}x{element}>) -> tensor<{m}x{n}x{result}> {{
  %c0 = arith.constant 0 : index
  {dims}
  %z = arith.constant {zero} : {result}
  %e = tensor.empty({size}) : tensor<{m}x{n}x{result}>
  %f = linalg.fill ins(%z : {result}) outs(%e : tensor<{m}x{n}x{result}>) -> tensor<{m}x{n}x{result}>
  %r = linalg.{name} ins(%a, %b : tensor<{left}x{element}>, tensor<{right}x{element}>)
    outs(%f : tensor<{m}x{n}x{result}>) -> tensor<{m}x{n}x{result}>
  return %r : tensor<{m}x{n}x{result}>
}}"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_products_of_odd_shapes_agree_with_numpy(m: int, n: int, k: int, target: CpuTarget) -> None:
    a, b = random(m, k), random(k, n, seed=1)
    (result,) = run(matmul(str(m), str(n), str(k)), [a, b], target)
    np.testing.assert_allclose(result, a.astype(np.float64) @ b, rtol=1e-5, atol=1e-5 * k**0.5)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["matmul_transpose_a", "matmul_transpose_b"])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 9, 65), (30, 40, 50), (64, 17, 129)])
def test_transposed_factors_agree_with_numpy(m: int, n: int, k: int, name: str, target: CpuTarget) -> None:
    a = random(k, m) if name.endswith("a") else random(m, k)
    b = random(n, k, seed=1) if name.endswith("b") else random(k, n, seed=1)
    expected = (a.T if name.endswith("a") else a).astype(np.float64) @ (b.T if name.endswith("b") else b)
    (result,) = run(matmul(str(m), str(n), str(k), name=name), [a, b], target)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5 * k**0.5)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["matmul", "matmul_transpose_a", "matmul_transpose_b"])
@pytest.mark.parametrize(("m", "n", "k"), [(97, 133, 517), (53, 70, 4701), (600, 17, 1023), (300, 1031, 61)])
def test_large_products_agree_with_numpy(
    m: int, n: int, k: int, name: str, target: CpuTarget
) -> None:
    a, b = random(m, k), random(k, n, seed=1)
    inputs = [a.T.copy() if name.endswith("a") else a, b.T.copy() if name.endswith("b") else b]
    (result,) = run(matmul(str(m), str(n), str(k), name=name), inputs, target)
    np.testing.assert_allclose(result, a.astype(np.float64) @ b, rtol=1e-5, atol=1e-5 * k**0.5)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("element", "result", "tolerance"),
    [("f64", "f64", 1e-12), ("f16", "f32", 1e-3), ("bf16", "f32", 1e-3), ("i8", "i32", 0), ("i32", "i32", 0),
     ("i64", "i64", 0), ("f16", "f16", 2e-2)],
)
def test_products_of_every_type_agree_with_numpy(
    element: str, result: str, tolerance: float, target: CpuTarget
) -> None:
    dtypes = {"f64": "float64", "f16": "float16", "bf16": ml_dtypes.bfloat16, "i8": "int8", "i32": "int32",
              "i64": "int64"}
    integer = element.startswith("i")
    a, b = (random(*shape, seed=2, dtype="int64" if integer else "float64").astype(dtypes[element])
            for shape in ((33, 45), (45, 50)))
    wide = np.int64 if integer else np.float64
    expected = a.astype(wide) @ b.astype(wide)
    (got,) = run(matmul("33", "50", "45", element, result), [a, b], target)
    if integer:
        assert (got == expected).all()
    else:
        np.testing.assert_allclose(got.astype(np.float64), expected, rtol=tolerance, atol=tolerance * 10)


@pytest.mark.parametrize("target", TARGETS)
def test_one_compiled_program_takes_any_number_of_rows(target: CpuTarget) -> None:
    session = build(matmul("?", "70", "33"), target)
    b = random(33, 70, seed=1)
    for rows in (0, 1, 2, 7, 8, 9, 64, 129):
        a = random(rows, 33)
        np.testing.assert_allclose(session(a, b), a.astype(np.float64) @ b, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("target", TARGETS)
def test_nan_and_infinity_stay_in_their_rows_and_columns(target: CpuTarget) -> None:
    a, b = random(19, 23), random(23, 37, seed=1)
    a[3, 5] = np.nan
    b[7, 30] = np.inf
    (result,) = run(matmul("19", "37", "23"), [a, b], target)
    with np.errstate(invalid="ignore"):
        expected = a.astype(np.float64) @ b
    assert (np.isnan(result) == np.isnan(expected)).all()
    assert (np.isinf(result) == np.isinf(expected)).all()


@settings(max_examples=12, deadline=None)
@given(m=st.integers(1, 70), n=st.integers(1, 140), k=st.integers(1, 90), seed=st.integers(0, 99))
def test_any_shape_agrees_with_numpy(m: int, n: int, k: int, seed: int) -> None:
    a, b = random(m, k, seed=seed), random(k, n, seed=seed + 1)
    (result,) = run(matmul(str(m), str(n), str(k)), [a, b], X86_64_V3)
    np.testing.assert_allclose(result, a.astype(np.float64) @ b, rtol=1e-5, atol=1e-4)
