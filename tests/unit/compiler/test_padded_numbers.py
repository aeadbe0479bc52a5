"""Tensors of one element that padding surrounds."""

from __future__ import annotations

import numpy as np

import motet

PROGRAM = """
func.func @main(%x: tensor<1x4x3xf32>) -> tensor<1x4x3xf32> {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant dense<1.0> : tensor<1x1x1xf32>
  %p = tensor.pad %one low[0, 0, 2] high[0, 0, 0] {
  ^bb0(%a: index, %b: index, %c: index):
    tensor.yield %zero : f32
  } : tensor<1x1x1xf32> to tensor<1x1x3xf32>
  %e = tensor.empty() : tensor<1x4x3xf32>
  %r = linalg.generic {
    indexing_maps = [affine_map<(i, j, k) -> (i, j, k)>, affine_map<(i, j, k) -> (i, 0, k)>,
                     affine_map<(i, j, k) -> (i, j, k)>],
    iterator_types = ["parallel", "parallel", "parallel"]
  } ins(%x, %p : tensor<1x4x3xf32>, tensor<1x1x3xf32>) outs(%e : tensor<1x4x3xf32>) {
  ^bb0(%u: f32, %v: f32, %o: f32):
    %s = arith.addf %u, %v : f32
    linalg.yield %s : f32
  } -> tensor<1x4x3xf32>
  return %r : tensor<1x4x3xf32>
}
"""


def test_one_number_is_padded() -> None:
    x = np.arange(12, dtype=np.float32).reshape(1, 4, 3)
    session = motet.load(motet.compile(PROGRAM, devices="host", cache=False))
    np.testing.assert_array_equal(session(x), x + np.array([0, 0, 1], np.float32))
