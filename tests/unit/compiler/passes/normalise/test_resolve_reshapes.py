"""Reshapes to extents that are numbers, run and compared with numpy's."""

from __future__ import annotations

import numpy as np
import pytest

import motet
from motet.compiler.service import CompileRequest, emit

SOURCE = """
func.func @main(%x: tensor<?x?x16xf32>) -> {result} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %b = tensor.dim %x, %c0 : tensor<?x?x16xf32>
  %l = tensor.dim %x, %c1 : tensor<?x?x16xf32>
  %bl = arith.muli %b, %l : index
  %c2 = arith.constant 2 : index
  %c8 = arith.constant 8 : index
  %c16 = arith.constant 16 : index
  %l2 = arith.muli %l, %c2 : index
  %0 = math.absf %x : tensor<?x?x16xf32>
  %s = tensor.from_elements {sizes} : tensor<{rank}xindex>
  %1 = tensor.reshape %0(%s) : (tensor<?x?x16xf32>, tensor<{rank}xindex>) -> {result}
  %2 = math.sqrt %1 : {result}
  return %2 : {result}
}}
"""

CASES = {
    "merged": ("%bl, %c16", "tensor<?x16xf32>", lambda b, n: (b * n, 16)),
    "merged without saying so": ("%bl, %c16", "tensor<?x?xf32>", lambda b, n: (b * n, 16)),
    "split": ("%b, %l, %c2, %c8", "tensor<?x?x2x8xf32>", lambda b, n: (b, n, 2, 8)),
    "across": ("%b, %l2, %c8", "tensor<?x?x8xf32>", lambda b, n: (b, n * 2, 8)),
    "in another order": ("%l, %b, %c16", "tensor<?x?x16xf32>", lambda b, n: (n, b, 16)),
    "the same": ("%b, %l, %c16", "tensor<?x?x16xf32>", lambda b, n: (b, n, 16)),
}


@pytest.mark.parametrize("case", CASES)
def test_results_are_those_of_numpy(case: str) -> None:
    sizes, result, shape = CASES[case]
    text = SOURCE.format(sizes=sizes, result=result, rank=sizes.count(",") + 1)
    assert "tensor.reshape" not in emit(CompileRequest(text), "normalised")
    session = motet.load(motet.compile(text))
    for b, n in ((3, 7), (1, 1), (2, 1), (1, 5), (0, 4)):
        x = np.random.default_rng(b).standard_normal((b, n, 16), np.float32)
        np.testing.assert_allclose(session(x), np.sqrt(np.abs(x)).reshape(shape(b, n)), rtol=1e-6)
