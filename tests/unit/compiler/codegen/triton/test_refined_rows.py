"""Normalisations with element-wise work under another shape as one program, by Triton's interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.compiler.codegen.triton.building import check, generate, interpret, random

from motet.artifact.dtypes import DTYPES


def group_norm(n: int, groups: int, channels: int, side: int, dtype: str, second: bool = False) -> str:
    """(x - mean) · rsqrt(mean of squares + 1e-5) over groups of channels, then · scale + shift for each channel;
    `second`: what is normalised is a result too."""
    points = channels * side * side
    rows, whole = f"{n}x{groups}x{points}", f"{n}x{groups * channels}x{side}x{side}"
    flat, row, wide = f"tensor<{n}x{groups * points}x{dtype}>", f"tensor<{n}x{groups}xf32>", f"tensor<{rows}xf32>"
    more = f", tensor<{rows}x{dtype}>" if second else ""
    return f"""
#p = affine_map<(i, j, k) -> (i, j, k)>
#r = affine_map<(i, j, k) -> (i, j)>
#q = affine_map<(i, j) -> (i, j)>
#a = affine_map<(i, j, k, l) -> (i, j, k, l)>
#c = affine_map<(i, j, k, l) -> (j)>
func.func @main(%x: tensor<{whole}x{dtype}>, %scale: tensor<{groups * channels}xf32>,
    %shift: tensor<{groups * channels}xf32>) -> (tensor<{whole}x{dtype}>{more}) {{
  %zero = arith.constant 0.0 : f32
  %flat = tensor.collapse_shape %x [[0], [1, 2, 3]] : tensor<{whole}x{dtype}> into {flat}
  %in = tensor.expand_shape %flat [[0], [1, 2]] output_shape [{n}, {groups}, {points}]
      : {flat} into tensor<{rows}x{dtype}>
  %re = tensor.empty() : {row}
  %begin = linalg.fill ins(%zero : f32) outs(%re : {row}) -> {row}
  %sum = linalg.generic {{indexing_maps = [#p, #r], iterator_types = ["parallel", "parallel", "reduction"]}}
      ins(%in : tensor<{rows}x{dtype}>) outs(%begin : {row}) {{
  ^bb0(%v: {dtype}, %s: f32):
    {'%w = arith.addf %v, %s : f32' if dtype == 'f32' else f'%e = arith.extf %v : {dtype} to f32'}
    {'' if dtype == 'f32' else '%w = arith.addf %e, %s : f32'}
    linalg.yield %w : f32
  }} -> {row}
  %we = tensor.empty() : {wide}
  %centred = linalg.generic {{indexing_maps = [#p, #r, #p], iterator_types = ["parallel", "parallel", "parallel"]}}
      ins(%in, %sum : tensor<{rows}x{dtype}>, {row}) outs(%we : {wide}) {{
  ^bb0(%v: {dtype}, %s: f32, %o: f32):
    %n = arith.constant {float(points)} : f32
    %m = arith.divf %s, %n : f32
    {'%d = arith.subf %v, %m : f32' if dtype == 'f32' else f'%e = arith.extf %v : {dtype} to f32'}
    {'' if dtype == 'f32' else '%d = arith.subf %e, %m : f32'}
    linalg.yield %d : f32
  }} -> {wide}
  %squares = linalg.generic {{indexing_maps = [#p, #r], iterator_types = ["parallel", "parallel", "reduction"]}}
      ins(%centred : {wide}) outs(%begin : {row}) {{
  ^bb0(%v: f32, %s: f32):
    %y = arith.mulf %v, %v : f32
    %w = arith.addf %y, %s : f32
    linalg.yield %w : f32
  }} -> {row}
  %ne = tensor.empty() : tensor<{rows}x{dtype}>
  %normal = linalg.generic {{indexing_maps = [#p, #r, #p], iterator_types = ["parallel", "parallel", "parallel"]}}
      ins(%centred, %squares : {wide}, {row}) outs(%ne : tensor<{rows}x{dtype}>) {{
  ^bb0(%v: f32, %s: f32, %o: {dtype}):
    %n = arith.constant {float(points)} : f32
    %eps = arith.constant 1.0e-05 : f32
    %m = arith.divf %s, %n : f32
    %t = arith.addf %m, %eps : f32
    %q = math.rsqrt %t : f32
    %w = arith.mulf %v, %q : f32
    {'' if dtype == 'f32' else f'%h = arith.truncf %w : f32 to {dtype}'}
    linalg.yield {'%w' if dtype == 'f32' else '%h'} : {dtype}
  }} -> tensor<{rows}x{dtype}>
  %long = tensor.collapse_shape %normal [[0], [1, 2]] : tensor<{rows}x{dtype}> into {flat}
  %back = tensor.expand_shape %long [[0], [1, 2, 3]] output_shape [{n}, {groups * channels}, {side}, {side}]
      : {flat} into tensor<{whole}x{dtype}>
  %ye = tensor.empty() : tensor<{whole}x{dtype}>
  %y = linalg.generic {{indexing_maps = [#a, #c, #c, #a],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}}
      ins(%back, %scale, %shift : tensor<{whole}x{dtype}>, tensor<{groups * channels}xf32>,
          tensor<{groups * channels}xf32>) outs(%ye : tensor<{whole}x{dtype}>) {{
  ^bb0(%v: {dtype}, %f: f32, %b: f32, %o: {dtype}):
    {'%w = arith.mulf %v, %f : f32' if dtype == 'f32' else f'%e = arith.extf %v : {dtype} to f32'}
    {'' if dtype == 'f32' else '%w = arith.mulf %e, %f : f32'}
    %z = arith.addf %w, %b : f32
    {'' if dtype == 'f32' else f'%h = arith.truncf %z : f32 to {dtype}'}
    linalg.yield {'%z' if dtype == 'f32' else '%h'} : {dtype}
  }} -> tensor<{whole}x{dtype}>
  return %y{', %normal' if second else ''} : tensor<{whole}x{dtype}>{more}
}}"""


@pytest.mark.parametrize("sizes", [
    (2, 4, 2, 5), (3, 2, 7, 3), (1, 1, 6, 4), (2, 3, 1, 4), pytest.param((16, 2, 3, 80), marks=pytest.mark.slow),
])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_group_normalisation_is_one_program(sizes: tuple[int, int, int, int], dtype: str) -> None:
    n, groups, channels, side = sizes
    x = (random(n, groups * channels, side, side) + 2).astype(DTYPES[dtype])
    made = check(group_norm(*sizes, dtype), [x, random(groups * channels), random(groups * channels, seed=1)],
                 1e-4 if dtype == "f32" else 2e-2)
    assert len(made.programs) == 1 and made.kinds == ["rows"]


def test_what_is_read_elsewhere_stays_as_it_was() -> None:
    x = random(2, 8, 5, 5)
    made = check(group_norm(2, 4, 2, 5, "f32", True), [x, random(8), random(8, seed=1)], 1e-4)
    assert len(made.programs) == 2


def test_kept_rows_of_a_group_normalisation_agree_with_numpy() -> None:
    sizes = (16, 2, 3, 80)
    x = (random(16, 6, 80, 80) * 3 + 5).astype("f2")
    scale, shift = random(6), random(6, seed=1)
    text = group_norm(*sizes, "f16")
    (program,) = generate(text).programs.values()
    assert program.forms[0].label == "kept"
    (got,) = interpret(generate(text), [x, scale, shift])
    rows = x.astype("f8").reshape(16, 2, -1)
    normal = (rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + 1e-5)
    wanted = normal.reshape(x.shape) * scale[:, None, None] + shift[:, None, None]
    np.testing.assert_allclose(got.astype("f8"), wanted, rtol=4e-3, atol=4e-3)
