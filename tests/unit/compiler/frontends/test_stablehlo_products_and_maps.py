"""Complex products and sums, maps, and reshapes to computed extents. What is expected comes from numpy."""

from __future__ import annotations

import numpy as np
import pytest

import motet

TEXT = """
func.func @complex(%a: tensor<2x3x4xcomplex<f32>>, %b: tensor<2x4x5xcomplex<f32>>)
    -> (tensor<2x3x5xcomplex<f32>>, tensor<2x4xcomplex<f32>>, tensor<2x4x4xcomplex<f32>>) {
  %p = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [1]
    : (tensor<2x3x4xcomplex<f32>>, tensor<2x4x5xcomplex<f32>>) -> tensor<2x3x5xcomplex<f32>>
  %zero = stablehlo.constant dense<(0.0, 0.0)> : tensor<complex<f32>>
  %s = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<2x3x4xcomplex<f32>>, tensor<complex<f32>>) -> tensor<2x4xcomplex<f32>>
  %number = stablehlo.constant dense<(1.0, -3.0)> : tensor<complex<f32>>
  %q = stablehlo.pad %a, %number, low = [0, 1, 0], high = [0, 0, 0], interior = [0, 0, 0]
    : (tensor<2x3x4xcomplex<f32>>, tensor<complex<f32>>) -> tensor<2x4x4xcomplex<f32>>
  return %p, %s, %q : tensor<2x3x5xcomplex<f32>>, tensor<2x4xcomplex<f32>>, tensor<2x4x4xcomplex<f32>>
}
func.func @maps(%x: tensor<2x3xi64>, %y: tensor<f32>, %s: tensor<i64>) -> (tensor<2x3xi1>, tensor<f32>) {
  %p = "stablehlo.map"(%x, %x) ({
  ^bb0(%a: tensor<i64>, %b: tensor<i64>):
    %two = stablehlo.constant dense<2> : tensor<i64>
    %0 = stablehlo.multiply %a, %b : tensor<i64>
    %1 = stablehlo.add %0, %s : tensor<i64>
    %2 = stablehlo.compare GT, %1, %two : (tensor<i64>, tensor<i64>) -> tensor<i1>
    stablehlo.return %2 : tensor<i1>
  }) {dimensions = array<i64: 0, 1>} : (tensor<2x3xi64>, tensor<2x3xi64>) -> tensor<2x3xi1>
  %q = "stablehlo.map"(%y) ({
  ^bb0(%a: tensor<f32>):
    %0 = stablehlo.negate %a : tensor<f32>
    stablehlo.return %0 : tensor<f32>
  }) {dimensions = array<i64>} : (tensor<f32>) -> tensor<f32>
  return %p, %q : tensor<2x3xi1>, tensor<f32>
}
func.func @no_dimensions(%x: tensor<f32>, %y: tensor<2x3xf32>, %n: tensor<2x3xi32>, %s: tensor<f32>, %t: tensor<i32>)
    -> (tensor<f32>, tensor<2x3xf32>, tensor<2x3xi32>) {
  %a = stablehlo.reduce(%x init: %s) applies stablehlo.add across dimensions = [] : (tensor<f32>, tensor<f32>)
    -> tensor<f32>
  %b:2 = stablehlo.reduce(%y init: %s), (%n init: %t) across dimensions = []
    : (tensor<2x3xf32>, tensor<2x3xi32>, tensor<f32>, tensor<i32>) -> (tensor<2x3xf32>, tensor<2x3xi32>)
    reducer(%p: tensor<f32>, %q: tensor<f32>) (%i: tensor<i32>, %j: tensor<i32>) {
      %two = stablehlo.constant dense<2.0> : tensor<f32>
      %0 = stablehlo.multiply %q, %two : tensor<f32>
      %1 = stablehlo.subtract %p, %0 : tensor<f32>
      %2 = stablehlo.maximum %i, %j : tensor<i32>
      stablehlo.return %1, %2 : tensor<f32>, tensor<i32>
    }
  return %a, %b#0, %b#1 : tensor<f32>, tensor<2x3xf32>, tensor<2x3xi32>
}
func.func @reshape(%x: tensor<?xf32>, %y: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %two = stablehlo.constant dense<2> : tensor<1xi32>
  %n = stablehlo.get_dimension_size %y, dim = 0 : (tensor<?x2xf32>) -> tensor<i32>
  %rows = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %shape = stablehlo.concatenate %rows, %two, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %r = stablehlo.dynamic_reshape %x, %shape : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x2xf32>
  %s = stablehlo.add %r, %y : tensor<?x2xf32>
  return %s : tensor<?x2xf32>
}
func.func @halves(%x: tensor<?x3xf32>) -> tensor<2x?xf32> {
  %two = stablehlo.constant dense<2> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x3xf32>) -> tensor<i32>
  %all = stablehlo.multiply %n, %three : tensor<i32>
  %half = stablehlo.divide %all, %two : tensor<i32>
  %a = stablehlo.reshape %two : (tensor<i32>) -> tensor<1xi32>
  %b = stablehlo.reshape %half : (tensor<i32>) -> tensor<1xi32>
  %shape = stablehlo.concatenate %a, %b, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %r = stablehlo.dynamic_reshape %x, %shape : (tensor<?x3xf32>, tensor<2xi32>) -> tensor<2x?xf32>
  return %r : tensor<2x?xf32>
}
"""


@pytest.fixture(scope="module")
def session() -> motet.Session:
    return motet.load(motet.compile(TEXT, format="stablehlo", devices="host{cpu=native}", cache=False))


def test_complex_tensors_are_multiplied_summed_and_padded(session: motet.Session) -> None:
    random = np.random.default_rng(3)
    a, b = ((random.standard_normal((2, n, m, 2)) @ [1, 1j]).astype(np.complex64) for n, m in ((3, 4), (4, 5)))
    product, total, padded = session.complex(a, b)
    np.testing.assert_allclose(product, a.astype(complex) @ b, rtol=0, atol=1e-5)
    np.testing.assert_allclose(total, a.astype(complex).sum(1), rtol=0, atol=1e-5)
    np.testing.assert_array_equal(padded, np.pad(a, ((0, 0), (1, 0), (0, 0)), constant_values=1 - 3j))


def test_maps_of_any_rank_and_with_scalars_from_outside(session: motet.Session) -> None:
    x = np.array([[-3, -2, -1], [0, 1, 2]])
    truths, negative = session.maps(x, np.float32(1.5), np.int64(-1))
    np.testing.assert_array_equal(truths, x * x - 1 > 2)
    assert negative == -1.5


def test_reductions_over_no_dimensions_apply_their_body_once(session: motet.Session) -> None:
    y, n = np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(-3, 3, dtype=np.int32).reshape(2, 3)
    total, less, most = session.no_dimensions(np.float32(2), y, n, np.float32(0.5), np.int32(-1))
    assert total == 2.5
    np.testing.assert_array_equal(less, 0.5 - 2 * y)
    np.testing.assert_array_equal(most, np.maximum(n, -1))


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_a_reshape_to_the_extent_of_another_tensor(session: motet.Session, rows: int) -> None:
    x, y = np.arange(2 * rows, dtype=np.float32), np.full((rows, 2), 3, np.float32)
    np.testing.assert_array_equal(session.reshape(x, y), x.reshape(rows, 2) + 3)


def test_a_reshape_to_extents_that_are_computed(session: motet.Session) -> None:
    x = np.arange(18, dtype=np.float32).reshape(6, 3)
    np.testing.assert_array_equal(session.halves(x), x.reshape(2, 9))
    with pytest.raises(motet.MotetError, match=r"number of elements .* 15 and 14"):
        session.halves(x[:5])


def test_a_reshape_that_does_not_fit_is_refused(session: motet.Session) -> None:
    with pytest.raises(motet.MotetError, match=r"number of elements .* 13 and 12"):
        session.reshape(np.zeros(13, np.float32), np.zeros((6, 2), np.float32))
