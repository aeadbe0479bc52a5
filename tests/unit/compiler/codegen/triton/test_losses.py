"""A loss of classes is computed where its rows are reduced, by Triton's interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.compiler.codegen.triton.building import generate, interpret, random

TEXT = """
#two = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#one = affine_map<(i) -> (i)>
#none = affine_map<(i) -> ()>
func.func @main(%x: tensor<{rows}x{width}xf32>, %t: tensor<{rows}xi64>) -> tensor<f32> {{
  %least = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %re = tensor.empty() : tensor<{rows}xf32>
  %e = tensor.empty() : tensor<{rows}x{width}xf32>
  %s = tensor.empty() : tensor<f32>
  %r0 = linalg.fill ins(%least : f32) outs(%re : tensor<{rows}xf32>) -> tensor<{rows}xf32>
  %z0 = linalg.fill ins(%zero : f32) outs(%re : tensor<{rows}xf32>) -> tensor<{rows}xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%s : tensor<f32>) -> tensor<f32>
  %most = linalg.generic {{indexing_maps = [#two, #row], iterator_types = ["parallel", "reduction"]}}
      ins(%x : tensor<{rows}x{width}xf32>) outs(%r0 : tensor<{rows}xf32>) {{
  ^bb0(%a: f32, %o: f32):
    %v = arith.maximumf %a, %o : f32
    linalg.yield %v : f32
  }} -> tensor<{rows}xf32>
  %less = linalg.generic {{indexing_maps = [#two, #row, #two], iterator_types = ["parallel", "parallel"]}}
      ins(%x, %most : tensor<{rows}x{width}xf32>, tensor<{rows}xf32>) outs(%e : tensor<{rows}x{width}xf32>) {{
  ^bb0(%a: f32, %b: f32, %o: f32):
    %v = arith.subf %a, %b : f32
    linalg.yield %v : f32
  }} -> tensor<{rows}x{width}xf32>
  %sum = linalg.generic {{indexing_maps = [#two, #row], iterator_types = ["parallel", "reduction"]}}
      ins(%less : tensor<{rows}x{width}xf32>) outs(%z0 : tensor<{rows}xf32>) {{
  ^bb0(%a: f32, %o: f32):
    %v = math.exp %a : f32
    %w = arith.addf %v, %o : f32
    linalg.yield %w : f32
  }} -> tensor<{rows}xf32>
  %log = linalg.generic {{indexing_maps = [#two, #row, #two], iterator_types = ["parallel", "parallel"]}}
      ins(%less, %sum : tensor<{rows}x{width}xf32>, tensor<{rows}xf32>) outs(%e : tensor<{rows}x{width}xf32>) {{
  ^bb0(%a: f32, %b: f32, %o: f32):
    %l = math.log %b : f32
    %v = arith.subf %a, %l : f32
    linalg.yield %v : f32
  }} -> tensor<{rows}x{width}xf32>
  %loss = linalg.generic {{indexing_maps = [#one, #one], iterator_types = ["parallel"]}}
      ins(%t : tensor<{rows}xi64>) outs(%re : tensor<{rows}xf32>) {{
  ^bb0(%k: i64, %o: f32):
    %i = linalg.index 0 : index
    %p = arith.index_cast %k : i64 to index
    %v = tensor.extract %log[%i, %p] : tensor<{rows}x{width}xf32>
    linalg.yield %v : f32
  }} -> tensor<{rows}xf32>
  %all = linalg.generic {{indexing_maps = [#one, #none], iterator_types = ["reduction"]}}
      ins(%loss : tensor<{rows}xf32>) outs(%s0 : tensor<f32>) {{
  ^bb0(%a: f32, %o: f32):
    %v = arith.subf %zero, %a : f32
    %w = arith.addf %v, %o : f32
    linalg.yield %w : f32
  }} -> tensor<f32>
  return %all : tensor<f32>
}}"""


@pytest.mark.parametrize("rows, width", [(3, 17), (1, 64), (40, 9), (5, 3001)])
def test_a_loss_is_one_pass_over_the_classes(rows: int, width: int) -> None:
    made = generate(TEXT.format(rows=rows, width=width))
    assert len(made.schedule.commands) == 2
    x, t = random(rows, width), np.random.default_rng(5).integers(0, width, rows)
    (got,) = interpret(made, [x, t])
    wide = x.astype(np.float64) - x.max(1, keepdims=True)
    expected = (np.log(np.exp(wide).sum(1)) - wide[np.arange(rows), t]).sum()
    np.testing.assert_allclose(got, expected, rtol=2e-6)


def test_a_loss_of_numbers_that_are_none_is_none() -> None:
    x = random(4, 9)
    x[2, 3] = np.nan
    (got,) = interpret(generate(TEXT.format(rows=4, width=9)), [x, np.zeros(4, np.int64)])
    assert np.isnan(got)
