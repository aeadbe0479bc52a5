"""Products along extents of 0 next to extents that only a call knows: what there is to add to stays as it is."""

from __future__ import annotations

import numpy as np
import pytest

import motet

MATMUL = """
func.func @f(%a: tensor<?x0xf32>, %b: tensor<0x5xf32>, %i: tensor<?x5xf32>) -> tensor<?x5xf32> {
  %r = linalg.matmul ins(%a, %b : tensor<?x0xf32>, tensor<0x5xf32>) outs(%i : tensor<?x5xf32>) -> tensor<?x5xf32>
  return %r : tensor<?x5xf32>
}"""
BATCH = """
func.func @f(%a: tensor<0x?x3xf32>, %b: tensor<0x3x5xf32>, %i: tensor<0x?x5xf32>) -> tensor<0x?x5xf32> {
  %r = linalg.batch_matmul ins(%a, %b : tensor<0x?x3xf32>, tensor<0x3x5xf32>)
    outs(%i : tensor<0x?x5xf32>) -> tensor<0x?x5xf32>
  return %r : tensor<0x?x5xf32>
}"""
CONVOLUTION = """
func.func @f(%a: tensor<?x6x6x0xf32>, %b: tensor<3x3x0x8xf32>, %i: tensor<?x4x4x8xf32>) -> tensor<?x4x4x8xf32> {
  %r = linalg.conv_2d_nhwc_hwcf ins(%a, %b : tensor<?x6x6x0xf32>, tensor<3x3x0x8xf32>)
    outs(%i : tensor<?x4x4x8xf32>) -> tensor<?x4x4x8xf32>
  return %r : tensor<?x4x4x8xf32>
}"""


@pytest.mark.parametrize(("source", "shapes"), [
    (MATMUL, [(3, 0), (0, 5), (3, 5)]), (BATCH, [(0, 2, 3), (0, 3, 5), (0, 2, 5)]),
    (CONVOLUTION, [(2, 6, 6, 0), (3, 3, 0, 8), (2, 4, 4, 8)]),
], ids=["depth", "batch", "channels"])  # fmt: skip
def test_what_is_added_to_stays(source: str, shapes: list[tuple[int, ...]]) -> None:
    session = motet.load(motet.compile(source, format="mlir", devices={"": "host{cpu=x86-64-v3}"}))
    arrays = [np.full(shape, 7, np.float32) for shape in shapes]
    np.testing.assert_array_equal(session(*arrays), arrays[2])
