"""Functions on memrefs: which value a tensor taken from a buffer is."""

from __future__ import annotations

import numpy as np

from motet.compiler.frontends.mlir import load_mlir
from motet.compiler.oracle import run_oracle
from tests.unit.compiler.building import X86_64_V3, build

ARITHMETIC_ON_WHAT_A_BUFFER_HOLDS = """
func.func @main(%x: memref<4xf32>, %out: memref<4xf32>) {
  %0 = bufferization.to_tensor %x restrict : memref<4xf32>
  %1 = bufferization.to_tensor %out restrict : memref<4xf32>
  %2 = arith.mulf %0, %0 : tensor<4xf32>
  %3 = arith.addf %1, %2 : tensor<4xf32>
  bufferization.materialize_in_destination %3 in restrict writable %out : (tensor<4xf32>, memref<4xf32>) -> ()
  return
}
"""


def test_arithmetic_takes_tensors_of_buffers() -> None:
    x, out = np.arange(4, dtype=np.float32), np.full(4, 10, np.float32)
    build(ARITHMETIC_ON_WHAT_A_BUFFER_HOLDS, X86_64_V3)(x, out)
    np.testing.assert_array_equal(out, 10 + x * x)


def test_a_tensor_keeps_what_its_buffer_held_when_it_was_taken() -> None:
    text = """
    func.func @main(%x: memref<3xf32>, %y: memref<3xf32>) -> tensor<3xf32> {
      %before = bufferization.to_tensor %x : memref<3xf32> to tensor<3xf32>
      linalg.copy ins(%y : memref<3xf32>) outs(%x : memref<3xf32>)
      %after = bufferization.to_tensor %x : memref<3xf32> to tensor<3xf32>
      %0 = linalg.sub ins(%after, %before : tensor<3xf32>, tensor<3xf32>) outs(%after : tensor<3xf32>) -> tensor<3xf32>
      return %0 : tensor<3xf32>
    }
    """
    x, y = np.array([1, 2, 3], np.float32), np.array([10, 20, 30], np.float32)
    results = run_oracle(load_mlir(text, "x.mlir"), "main", [x.copy(), y.copy()])
    np.testing.assert_array_equal(results[0], y - x)
