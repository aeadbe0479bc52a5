"""Programs whose tensors have no elements, beside tensors that have some."""

from __future__ import annotations

import numpy as np
import pytest

import motet
from motet.artifact.dtypes import DTYPES

TEXT = """
func.func @main(%a: tensor<{m}x{k}xf32>, %b: tensor<{k}x{n}xf32>, %c: tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32> {{
  %0 = linalg.matmul ins(%a, %b : tensor<{m}x{k}xf32>, tensor<{k}x{n}xf32>)
    outs(%c : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  %1 = math.exp %0 : tensor<{m}x{n}xf32>
  return %1 : tensor<{m}x{n}xf32>
}}
"""


@pytest.mark.parametrize("m, n, k", [(0, 5, 8), (5, 0, 8), (5, 4, 0), (0, 0, 0), (0, 40, 40), (1, 0, 300)])
def test_products_without_elements(m: int, n: int, k: int) -> None:
    session = motet.load(motet.compile(TEXT.format(m=m, n=n, k=k), devices="host", cache=False))
    rng = np.random.default_rng(1)
    a, b, c = (rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n), (m, n)))
    found = session(a, b, c)
    assert found.shape == (m, n)
    np.testing.assert_allclose(found, np.exp(a @ b + c), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["i8", "i32", "i64", "f16", "f64"])
def test_sums_of_no_products_are_what_they_begin_with(dtype: str) -> None:
    text = TEXT.format(m=3, n=2, k=0).replace("f32", dtype).replace("%1 = math.exp %0", "%1 = tensor.cast %0")
    text = text.replace(f"tensor<3x2x{dtype}>\n  return", f"tensor<3x2x{dtype}> to tensor<3x2x{dtype}>\n  return")
    numbers = DTYPES[dtype]
    c = np.arange(6).reshape(3, 2).astype(numbers)
    found = motet.load(motet.compile(text, devices="host"))(np.zeros((3, 0), numbers), np.zeros((0, 2), numbers), c)
    np.testing.assert_array_equal(found, c)
