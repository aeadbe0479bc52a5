"""Reductions of what two vectors give for each pair of their elements, by Triton's interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.compiler.codegen.triton.building import generate, interpret, random

TABLE = """
func.func @main(%a: tensor<{rows}xf32>, %b: tensor<{width}xf32>) -> tensor<{rows}xf32> {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<{rows}xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<{rows}xf32>) -> tensor<{rows}xf32>
  %s = linalg.generic {{
      indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]}}
      ins(%a, %b : tensor<{rows}xf32>, tensor<{width}xf32>) outs(%z : tensor<{rows}xf32>) {{
  ^bb0(%v: f32, %w: f32, %o: f32):
    %c = arith.cmpf olt, %v, %w : f32
    %n = arith.uitofp %c : i1 to f32
    %m = arith.addf %n, %o : f32
    linalg.yield %m : f32
  }} -> tensor<{rows}xf32>
  return %s : tensor<{rows}xf32>
}}"""


@pytest.mark.parametrize("rows, width", [(4096, 512), (1000, 129), (13, 7), (1, 33)])
def test_a_table_of_two_vectors_is_reduced_in_one_launch(rows: int, width: int) -> None:
    made = generate(TABLE.format(rows=rows, width=width))
    assert len(made.schedule.commands) == 1
    a, b = random(rows), random(width, seed=1)
    b[0] = np.nan
    (got,) = interpret(made, [a, b])
    np.testing.assert_array_equal(got, (a[:, None] < b).sum(1))
