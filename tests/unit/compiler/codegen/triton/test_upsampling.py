"""Transposed convolutions, as frontends lower them, for GPUs: by phases, interpreted, beside the naive lowering."""

from __future__ import annotations

import pytest
from tests.prepared import load_mlir
from tests.unit.compiler.codegen.triton.building import SM_90A, check, random
from tests.unit.compiler.codegen.triton.texts import tensor

from motet.compiler import pipeline
from motet.compiler.build.partitioning import fuse_program
from motet.compiler.ir._mlir import ir


def transposed(
    image: tuple[int, int, int, int], filters: int, window: int, step: int, padding: int, border: int = 0
) -> str:
    """f32; zeros stand between pixels, and around them, `border` of them more behind."""
    n, c, h, w = image
    first = window - 1 - padding
    sizes = [(size - 1) * step + 1 + 2 * first + border for size in (h, w)]
    x, z = tensor((n, c, h, w), "f32"), tensor((n, c, *sizes), "f32")
    k = tensor((filters, c, window, window), "f32")
    y = tensor((n, filters, *(size - window + 1 for size in sizes)), "f32")
    same = "affine_map<(a, b, c, d) -> (a, b, c, d)>"
    return f"""
func.func @main(%x: {x}, %k: {k}, %b: tensor<{filters}xf32>) -> {y} {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : {z}
  %f = linalg.fill ins(%zero : f32) outs(%e : {z}) -> {z}
  %z = tensor.insert_slice %x into %f[0, 0, {first}, {first}] [{n}, {c}, {h}, {w}] [1, 1, {step}, {step}] : {x} into {z}
  %o = tensor.empty() : {y}
  %i = linalg.broadcast ins(%b : tensor<{filters}xf32>) outs(%o : {y}) dimensions = [0, 2, 3]
  %r = linalg.conv_2d_nchw_fchw {{strides = dense<1> : tensor<2xi64>, dilations = dense<1> : tensor<2xi64>}}
      ins(%z, %k : {z}, {k}) outs(%i : {y}) -> {y}
  %s = linalg.generic {{indexing_maps = [{same}, {same}],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}} ins(%r : {y}) outs(%o : {y}) {{
  ^bb0(%p: f32, %q: f32):
    %t = arith.maximumf %p, %zero : f32
    linalg.yield %t : f32
  }} -> {y}
  return %s : {y}
}}"""


@pytest.mark.parametrize(("image", "filters", "window", "step", "padding", "border"), [
    ((2, 10, 5, 7), 9, 2, 2, 0, 0), ((1, 9, 5, 3), 8, 4, 2, 1, 0), ((1, 8, 3, 5), 11, 3, 2, 1, 1),
    ((1, 8, 4, 5), 8, 5, 4, 1, 1), ((1, 8, 5, 7), 8, 3, 3, 2, 0), ((1, 8, 5, 7), 9, 3, 2, 1, 0),
    ((2, 8, 6, 5), 8, 3, 1, 1, 0),
])
def test_zeros_between_pixels_change_nothing(
    image: tuple[int, int, int, int], filters: int, window: int, step: int, padding: int, border: int
) -> None:
    text = transposed(image, filters, window, step, padding, border)
    check(text, [random(*image), random(filters, image[1], window, window, seed=1), random(filters, seed=2)])


@pytest.mark.parametrize(
    ("window", "step", "padding", "is_spread"), [(2, 2, 0, False), (4, 2, 1, False), (3, 2, 1, True)]
)
def test_no_zeros_are_made_where_phases_are_of_one_size(window: int, step: int, padding: int, is_spread: bool) -> None:
    program = load_mlir(transposed((1, 8, 5, 7), 8, window, step, padding), "test.mlir")
    with program.module.context, ir.Location.unknown():
        pipeline.normalise(program)
        assert fuse_program(program, [SM_90A]) is program
        assert ("insert_slice" in str(program.module)) == is_spread
