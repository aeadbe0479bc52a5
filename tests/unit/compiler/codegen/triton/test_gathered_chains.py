"""Gathers, the indices that they share and what is computed of their elements are one program, by Triton's
interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.compiler.codegen.triton.building import generate, interpret, interpret_checked, random

HEAD = """
#two = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#one = affine_map<(i) -> (i)>
"""

INTERPOLATION = HEAD + """
func.func @main(%x: tensor<{count}xf32>, %k: tensor<{count}xi64>, %t: tensor<{length}xf32>)
    -> (tensor<{count}xf32>, tensor<{count}xi64>) {{
  %c1 = arith.constant 1 : i64
  %le = tensor.empty() : tensor<{count}xi64>
  %e = tensor.empty() : tensor<{count}xf32>
  %right = linalg.generic {{indexing_maps = [#one, #one], iterator_types = ["parallel"]}}
      ins(%k : tensor<{count}xi64>) outs(%le : tensor<{count}xi64>) {{
  ^bb0(%v: i64, %o: i64):
    %m = arith.maxsi %v, %c1 : i64
    linalg.yield %m : i64
  }} -> tensor<{count}xi64>
  %left = linalg.generic {{indexing_maps = [#one, #one], iterator_types = ["parallel"]}}
      ins(%right : tensor<{count}xi64>) outs(%le : tensor<{count}xi64>) {{
  ^bb0(%v: i64, %o: i64):
    %m = arith.subi %v, %c1 : i64
    linalg.yield %m : i64
  }} -> tensor<{count}xi64>
  %a = linalg.generic {{indexing_maps = [#one, #one], iterator_types = ["parallel"]}}
      ins(%left : tensor<{count}xi64>) outs(%e : tensor<{count}xf32>) {{
  ^bb0(%v: i64, %o: f32):
    %p = arith.index_cast %v : i64 to index
    %w = tensor.extract %t[%p] : tensor<{length}xf32>
    linalg.yield %w : f32
  }} -> tensor<{count}xf32>
  %b = linalg.generic {{indexing_maps = [#one, #one], iterator_types = ["parallel"]}}
      ins(%right : tensor<{count}xi64>) outs(%e : tensor<{count}xf32>) {{
  ^bb0(%v: i64, %o: f32):
    %p = arith.index_cast %v : i64 to index
    %w = tensor.extract %t[%p] : tensor<{length}xf32>
    linalg.yield %w : f32
  }} -> tensor<{count}xf32>
  %d = linalg.generic {{indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}}
      ins(%b, %a : tensor<{count}xf32>, tensor<{count}xf32>) outs(%e : tensor<{count}xf32>) {{
  ^bb0(%v: f32, %w: f32, %o: f32):
    %m = arith.subf %v, %w : f32
    linalg.yield %m : f32
  }} -> tensor<{count}xf32>
  %y = linalg.generic {{indexing_maps = [#one, #one, #one, #one], iterator_types = ["parallel"]}}
      ins(%a, %d, %x : tensor<{count}xf32>, tensor<{count}xf32>, tensor<{count}xf32>) outs(%e : tensor<{count}xf32>) {{
  ^bb0(%v: f32, %w: f32, %s: f32, %o: f32):
    %m = arith.mulf %w, %s : f32
    %n = arith.addf %v, %m : f32
    linalg.yield %n : f32
  }} -> tensor<{count}xf32>
  return %y, %left : tensor<{count}xf32>, tensor<{count}xi64>
}}"""

PENALTY = HEAD + """
func.func @main(%x: tensor<{rows}x{width}xf32>, %k: tensor<{rows}x{taken}xi64>, %f: tensor<{rows}xf32>)
    -> tensor<{rows}x{taken}xf32> {{
  %e = tensor.empty() : tensor<{rows}x{taken}xf32>
  %s = linalg.generic {{indexing_maps = [#two, #two], iterator_types = ["parallel", "parallel"]}}
      ins(%k : tensor<{rows}x{taken}xi64>) outs(%e : tensor<{rows}x{taken}xf32>) {{
  ^bb0(%v: i64, %o: f32):
    %i = linalg.index 0 : index
    %p = arith.index_cast %v : i64 to index
    %w = tensor.extract %x[%i, %p] : tensor<{rows}x{width}xf32>
    linalg.yield %w : f32
  }} -> tensor<{rows}x{taken}xf32>
  %l = linalg.generic {{indexing_maps = [#two, #row, #two], iterator_types = ["parallel", "parallel"]}}
      ins(%s, %f : tensor<{rows}x{taken}xf32>, tensor<{rows}xf32>) outs(%e : tensor<{rows}x{taken}xf32>) {{
  ^bb0(%v: f32, %w: f32, %o: f32):
    %m = arith.mulf %v, %w : f32
    linalg.yield %m : f32
  }} -> tensor<{rows}x{taken}xf32>
  %y = linalg.generic {{indexing_maps = [#two, #two, #two], iterator_types = ["parallel", "parallel"]}}
      ins(%s, %l : tensor<{rows}x{taken}xf32>, tensor<{rows}x{taken}xf32>) outs(%e : tensor<{rows}x{taken}xf32>) {{
  ^bb0(%v: f32, %w: f32, %o: f32):
    %m = arith.maximumf %v, %w : f32
    linalg.yield %m : f32
  }} -> tensor<{rows}x{taken}xf32>
  return %y : tensor<{rows}x{taken}xf32>
}}"""

BAGS = HEAD + """
func.func @main(%x: tensor<50x33xf32>, %k: tensor<7xi64>) -> (tensor<7xf32>, tensor<7x33xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<7x33xf32>
  %r = tensor.empty() : tensor<7xf32>
  %z = linalg.fill ins(%zero : f32) outs(%r : tensor<7xf32>) -> tensor<7xf32>
  %g = linalg.generic {indexing_maps = [#row, #two], iterator_types = ["parallel", "parallel"]}
      ins(%k : tensor<7xi64>) outs(%e : tensor<7x33xf32>) {
  ^bb0(%v: i64, %o: f32):
    %j = linalg.index 1 : index
    %p = arith.index_cast %v : i64 to index
    %w = tensor.extract %x[%p, %j] : tensor<50x33xf32>
    linalg.yield %w : f32
  } -> tensor<7x33xf32>
  %q = linalg.generic {indexing_maps = [#two, #two], iterator_types = ["parallel", "parallel"]}
      ins(%g : tensor<7x33xf32>) outs(%e : tensor<7x33xf32>) {
  ^bb0(%v: f32, %o: f32):
    %m = math.exp %v : f32
    linalg.yield %m : f32
  } -> tensor<7x33xf32>
  %s = linalg.generic {indexing_maps = [#two, #row], iterator_types = ["parallel", "reduction"]}
      ins(%q : tensor<7x33xf32>) outs(%z : tensor<7xf32>) {
  ^bb0(%v: f32, %o: f32):
    %m = arith.addf %v, %o : f32
    linalg.yield %m : f32
  } -> tensor<7xf32>
  %n = linalg.generic {indexing_maps = [#two, #row, #two], iterator_types = ["parallel", "parallel"]}
      ins(%q, %s : tensor<7x33xf32>, tensor<7xf32>) outs(%e : tensor<7x33xf32>) {
  ^bb0(%v: f32, %w: f32, %o: f32):
    %m = arith.divf %v, %w : f32
    linalg.yield %m : f32
  } -> tensor<7x33xf32>
  return %s, %n : tensor<7xf32>, tensor<7x33xf32>
}"""


@pytest.mark.parametrize("count, length", [(1, 2), (13, 7), (1031, 31), (2048, 2)])
def test_gathers_at_shared_indices_are_one_program(count: int, length: int) -> None:
    made = generate(INTERPOLATION.format(count=count, length=length))
    assert len(made.programs) == len(made.schedule.commands) == 1
    x, table = random(count), random(length, seed=1)
    table[0] = np.nan
    k = np.random.default_rng(3).integers(0, length, count)
    got, left = interpret(made, [x, k, table])
    right = np.maximum(k, 1)
    low, high = table[right - 1].astype("f8"), table[right].astype("f8")
    np.testing.assert_array_equal(left, right - 1)
    np.testing.assert_allclose(got, low + (high - low) * x, rtol=1e-5, atol=1e-6)


def test_an_index_out_of_bounds_in_a_chain_is_refused() -> None:
    made = generate(INTERPOLATION.format(count=40, length=9))
    k = np.full(40, 4)
    k[17] = 9
    _, failure = interpret_checked(made, [random(40), k, random(9)])
    assert failure is not None and "9" in str(failure)


@pytest.mark.parametrize("rows, width, taken", [(1, 5, 1), (3, 17, 1), (1, 9, 70), (7, 131, 37), (33, 64, 64)])
def test_a_gather_along_rows_is_part_of_the_arithmetic_on_its_elements(rows: int, width: int, taken: int) -> None:
    made = generate(PENALTY.format(rows=rows, width=width, taken=taken))
    assert len(made.programs) == len(made.schedule.commands) == 1
    x, factor = random(rows, width), random(rows, seed=4)
    k = np.random.default_rng(5).integers(0, width, (rows, taken))
    (got,) = interpret(made, [x, k, factor])
    score = np.take_along_axis(x, k, 1)
    np.testing.assert_array_equal(got, np.maximum(score, score * factor[:, None]))


def test_what_rows_reduce_stays_with_the_reduction() -> None:
    made = generate(BAGS)
    assert len(made.schedule.commands) == 2
    x, k = random(50, 33), np.array([3, 0, 49, 3, 7, 8, 20])
    total, share = interpret(made, [x, k])
    grown = np.exp(x[k].astype("f8"))
    np.testing.assert_allclose(total, grown.sum(1), rtol=1e-6)
    np.testing.assert_allclose(share, grown / grown.sum(1, keepdims=True), rtol=1e-6)


OF_SUMS_OF_NONE = """
#i = affine_map<(a) -> (a)>
#x = affine_map<(a, b) -> (b, a)>
#s = affine_map<(a, b) -> (a)>
func.func @main(%x: tensor<0x3xf32>, %i: tensor<5xi64>) -> tensor<5xf32> {
  %c = arith.constant 1.5 : f32
  %t = tensor.empty() : tensor<3xf32>
  %z = linalg.fill ins(%c : f32) outs(%t : tensor<3xf32>) -> tensor<3xf32>
  %f = linalg.generic {indexing_maps = [#x, #s], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<0x3xf32>) outs(%z : tensor<3xf32>) {
  ^bb0(%v: f32, %o: f32):
    %a = arith.addf %v, %o : f32
    linalg.yield %a : f32
  } -> tensor<3xf32>
  %e = tensor.empty() : tensor<5xf32>
  %g = linalg.generic {indexing_maps = [#i, #i], iterator_types = ["parallel"]}
      ins(%i : tensor<5xi64>) outs(%e : tensor<5xf32>) {
  ^bb0(%p: i64, %o: f32):
    %at = arith.index_cast %p : i64 to index
    %w = tensor.extract %f[%at] : tensor<3xf32>
    linalg.yield %w : f32
  } -> tensor<5xf32>
  return %g : tensor<5xf32>
}"""


def test_elements_of_a_tensor_that_is_one_number_everywhere() -> None:
    made = generate(OF_SUMS_OF_NONE)
    (got,) = interpret(made, [np.zeros((0, 3), np.float32), np.array([0, 2, 1, 1, 0])])
    np.testing.assert_array_equal(got, np.full(5, 1.5, np.float32))
