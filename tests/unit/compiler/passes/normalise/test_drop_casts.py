"""Concatenations whose parts' extents were forgotten have them again."""

from __future__ import annotations

import numpy as np
from tests.prepared import load_mlir

from motet.compiler import pipeline
from motet.compiler.ir._mlir import ir
from motet.compiler.verify.oracle import run_oracle

TEXT = """
func.func @main(%x: tensor<3x4xf32>) -> tensor<3x4xf32> {
  %a = tensor.extract_slice %x[2, 0] [1, 4] [1, 1] : tensor<3x4xf32> to tensor<1x4xf32>
  %b = tensor.extract_slice %x[0, 0] [2, 4] [1, 1] : tensor<3x4xf32> to tensor<2x4xf32>
  %c = tensor.cast %a : tensor<1x4xf32> to tensor<?x4xf32>
  %d = tensor.cast %b : tensor<2x4xf32> to tensor<?x4xf32>
  %y = tensor.concat dim(0) %c, %d : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<3x4xf32>
  return %y : tensor<3x4xf32>
}"""


def test_parts_of_concatenations_keep_their_extents() -> None:
    program = load_mlir(TEXT, "test.mlir")
    with program.module.context, ir.Location.unknown():
        pipeline.normalise(program)
        assert "tensor.cast" not in str(program.module)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    (got,) = run_oracle(program, "main", [x])
    np.testing.assert_array_equal(got, np.roll(x, 1, 0))
