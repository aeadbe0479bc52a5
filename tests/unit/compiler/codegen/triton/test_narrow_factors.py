"""Products of widened factors for GPUs: they read what is narrow, and what they calculate stays the same."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.compiler.codegen.triton.building import generate, interpret

from motet.artifact.dtypes import DTYPES

M, N, K = 33, 48, 40


def widened(name: str, of: str, shape: str, dtype: str, dims: str) -> str:
    return f"""
  %e{name} = tensor.empty() : tensor<{shape}xf32>
  %{name} = linalg.generic {{indexing_maps = [affine_map<({dims}) -> ({dims})>, affine_map<({dims}) -> ({dims})>],
      iterator_types = [{', '.join(['"parallel"'] * len(dims.split(',')))}]}}
      ins(%{of} : tensor<{shape}x{dtype}>) outs(%e{name} : tensor<{shape}xf32>) {{
  ^bb0(%i: {dtype}, %o: f32):
    %w = arith.extf %i : {dtype} to f32
    linalg.yield %w : f32
  }} -> tensor<{shape}xf32>"""


def linear(left: str, right: str, squared: bool = False) -> str:
    """bf16(x @ w.T + bias), of factors that are `left` and `right`, as programs of PyTorch are; `squared` reads the
    wide bias once more."""
    x = widened("v", "x", f"{M}x{K}", left, "i, j") if left != "f32" else ""
    w = widened("u", "t", f"{K}x{N}", right, "i, j") if right != "f32" else ""
    same = "affine_map<(i, j) -> (i, j)>"
    return f"""
func.func @main(%x: tensor<{M}x{K}x{left}>, %y: tensor<{N}x{K}x{right}>, %b: tensor<{N}xbf16>)
    -> tensor<{M}x{N}xbf16> {{
  %zero = arith.constant 0.0 : f32
  %et = tensor.empty() : tensor<{K}x{N}x{right}>
  %t = linalg.transpose ins(%y : tensor<{N}x{K}x{right}>) outs(%et : tensor<{K}x{N}x{right}>) permutation = [1, 0]
  {x}{w}{widened("c", "b", f"{N}", "bf16", "i")}
  %e = tensor.empty() : tensor<{M}x{N}xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<{M}x{N}xf32>) -> tensor<{M}x{N}xf32>
  %p = linalg.matmul ins({'%v' if x else '%x'}, {'%u' if w else '%t'} : tensor<{M}x{K}xf32>, tensor<{K}x{N}xf32>)
      outs(%f : tensor<{M}x{N}xf32>) -> tensor<{M}x{N}xf32>
  %d = tensor.empty() : tensor<{M}x{N}xbf16>
  %r = linalg.generic {{indexing_maps = [{same}, affine_map<(i, j) -> (j)>, {same}],
      iterator_types = ["parallel", "parallel"]}}
      ins(%p, %c : tensor<{M}x{N}xf32>, tensor<{N}xf32>) outs(%d : tensor<{M}x{N}xbf16>) {{
  ^bb0(%a: f32, %q: f32, %o: bf16):
    %s = arith.addf %a, %q : f32
    {'%z = arith.mulf %s, %q : f32' if squared else ''}
    %n = arith.truncf {'%z' if squared else '%s'} : f32 to bf16
    linalg.yield %n : bf16
  }} -> tensor<{M}x{N}xbf16>
  return %r : tensor<{M}x{N}xbf16>
}}"""


@pytest.mark.parametrize(("left", "right", "squared"), [
    ("bf16", "bf16", False), ("f16", "f16", False), ("bf16", "bf16", True), ("bf16", "f32", False),
    ("bf16", "f16", False),
])
def test_numbers_are_right(left: str, right: str, squared: bool) -> None:
    random = np.random.default_rng(4)
    x, y, bias = (
        random.standard_normal(shape, np.float32).astype(DTYPES[dtype])
        for shape, dtype in (((M, K), left), ((N, K), right), ((N,), "bf16"))
    )
    made = generate(linear(left, right, squared))
    (result,) = interpret(made, [x, y, bias])
    wanted = x.astype("f8") @ y.astype("f8").T + bias.astype("f8")
    wanted = wanted * bias.astype("f8") if squared else wanted
    np.testing.assert_allclose(result.astype("f8"), wanted, 2**-8, 2**-12)


def test_factors_of_one_type_are_read_as_they_are_in_one_launch() -> None:
    for dtype in ("bf16", "f16"):
        made = generate(linear(dtype, dtype))
        (program,) = made.programs.values()
        triton = {"bf16": "bf16", "f16": "fp16"}[dtype]
        assert list(program.buffers)[:2] == [triton, triton]
        assert program.library is None or program.library.left.dtype == dtype  # the bias is of another type
    (program,) = generate(linear("bf16", "bf16")).programs.values()
    assert program.library is not None and program.library.bias is not None
    assert len(generate(linear("bf16", "f16")).programs) > 1
