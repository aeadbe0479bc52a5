"""Sizes that are calculated back to an input's extent, and elements taken at positions of loops."""

from __future__ import annotations

import numpy as np
import pytest
from tests.prepared import load_mlir

import motet
from motet.compiler import pipeline
from motet.compiler.ir._mlir import ir

BROADCAST = """
func.func @main(%x: tensor<?x3x4xf32>, %y: tensor<?x3x1xf32>) -> tensor<?x3x4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %b = tensor.dim %x, %c0 : tensor<?x3x4xf32>
  %twelve = arith.constant 12 : index
  %all = arith.muli %b, %twelve : index
  %again = arith.divsi %all, %twelve : index
  %e = tensor.empty(%again) : tensor<?x3x4xf32>
  %w = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, j, k)>],
      iterator_types = ["parallel", "parallel", "parallel"]} outs(%e : tensor<?x3x4xf32>) {
  ^bb0(%out: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %one = arith.cmpi eq, %again, %c1 : index
    %k = arith.select %one, %c0, %i : index
    %v = tensor.extract %y[%k, %j, %c0] : tensor<?x3x1xf32>
    linalg.yield %v : f32
  } -> tensor<?x3x4xf32>
  %z = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, j, k)>, affine_map<(i, j, k) -> (i, j, k)>,
      affine_map<(i, j, k) -> (i, j, k)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %w : tensor<?x3x4xf32>, tensor<?x3x4xf32>) outs(%e : tensor<?x3x4xf32>) {
  ^bb0(%a: f32, %c: f32, %out: f32):
    %s = arith.subf %a, %c : f32
    linalg.yield %s : f32
  } -> tensor<?x3x4xf32>
  return %z : tensor<?x3x4xf32>
}
"""


def normalised(text: str) -> str:
    program = load_mlir(text, "test.mlir")
    with program.module.context, ir.Location.unknown():
        pipeline.normalise(program)
        return str(program.module)


def test_elements_at_positions_of_loops_become_operands() -> None:
    text = normalised(BROADCAST)
    assert "tensor.extract" not in text and "linalg.index" not in text


def test_sizes_calculated_back_to_an_extent_are_that_extent() -> None:
    text = normalised(BROADCAST)
    assert "arith.divsi" not in text and "arith.muli" not in text


@pytest.mark.parametrize("batch", [1, 2, 7])
def test_the_result_stays_the_same(batch: int) -> None:
    rng = np.random.default_rng(batch)
    x, y = (rng.standard_normal((batch, 3, n), dtype=np.float32) for n in (4, 1))
    session = motet.load(motet.compile(BROADCAST, devices="host"))
    np.testing.assert_array_equal(session(x, y), x - y)


def test_elements_at_other_positions_are_still_taken() -> None:
    text = BROADCAST.replace("%k = arith.select %one, %c0, %i", "%k = arith.select %one, %i, %c0")
    assert "tensor.extract" in normalised(text)
    x, y = np.ones((3, 3, 4), np.float32), np.arange(9, dtype=np.float32).reshape(3, 3, 1)
    session = motet.load(motet.compile(text, devices="host"))
    np.testing.assert_array_equal(session(x, y), x - y[:1])


def test_sizes_of_remainders_are_left_alone() -> None:
    text = """
    func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
      %c0 = arith.constant 0 : index
      %n = tensor.dim %x, %c0 : tensor<?xf32>
      %c4 = arith.constant 4 : index
      %q = arith.divui %n, %c4 : index
      %m = arith.muli %q, %c4 : index
      %s = tensor.extract_slice %x[0] [%m] [1] : tensor<?xf32> to tensor<?xf32>
      return %s : tensor<?xf32>
    }
    """
    session = motet.load(motet.compile(text, devices="host"))
    np.testing.assert_array_equal(session(np.arange(11, dtype=np.float32)), np.arange(8))


def test_elements_of_a_part_are_still_taken() -> None:
    """Loops that end before the tensor does give no extent of an operand."""
    text = """
    func.func @main(%x: tensor<4x5xf32>) -> tensor<4xf32> {
      %e = tensor.empty() : tensor<4xf32>
      %y = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
          outs(%e : tensor<4xf32>) {
      ^bb0(%out: f32):
        %i = linalg.index 0 : index
        %v = tensor.extract %x[%i, %i] : tensor<4x5xf32>
        linalg.yield %v : f32
      } -> tensor<4xf32>
      return %y : tensor<4xf32>
    }"""
    x = np.random.default_rng(3).standard_normal((4, 5)).astype("f4")
    np.testing.assert_array_equal(motet.load(motet.compile(text))(x), np.diagonal(x))
