"""Element-wise work on results that are given another shape, for GPUs: with the product, where that can be."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.compiler.codegen.triton.building import generate, interpret, random

B, S, N, K = 3, 11, 48, 24
WIDE = f"{B}x{S}x{N}"


def layer(other: str, other_map: str, body: str, after: str = "") -> str:
    """body(x @ w given the shape B x S x N, other)."""
    same = "affine_map<(b, s, j) -> (b, s, j)>"
    return f"""
func.func @main(%x: tensor<{B * S}x{K}xf32>, %w: tensor<{K}x{N}xf32>, %y: tensor<{other}xf32>) -> tensor<{WIDE}xf32> {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<{B * S}x{N}xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<{B * S}x{N}xf32>) -> tensor<{B * S}x{N}xf32>
  %p = linalg.matmul ins(%x, %w : tensor<{B * S}x{K}xf32>, tensor<{K}x{N}xf32>)
      outs(%f : tensor<{B * S}x{N}xf32>) -> tensor<{B * S}x{N}xf32>
  %q = tensor.expand_shape %p [[0, 1], [2]] output_shape [{B}, {S}, {N}]
      : tensor<{B * S}x{N}xf32> into tensor<{WIDE}xf32>
  %d = tensor.empty() : tensor<{WIDE}xf32>
  %r = linalg.generic {{indexing_maps = [{same}, affine_map<(b, s, j) -> ({other_map})>, {same}],
      iterator_types = ["parallel", "parallel", "parallel"]}}
      ins(%q, %y : tensor<{WIDE}xf32>, tensor<{other}xf32>) outs(%d : tensor<{WIDE}xf32>) {{
  ^bb0(%a: f32, %c: f32, %o: f32):
    {body}
    linalg.yield %z : f32
  }} -> tensor<{WIDE}xf32>
  {after or f"return %r : tensor<{WIDE}xf32>"}
}}"""


ADD = "%z = arith.addf %a, %c : f32"
TWICE = f"""
  %t = linalg.generic {{indexing_maps = [affine_map<(b, s, j) -> (b, s, j)>, affine_map<(b, s, j) -> (b, s, j)>,
      affine_map<(b, s, j) -> (b, s, j)>], iterator_types = ["parallel", "parallel", "parallel"]}}
      ins(%r, %q : tensor<{WIDE}xf32>, tensor<{WIDE}xf32>) outs(%d : tensor<{WIDE}xf32>) {{
  ^bb0(%a: f32, %c: f32, %o: f32):
    %z = arith.mulf %a, %c : f32
    linalg.yield %z : f32
  }} -> tensor<{WIDE}xf32>
  return %t : tensor<{WIDE}xf32>"""


def run(text: str, shape: tuple[int, ...]) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    """How many launches there are, what they calculate, the product, and what is added to it."""
    random = np.random.default_rng(9)
    x, w, y = (random.standard_normal(each, np.float32) for each in ((B * S, K), (K, N), shape))
    made = generate(text)
    (result,) = interpret(made, [x, w, y])
    return len(made.programs), result, (x.astype("f8") @ w).reshape(B, S, N), y.astype("f8")


def test_what_reads_a_vector_along_whole_dimensions_joins_the_product() -> None:
    launches, result, product, y = run(layer(f"{N}", "j", ADD), (N,))
    assert launches == 1
    np.testing.assert_allclose(result, product + y, 1e-4, 1e-5)


def test_what_follows_joins_too_and_the_product_is_there_for_both() -> None:
    launches, result, product, y = run(layer(f"{N}", "j", ADD, TWICE), (N,))
    assert launches == 1
    np.testing.assert_allclose(result, (product + y) * product, 1e-4, 1e-4)


@pytest.mark.parametrize(("other", "map_", "shape"), [
    (f"{S}", "s", (S,)), (f"{B}x{N}", "b, j", (B, N)), (WIDE, "b, s, j", (B, S, N)),
    (f"{S}x{B}x{N}", "s, b, j", (S, B, N)),
])
def test_what_differs_within_a_dimension_stays_behind_it(other: str, map_: str, shape: tuple[int, ...]) -> None:
    _, result, product, y = run(layer(other, map_, ADD), shape)
    added = {"s": y[None, :, None] if y.ndim == 1 else None, "b, j": y[:, None] if y.ndim == 2 else None,
             "b, s, j": y, "s, b, j": y.transpose(1, 0, 2) if y.ndim == 3 else None}[map_]
    np.testing.assert_allclose(result, product + added, 1e-4, 1e-5)


def test_what_looks_at_where_it_is_stays() -> None:
    body = "%i = linalg.index 1 : index\n%n = arith.index_cast %i : index to i32\n%g = arith.sitofp %n : i32 to f32\n" \
           "%h = arith.addf %a, %g : f32\n%z = arith.addf %h, %c : f32"
    _, result, product, y = run(layer(f"{N}", "j", body), (N,))
    np.testing.assert_allclose(result, product + y + np.arange(S)[:, None], 1e-4, 1e-5)


def test_results_of_one_element_keep_their_dimensions() -> None:
    made = generate("""
func.func @main(%x: tensor<8x33xf32>) -> tensor<1x1xf32> {
  %c = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<f32>
  %f = linalg.fill ins(%c : f32) outs(%e : tensor<f32>) -> tensor<f32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> ()>],
      iterator_types = ["reduction", "reduction"]} ins(%x : tensor<8x33xf32>) outs(%f : tensor<f32>) {
  ^bb0(%v: f32, %o: f32):
    %m = arith.maximumf %v, %o : f32
    linalg.yield %m : f32
  } -> tensor<f32>
  %w = tensor.expand_shape %r [] output_shape [1, 1] : tensor<f32> into tensor<1x1xf32>
  %n = tensor.empty() : tensor<1x1xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%w : tensor<1x1xf32>) outs(%n : tensor<1x1xf32>) {
  ^bb0(%v: f32, %o: f32):
    %a = math.absf %v : f32
    linalg.yield %a : f32
  } -> tensor<1x1xf32>
  return %y : tensor<1x1xf32>
}""")
    x = random(8, 33)
    (got,) = interpret(made, [x])
    np.testing.assert_array_equal(got, np.abs(x.max(keepdims=True)))
