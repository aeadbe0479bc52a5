"""Slices whose sizes are computed: only what is in them is read, also where that is not a whole axis."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.compiler.building import X86_64_V3, build, random

SLICE = """
func.func @main(%x: tensor<?x?xf32>, %like: tensor<?xf32>) -> tensor<?x?xf32> {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = tensor.dim %x, %c0 : tensor<?x?xf32>
  %n = tensor.dim %x, %c1 : tensor<?x?xf32>
  %l = tensor.dim %like, %c0 : tensor<?xf32>
  %k = {size}
  %s = tensor.extract_slice %x[0, {offset}] [%m, %k] [1, 1] : tensor<?x?xf32> to tensor<?x?xf32>
  %e = tensor.empty(%m, %k) : tensor<?x?xf32>
  %r = linalg.exp ins(%s : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %r : tensor<?x?xf32>
}}
"""


@pytest.mark.parametrize("offset", [0, 2])
@pytest.mark.parametrize("size", ["arith.minsi %n, %l : index", "arith.addi %l, %c0 : index"])
def test_a_part_of_an_axis_is_read_alone(size: str, offset: int) -> None:
    session = build(SLICE.format(size=size, offset=offset), X86_64_V3)["main"]
    for m, n, k in ((3, 8, 3), (5, 17, 1), (1, 100, 64), (64, 70, 33)):
        x = random(m, n)
        np.testing.assert_allclose(session(x, random(k)), np.exp(x[:, offset : offset + k]), rtol=1e-5)
