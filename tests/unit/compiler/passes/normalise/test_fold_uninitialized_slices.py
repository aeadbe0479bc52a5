"""Slices of tensors that nothing has written."""

from __future__ import annotations

import numpy as np
from tests.prepared import load_mlir

import motet
from motet.compiler.ir._mlir import ir
from motet.compiler.passes.normalise.fold_uninitialized_slices import FoldUninitializedSlices

STATIC = """
func.func @main(%x: tensor<3x5xf32>) -> tensor<4x9xf32> {
  %e = tensor.empty() : tensor<4x9xf32>
  %s = tensor.extract_slice %e[0, 2] [4, 5] [1, 1] : tensor<4x9xf32> to tensor<4x5xf32>
  %i = tensor.insert_slice %x into %s[1, 0] [3, 5] [1, 1] : tensor<3x5xf32> into tensor<4x5xf32>
  %r = tensor.extract_slice %x[2, 0] [1, 5] [1, 1] : tensor<3x5xf32> to tensor<1x5xf32>
  %j = tensor.insert_slice %r into %i[0, 0] [1, 5] [1, 1] : tensor<1x5xf32> into tensor<4x5xf32>
  %w = tensor.insert_slice %j into %e[0, 2] [4, 5] [1, 1] : tensor<4x5xf32> into tensor<4x9xf32>
  %a = tensor.extract_slice %w[0, 5] [4, 2] [1, 1] : tensor<4x9xf32> to tensor<4x2xf32>
  %v = tensor.insert_slice %a into %w[0, 0] [4, 2] [1, 1] : tensor<4x2xf32> into tensor<4x9xf32>
  %b = tensor.extract_slice %v[0, 2] [4, 2] [1, 1] : tensor<4x9xf32> to tensor<4x2xf32>
  %u = tensor.insert_slice %b into %v[0, 7] [4, 2] [1, 1] : tensor<4x2xf32> into tensor<4x9xf32>
  return %u : tensor<4x9xf32>
}
"""
DYNAMIC = """
func.func @main(%x: tensor<1x?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = tensor.dim %x, %c1 : tensor<1x?xf32>
  %m = arith.addi %n, %c1 : index
  %e = tensor.empty(%m) : tensor<2x?xf32>
  %s = tensor.extract_slice %e[1, 1] [1, %n] [1, 1] : tensor<2x?xf32> to tensor<?xf32>
  %y = tensor.extract_slice %x[0, 0] [1, %n] [1, 1] : tensor<1x?xf32> to tensor<?xf32>
  %i = tensor.insert_slice %y into %s[0] [%n] [1] : tensor<?xf32> into tensor<?xf32>
  return %i : tensor<?xf32>
}
"""


def test_pieces_of_a_tensor_are_written_one_by_one() -> None:
    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    wanted = np.pad(np.concatenate([x[2:], x]), ((0, 0), (2, 2)), mode="wrap")
    np.testing.assert_array_equal(motet.load(motet.compile(STATIC, devices="host", cache=False))(x), wanted)


def test_extents_that_are_computed_stay_with_dropped_dimensions() -> None:
    session = motet.load(motet.compile(DYNAMIC, devices="host", cache=False))
    for n in (1, 7, 33):
        x = np.arange(n, dtype=np.float32)[None]
        np.testing.assert_array_equal(session(x), x[0])


def test_other_shapes_of_what_nothing_has_written_are_written_nowhere_else() -> None:
    program = load_mlir("""
func.func @main() -> tensor<2x3xf32> {
  %e = tensor.empty() : tensor<6xf32>
  %s = tensor.expand_shape %e [[0, 1]] output_shape [2, 3] : tensor<6xf32> into tensor<2x3xf32>
  %c = arith.constant 2.0 : f32
  %f = linalg.fill ins(%c : f32) outs(%s : tensor<2x3xf32>) -> tensor<2x3xf32>
  return %f : tensor<2x3xf32>
}""", "test.mlir")
    with program.module.context, ir.Location.unknown():
        assert FoldUninitializedSlices().run(program)
        assert "expand_shape" not in str(program.module)
