"""Loops that GPUs have no code for run on what their device falls back to; the rest of the program stays."""

from __future__ import annotations

import numpy as np
import pytest

import motet
from motet.errors import CompileError

pytest.importorskip("triton", reason="needs Triton: pip install 'motet[gpu]'")

TEXT = """
#m = affine_map<(i) -> (i)>
func.func @main(%x: tensor<5xf32>, %n: tensor<i64>) -> tensor<5xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %e = tensor.empty() : tensor<5xf32>
  %d = linalg.generic {indexing_maps = [#m, #m], iterator_types = ["parallel"]} ins(%x : tensor<5xf32>)
      outs(%e : tensor<5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %q = arith.addf %p, %p : f32
    linalg.yield %q : f32
  } -> tensor<5xf32>
  %k = tensor.extract %n[] : tensor<i64>
  %end = arith.index_cast %k : i64 to index
  %r = scf.for %i = %c0 to %end step %c1 iter_args(%s = %d) -> (tensor<5xf32>) {
    %y = linalg.generic {indexing_maps = [#m, #m, #m], iterator_types = ["parallel"]}
        ins(%s, %x : tensor<5xf32>, tensor<5xf32>) outs(%e : tensor<5xf32>) {
    ^bb0(%p: f32, %q: f32, %o: f32):
      %a = arith.mulf %p, %q : f32
      linalg.yield %a : f32
    } -> tensor<5xf32>
    scf.yield %y : tensor<5xf32>
  }
  return %r : tensor<5xf32>
}"""


def test_a_loop_of_unknown_length_runs_on_the_host_beside_a_gpu() -> None:
    artifact = motet.compile(TEXT, devices={"gpu": "cuda{arch=sm_90a},@cpu", "cpu": "host"}, cache=False)
    steps = artifact.manifest.plans["main"].steps
    names = [device.name for device in artifact.manifest.devices]
    assert {names[step.device] for step in steps if step.op == "run"} == {"gpu", "cpu"}
    x = np.arange(1, 6, dtype=np.float32)
    result = motet.load(artifact, devices={"gpu": "host", "cpu": "host"})(x, np.array(3))
    np.testing.assert_array_equal(np.asarray(result), 2 * x**4)


def test_without_a_fallback_the_error_says_what_to_do() -> None:
    with pytest.raises(CompileError, match=r"scf\.for.*place its operations on another device, such as the host"):
        motet.compile(TEXT, devices="cuda{arch=sm_90a}", cache=False)


REFUSED = """
#m = affine_map<(i) -> (i)>
#h = affine_map<(i) -> (i mod 3)>
func.func @main(%x: tensor<5xf32>, %t: tensor<3xf32>) -> tensor<5xf32> {
  %e = tensor.empty() : tensor<5xf32>
  %d = linalg.generic {indexing_maps = [#m, #m], iterator_types = ["parallel"]} ins(%x : tensor<5xf32>)
      outs(%e : tensor<5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %q = arith.addf %p, %p : f32
    linalg.yield %q : f32
  } -> tensor<5xf32>
  %y = linalg.generic {indexing_maps = [#m, #h, #m], iterator_types = ["parallel"]}
      ins(%d, %t : tensor<5xf32>, tensor<3xf32>) outs(%e : tensor<5xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %a = arith.mulf %p, %q : f32
    linalg.yield %a : f32
  } -> tensor<5xf32>
  return %y : tensor<5xf32>
}"""


def test_an_operation_without_code_for_gpus_runs_on_the_host_beside_one() -> None:
    artifact = motet.compile(REFUSED, devices={"gpu": "cuda{arch=sm_90a},@cpu", "cpu": "host"}, cache=False)
    names = [device.name for device in artifact.manifest.devices]
    runs = [names[step.device] for step in artifact.manifest.plans["main"].steps if step.op == "run"]
    assert "cpu" in runs
    x, t = np.arange(1, 6, dtype=np.float32), np.array([1, 2, 4], np.float32)
    result = motet.load(artifact, devices={"gpu": "host", "cpu": "host"})(x, t)
    np.testing.assert_array_equal(np.asarray(result), 2 * x * t[[0, 1, 2, 0, 1]])


def test_an_operation_without_code_for_gpus_is_an_error_where_nothing_else_is_named() -> None:
    with pytest.raises(CompileError, match="no code can be made for cuda devices: indexing expression"):
        motet.compile(REFUSED, devices="cuda{arch=sm_90a}", cache=False)
