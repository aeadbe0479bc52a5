"""Numbers of places are computed by the program that reads them, by Triton's interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.compiler.codegen.triton.building import generate, interpret, random

TEXT = """
#two = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#column = affine_map<(i, j) -> (j)>
#one = affine_map<(i) -> (i)>
func.func @main(%x: tensor<{rows}x{width}xf32>) -> (tensor<{rows}xf32>, tensor<{rows}xi32>{more}) {{
  %least = arith.constant 0xFF800000 : f32
  %many = arith.constant {width} : i32
  %re = tensor.empty() : tensor<{rows}xf32>
  %ke = tensor.empty() : tensor<{rows}xi32>
  %pe = tensor.empty() : tensor<{width}xi32>
  %r0 = linalg.fill ins(%least : f32) outs(%re : tensor<{rows}xf32>) -> tensor<{rows}xf32>
  %k0 = linalg.fill ins(%many : i32) outs(%ke : tensor<{rows}xi32>) -> tensor<{rows}xi32>
  %places = linalg.generic {{indexing_maps = [#one], iterator_types = ["parallel"]}} outs(%pe : tensor<{width}xi32>) {{
  ^bb0(%o: i32):
    %n = linalg.index 0 : index
    %v = arith.index_cast %n : index to i32
    linalg.yield %v : i32
  }} -> tensor<{width}xi32>
  %most = linalg.generic {{indexing_maps = [#two, #row], iterator_types = ["parallel", "reduction"]}}
      ins(%x : tensor<{rows}x{width}xf32>) outs(%r0 : tensor<{rows}xf32>) {{
  ^bb0(%a: f32, %o: f32):
    %v = arith.maximumf %a, %o : f32
    linalg.yield %v : f32
  }} -> tensor<{rows}xf32>
  %se = tensor.empty() : tensor<{rows}x{width}xi32>
  %same = linalg.generic {{indexing_maps = [#two, #row, #column, #two], iterator_types = ["parallel", "parallel"]}}
      ins(%x, %most, %places : tensor<{rows}x{width}xf32>, tensor<{rows}xf32>, tensor<{width}xi32>)
      outs(%se : tensor<{rows}x{width}xi32>) {{
  ^bb0(%a: f32, %b: f32, %p: i32, %o: i32):
    %c = arith.cmpf oeq, %a, %b : f32
    %s = arith.select %c, %p, %many : i32
    linalg.yield %s : i32
  }} -> tensor<{rows}x{width}xi32>
  %place = linalg.generic {{indexing_maps = [#two, #row], iterator_types = ["parallel", "reduction"]}}
      ins(%same : tensor<{rows}x{width}xi32>) outs(%k0 : tensor<{rows}xi32>) {{
  ^bb0(%s: i32, %o: i32):
    %v = arith.minsi %s, %o : i32
    linalg.yield %v : i32
  }} -> tensor<{rows}xi32>
  return %most, %place{also} : tensor<{rows}xf32>, tensor<{rows}xi32>{more}
}}"""


@pytest.mark.parametrize("rows, width", [(3, 17), (1, 64), (5, 3000)])
@pytest.mark.parametrize("is_result", [False, True])
def test_places_are_no_launch_of_their_own(rows: int, width: int, is_result: bool) -> None:
    more, also = (f", tensor<{width}xi32>", ", %places") if is_result else ("", "")
    made = generate(TEXT.format(rows=rows, width=width, more=more, also=also))
    assert len(made.schedule.commands) == (2 if is_result and rows > 1 else 1)
    x = np.round(random(rows, width), 1)  # with ties, of which the first counts
    most, place, *others = interpret(made, [x])
    np.testing.assert_array_equal(most, x.max(1))
    np.testing.assert_array_equal(place, x.argmax(1))
    if is_result:
        np.testing.assert_array_equal(others[0], np.arange(width))
