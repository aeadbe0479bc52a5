"""Gathers whose indices are calculated are one program, by Triton's interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.compiler.codegen.triton.building import generate, interpret, random

TEXT = """
#one = affine_map<(i) -> (i)>
func.func @main(%x: tensor<{rows}x{width}xf32>, %i: tensor<{count}xi64>) -> (tensor<{count}x{width}xf32>{more}) {{
  %bound = arith.constant {rows} : i64
  %zero = arith.constant 0 : i64
  %be = tensor.empty() : tensor<{count}xi1>
  %b = linalg.generic {{indexing_maps = [#one, #one], iterator_types = ["parallel"]}}
      ins(%i : tensor<{count}xi64>) outs(%be : tensor<{count}xi1>) {{
  ^bb0(%v: i64, %o: i1):
    %c = arith.cmpi slt, %v, %zero : i64
    linalg.yield %c : i1
  }} -> tensor<{count}xi1>
  %ne = tensor.empty() : tensor<{count}xi64>
  %n = linalg.generic {{indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}}
      ins(%b, %i : tensor<{count}xi1>, tensor<{count}xi64>) outs(%ne : tensor<{count}xi64>) {{
  ^bb0(%c: i1, %v: i64, %o: i64):
    %w = arith.addi %v, %bound : i64
    %s = arith.select %c, %w, %v : i64
    linalg.yield %s : i64
  }} -> tensor<{count}xi64>
  %e = tensor.empty() : tensor<{count}x{width}xf32>
  %r = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}}
      ins(%n : tensor<{count}xi64>) outs(%e : tensor<{count}x{width}xf32>) {{
  ^bb0(%k: i64, %y: f32):
    %p = arith.index_cast %k : i64 to index
    %q = linalg.index 1 : index
    %v = tensor.extract %x[%p, %q] : tensor<{rows}x{width}xf32>
    linalg.yield %v : f32
  }} -> tensor<{count}x{width}xf32>
  return %r{also} : tensor<{count}x{width}xf32>{more}
}}"""


@pytest.mark.parametrize("count, width", [(13, 24), (1, 7), (50, 1), (5, 128)])
@pytest.mark.parametrize("read_elsewhere", [False, True])
def test_indices_that_are_calculated_are_part_of_the_gather(count: int, width: int, read_elsewhere: bool) -> None:
    rows = 31
    more, also = (f", tensor<{count}xi64>", ", %n") if read_elsewhere else ("", "")
    made = generate(TEXT.format(rows=rows, width=width, count=count, more=more, also=also))
    assert len(made.programs) == (2 if read_elsewhere and width > 1 else 1)
    x, i = random(rows, width), np.random.default_rng(2).integers(-rows, rows, count)
    got = interpret(made, [x, i])
    np.testing.assert_array_equal(got[0], x[i])
    if read_elsewhere:
        np.testing.assert_array_equal(got[1], i % rows)
