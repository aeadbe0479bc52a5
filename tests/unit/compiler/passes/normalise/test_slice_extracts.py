"""Elements taken at a known place along a dimension, and everywhere along the others."""

from __future__ import annotations

import numpy as np
import pytest
from tests.prepared import load_mlir

import motet
from motet.compiler import pipeline
from motet.compiler.ir._mlir import ir

pytestmark = pytest.mark.usefixtures("all_levels")


def taken(number: str, first: str = "%k", second: str = "%j") -> str:
    """x[number, 0 … 3, 0 … 4] + 1, the number an element of a constant; `first` and `second` are the indices."""
    return f"""
func.func @main(%x: tensor<5x4x6xf32>) -> tensor<1x4x6xf32> {{
  %n = arith.constant dense<{number}> : tensor<1xi64>
  %one = arith.constant 1.0 : f32
  %c0 = arith.constant 0 : index
  %e = tensor.empty() : tensor<1x4x6xf32>
  %t = linalg.generic {{indexing_maps = [affine_map<(a, b, c) -> (a)>, affine_map<(a, b, c) -> (a, b, c)>],
      iterator_types = ["parallel", "parallel", "parallel"]}}
      ins(%n : tensor<1xi64>) outs(%e : tensor<1x4x6xf32>) {{
  ^bb0(%i: i64, %o: f32):
    %k = arith.index_cast %i : i64 to index
    %j = linalg.index 1 : index
    %l = linalg.index 2 : index
    %v = tensor.extract %x[{first}, {second}, %l] : tensor<5x4x6xf32>
    linalg.yield %v : f32
  }} -> tensor<1x4x6xf32>
  %r = linalg.generic {{indexing_maps = [affine_map<(a, b, c) -> (a, b, c)>, affine_map<(a, b, c) -> (a, b, c)>],
      iterator_types = ["parallel", "parallel", "parallel"]}}
      ins(%t : tensor<1x4x6xf32>) outs(%e : tensor<1x4x6xf32>) {{
  ^bb0(%i: f32, %o: f32):
    %v = arith.addf %i, %one : f32
    linalg.yield %v : f32
  }} -> tensor<1x4x6xf32>
  return %r : tensor<1x4x6xf32>
}}"""


@pytest.mark.parametrize("number", [0, 3, 4])
def test_what_is_chosen_by_a_number_is_a_slice(number: int) -> None:
    program = load_mlir(taken(str(number)), "test.mlir")
    with program.module.context, ir.Location.unknown():
        pipeline.normalise(program)
        text = str(program.module)
    assert "tensor.extract_slice" in text and "tensor.extract " not in text
    artifact = motet.compile(taken(str(number)), devices="host", cache=False)
    assert all(len(variant.kernels) == 1 for variant in artifact.manifest.variants)
    x = np.random.default_rng(number).standard_normal((5, 4, 6), np.float32)
    np.testing.assert_array_equal(motet.load(artifact)(x), x[number : number + 1] + 1)


def test_other_places_are_taken_one_by_one() -> None:
    x = np.random.default_rng(7).standard_normal((5, 4, 6), np.float32)
    text = taken("2", second="%k")  # the second index is the number too
    result = motet.load(motet.compile(text, devices="host", cache=False))(x)
    np.testing.assert_array_equal(result, np.broadcast_to(x[2, 2], (1, 4, 6)) + 1)
    text = taken("2", first="%j")
    result = motet.load(motet.compile(text, devices="host", cache=False))(x)
    np.testing.assert_array_equal(result[0], x[np.arange(4), np.arange(4)] + 1)
