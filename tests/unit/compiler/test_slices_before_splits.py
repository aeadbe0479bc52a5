"""Slices of dimensions that are split afterwards."""

from __future__ import annotations

import numpy as np
import pytest
from tests.prepared import load_mlir

import motet
from motet.compiler import pipeline
from motet.compiler.ir._mlir import ir


def program(offset: int, size: int, parts: tuple[int, int]) -> str:
    a, b = parts
    return f"""
    func.func @main(%x: tensor<3x24xf32>) -> tensor<3x{b}x{a}xf32> {{
      %s = tensor.extract_slice %x[0, {offset}] [3, {size}] [1, 1] : tensor<3x24xf32> to tensor<3x{size}xf32>
      %e = tensor.expand_shape %s [[0], [1, 2]] output_shape [3, {a}, {b}]
          : tensor<3x{size}xf32> into tensor<3x{a}x{b}xf32>
      %i = tensor.empty() : tensor<3x{b}x{a}xf32>
      %t = linalg.transpose ins(%e : tensor<3x{a}x{b}xf32>) outs(%i : tensor<3x{b}x{a}xf32>) permutation = [0, 2, 1]
      return %t : tensor<3x{b}x{a}xf32>
    }}
    """


@pytest.mark.parametrize("offset, size, parts, exchanged", [
    (8, 8, (2, 4), True), (0, 12, (3, 4), True), (4, 8, (4, 2), True), (2, 8, (2, 4), False), (4, 14, (2, 7), False),
])
def test_splits_first_where_the_slice_takes_whole_parts(
    offset: int, size: int, parts: tuple[int, int], exchanged: bool
) -> None:
    text = program(offset, size, parts)
    read = load_mlir(text, "test.mlir")
    with read.module.context, ir.Location.unknown():
        pipeline.normalise(read)
        after = str(read.module)
    assert (after.index("expand_shape") < after.index("extract_slice")) == exchanged
    x = np.arange(72, dtype=np.float32).reshape(3, 24)
    wanted = x[:, offset : offset + size].reshape(3, *parts).transpose(0, 2, 1)
    session = motet.load(motet.compile(text, devices="host"))
    np.testing.assert_array_equal(session(x), wanted)
