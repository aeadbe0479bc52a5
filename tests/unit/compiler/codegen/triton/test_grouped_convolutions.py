"""Convolutions in groups for GPUs: groups are merged, with zeros between them, and interpreted."""

from __future__ import annotations

import numpy as np
import pytest
from tests.prepared import load_mlir
from tests.unit.compiler.codegen.triton.building import generate, interpret, random

from motet.compiler import pipeline
from motet.compiler.build.partitioning import fuse_program, partition, partition_for_gpu
from motet.compiler.ir._mlir import ir
from motet.compiler.targets.families import resolve_target


def in_groups(groups: int, channels: int, filters: int, size: int, dtype: str = "f16") -> tuple[str, np.ndarray]:
    """3×3, without a border; filters are a constant."""
    k = random(groups, filters, channels, 3, 3, seed=1).astype("f2")
    values = np.array2string(k.astype("f8"), separator=", ", threshold=1 << 30, formatter={"all": lambda v: f"{v:.6e}"})
    x, y = f"tensor<2x{groups}x{channels}x{size}x{size}x{dtype}>", f"2x{groups}x{filters}x{size - 2}x{size - 2}"
    w = f"tensor<{groups}x{filters}x{channels}x3x3x{dtype}>"
    flat = f"tensor<2x{groups * filters}x{size - 2}x{size - 2}x{dtype}>"
    same = "affine_map<(a, b, c, d, e) -> (a, b, c, d, e)>"
    return f"""
func.func @main(%x: {x}) -> {flat} {{
  %k = arith.constant dense<{values}> : {w}
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<{y}xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<{y}xf32>) -> tensor<{y}xf32>
  %r = linalg.conv_2d_ngchw_gfchw {{strides = dense<1> : tensor<2xi64>, dilations = dense<1> : tensor<2xi64>}}
      ins(%x, %k : {x}, {w}) outs(%f : tensor<{y}xf32>) -> tensor<{y}xf32>
  %g = tensor.empty() : tensor<{y}x{dtype}>
  %s = linalg.generic {{indexing_maps = [{same}, {same}],
      iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]}}
      ins(%r : tensor<{y}xf32>) outs(%g : tensor<{y}x{dtype}>) {{
  ^bb0(%a: f32, %b: {dtype}):
    %t = arith.truncf %a : f32 to {dtype}
    linalg.yield %t : {dtype}
  }} -> tensor<{y}x{dtype}>
  %c = tensor.collapse_shape %s [[0], [1, 2], [3], [4]] : tensor<{y}x{dtype}> into {flat}
  return %c : {flat}
}}""", k


def naive(x: np.ndarray, k: np.ndarray) -> np.ndarray:
    size = x.shape[3] - 2
    y = np.zeros((x.shape[0], k.shape[0], k.shape[1], size, size))
    for i in range(3):
        for j in range(3):
            part = x[:, :, :, i : i + size, j : j + size].astype("f8")
            y += np.einsum("ngchw,gfc->ngfhw", part, k[..., i, j].astype("f8"))
    return y.reshape(x.shape[0], -1, size, size)


@pytest.mark.parametrize(("groups", "channels", "filters", "kinds"), [
    (32, 4, 4, ["contraction"]), (6, 8, 5, ["contraction"]), (3, 40, 8, ["contraction"]), (7, 16, 16, ["contraction"]),
])
def test_groups_are_merged_as_far_as_they_are_few(groups: int, channels: int, filters: int, kinds: list[str]) -> None:
    text, k = in_groups(groups, channels, filters, 7)
    made = generate(text)
    assert made.kinds == kinds
    x = random(2, groups, channels, 7, 7).astype("f2")
    (y,) = interpret(made, [x])
    np.testing.assert_allclose(y.astype("f8"), naive(x, k), rtol=2e-3, atol=2e-2)


def test_parameters_are_those_of_all_targets() -> None:
    text, _ = in_groups(8, 4, 4, 5)
    program = load_mlir(text, "test.mlir")
    with program.module.context, ir.Location.unknown():
        pipeline.normalise(program)
        fused = fuse_program(program, [resolve_target("cuda:sm_90a"), resolve_target("host:x86-64-v3")])
        assert fused is not program and set(fused.parameters) == set(program.parameters)
        assert any(array.shape == (1, 32, 32, 3, 3) for array in fused.parameters.values())
        kernels = partition(program)
        others = partition_for_gpu(fused, program, kernels)
        assert others is not kernels and others.functions
