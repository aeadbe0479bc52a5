"""Sorts, scatters, Fourier transforms and solves of StableHLO, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import motet

_PROGRAM = """
func.func @sorts(%x: tensor<5x7xf32>, %y: tensor<5x7xui8>) -> (tensor<5x7xui8>, tensor<5x7xf32>) {
  %0:2 = "stablehlo.sort"(%x, %y) <{dimension = 1 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<ui8>, %d: tensor<ui8>):
    %1 = stablehlo.compare GT, %c, %d : (tensor<ui8>, tensor<ui8>) -> tensor<i1>
    %2 = stablehlo.compare EQ, %c, %d : (tensor<ui8>, tensor<ui8>) -> tensor<i1>
    %3 = stablehlo.compare LT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %4 = stablehlo.and %2, %3 : tensor<i1>
    %5 = stablehlo.or %1, %4 : tensor<i1>
    stablehlo.return %5 : tensor<i1>
  }) : (tensor<5x7xf32>, tensor<5x7xui8>) -> (tensor<5x7xf32>, tensor<5x7xui8>)
  return %0#1, %0#0 : tensor<5x7xui8>, tensor<5x7xf32>
}
func.func @turned(%x: tensor<5x7xf32>, %y: tensor<5x7xi32>) -> (tensor<5x7xf32>, tensor<5x7xi32>) {
  %0:2 = "stablehlo.sort"(%x, %y) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>):
    %1 = stablehlo.abs %b : tensor<f32>
    %2 = stablehlo.abs %a : tensor<f32>
    %3 = stablehlo.compare LT, %1, %2 : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %3 : tensor<i1>
  }) : (tensor<5x7xf32>, tensor<5x7xi32>) -> (tensor<5x7xf32>, tensor<5x7xi32>)
  return %0#0, %0#1 : tensor<5x7xf32>, tensor<5x7xi32>
}
func.func @scatters(%x: tensor<4x5x3xf32>, %i: tensor<6x2xi32>, %u: tensor<6x2x3xf32>) -> tensor<4x5x3xf32> {
  %0 = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<
    update_window_dims = [1, 2], inserted_window_dims = [0], scatter_dims_to_operand_dims = [1, 0],
    index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.subtract %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) : (tensor<4x5x3xf32>, tensor<6x2xi32>, tensor<6x2x3xf32>) -> tensor<4x5x3xf32>
  return %0 : tensor<4x5x3xf32>
}
func.func @sums(%x: tensor<4x3xcomplex<f64>>, %y: tensor<4x3xf32>, %i: tensor<5x1xi32>,
    %u: tensor<5x3xcomplex<f64>>, %v: tensor<5x3xf32>) -> (tensor<4x3xcomplex<f64>>, tensor<4x3xf32>) {
  %0:2 = "stablehlo.scatter"(%x, %y, %i, %u, %v) <{scatter_dimension_numbers = #stablehlo.scatter<
    update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<complex<f64>>, %b: tensor<f32>, %c: tensor<complex<f64>>, %d: tensor<f32>):
    %1 = stablehlo.subtract %c, %a : tensor<complex<f64>>
    %2 = stablehlo.maximum %b, %d : tensor<f32>
    stablehlo.return %1, %2 : tensor<complex<f64>>, tensor<f32>
  }) : (tensor<4x3xcomplex<f64>>, tensor<4x3xf32>, tensor<5x1xi32>, tensor<5x3xcomplex<f64>>, tensor<5x3xf32>)
    -> (tensor<4x3xcomplex<f64>>, tensor<4x3xf32>)
  return %0#0, %0#1 : tensor<4x3xcomplex<f64>>, tensor<4x3xf32>
}
func.func @products(%x: tensor<4x3xcomplex<f32>>, %i: tensor<5x2xi32>, %u: tensor<5xcomplex<f32>>)
    -> tensor<4x3xcomplex<f32>> {
  %0 = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<
    inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<complex<f32>>, %b: tensor<complex<f32>>):
    %1 = stablehlo.constant dense<(0.0, 2.0)> : tensor<complex<f32>>
    %2 = stablehlo.multiply %a, %b : tensor<complex<f32>>
    %3 = stablehlo.add %2, %1 : tensor<complex<f32>>
    stablehlo.return %3 : tensor<complex<f32>>
  }) : (tensor<4x3xcomplex<f32>>, tensor<5x2xi32>, tensor<5xcomplex<f32>>) -> tensor<4x3xcomplex<f32>>
  return %0 : tensor<4x3xcomplex<f32>>
}
func.func @transforms(%z: tensor<3x74xcomplex<f64>>, %x: tensor<2x45xf64>)
    -> (tensor<3x74xcomplex<f64>>, tensor<2x45xf64>) {
  %0 = stablehlo.fft %z, type = FFT, length = [3, 74] : (tensor<3x74xcomplex<f64>>) -> tensor<3x74xcomplex<f64>>
  %1 = stablehlo.fft %x, type = RFFT, length = [45] : (tensor<2x45xf64>) -> tensor<2x23xcomplex<f64>>
  %2 = stablehlo.multiply %1, %1 : tensor<2x23xcomplex<f64>>
  %3 = stablehlo.fft %2, type = IRFFT, length = [45] : (tensor<2x23xcomplex<f64>>) -> tensor<2x45xf64>
  return %0, %3 : tensor<3x74xcomplex<f64>>, tensor<2x45xf64>
}
func.func @solves(%a: tensor<2x5x5xf64>, %b: tensor<2x3x5xf64>) -> (tensor<2x3x5xf64>, tensor<2x5x5xf64>) {
  %0 = stablehlo.cholesky %a, lower = true : tensor<2x5x5xf64>
  %1 = "stablehlo.triangular_solve"(%0, %b) <{left_side = false, lower = true, unit_diagonal = false,
    transpose_a = #stablehlo<transpose TRANSPOSE>}> : (tensor<2x5x5xf64>, tensor<2x3x5xf64>) -> tensor<2x3x5xf64>
  return %1, %0 : tensor<2x3x5xf64>, tensor<2x5x5xf64>
}
"""
_REFUSED = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.custom_call @my_library(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""


@pytest.fixture(scope="module")
def session() -> motet.Session:
    return motet.load(motet.compile(_PROGRAM, format="stablehlo"))


def test_sort_by_two_keys_orders_signs_of_zero_and_nan(session: motet.Session) -> None:
    random = np.random.default_rng(3)
    x = random.choice(np.array([0.0, -0.0, 1.5, -2.0, np.nan, -np.nan, np.inf], np.float32), (5, 7))
    y = random.integers(126, 130, (5, 7)).astype(np.uint8)
    bits = x.view(np.int32)
    total = np.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    order = np.lexsort((total, -y.astype(np.int32)), axis=1)
    got_y, got_x = session["sorts"](x, y)
    np.testing.assert_array_equal(got_y, np.take_along_axis(y, order, 1))
    np.testing.assert_array_equal(got_x.view(np.int32), np.take_along_axis(bits, order, 1))


def test_comparisons_of_the_second_element_with_the_first_sort_in_descending_order(session: motet.Session) -> None:
    x = np.random.default_rng(8).integers(-4, 5, (5, 7)).astype(np.float32)
    y = np.arange(35, dtype=np.int32).reshape(5, 7)
    order = np.argsort(-np.abs(x), axis=0, kind="stable")
    for found, given in zip(session["turned"](x, y), (x, y), strict=True):
        np.testing.assert_array_equal(found, np.take_along_axis(given, order, 0))


def _complex(seed: int, *shape: int) -> np.ndarray[Any, Any]:
    real, imaginary = np.random.default_rng(seed).standard_normal((2, *shape))
    return real + 1j * imaginary


def test_scatters_of_complex_numbers(session: motet.Session) -> None:
    """One whose body is partwise, next to one of reals, and one whose body is not."""
    i = np.array([[3], [1], [3], [4], [-1]], np.int32)
    x, u = _complex(0, 4, 3), _complex(1, 5, 3)
    sums, most = x.copy(), x.real.astype(np.float32)
    for (k,), update in zip(i, u, strict=True):
        if 0 <= k < 4:
            sums[k] = update - sums[k]
            most[k] = np.maximum(most[k], update.imag.astype(np.float32))
    found = session["sums"](x, x.real.astype(np.float32), i, u, u.imag.astype(np.float32))
    np.testing.assert_allclose(found[0], sums, rtol=1e-14)
    np.testing.assert_array_equal(found[1], most)
    places = np.array([[3, 2], [1, 0], [3, 2], [3, 3], [-1, 0]], np.int32)
    narrow, factors = x.astype(np.complex64), u[:, 0].astype(np.complex64)
    products = narrow.astype(np.complex128)
    for (k, j), factor in zip(places[:3], factors[:3].astype(np.complex128), strict=True):
        products[k, j] = products[k, j] * factor + 2j
    np.testing.assert_allclose(session["products"](narrow, places, factors), products, rtol=1e-6)


def test_scatter_leaves_out_elements_outside(session: motet.Session) -> None:
    random = np.random.default_rng(4)
    x, u = (random.standard_normal(shape).astype(np.float32) for shape in ((4, 5, 3), (6, 2, 3)))
    i = np.array([[0, 1], [4, 2], [-1, 0], [2, 4], [0, 1], [7, -3]], np.int32)
    want = x.copy()
    for (column, row), update in zip(i, u, strict=True):
        for step in range(2):
            if 0 <= row < 4 and 0 <= column + step < 5:
                want[row, column + step] -= update[step]
    np.testing.assert_array_equal(session["scatters"](x, i, u), want)


def test_transforms_of_composite_and_prime_lengths(session: motet.Session) -> None:
    random = np.random.default_rng(5)
    z = random.standard_normal((3, 74)) + 1j * random.standard_normal((3, 74))
    x = random.standard_normal((2, 45))
    got, back = session["transforms"](z, x)
    np.testing.assert_allclose(got, np.fft.fft2(z), atol=1e-11)
    np.testing.assert_allclose(back, np.fft.irfft(np.fft.rfft(x) ** 2, 45), atol=1e-11)


def test_solve_with_a_cholesky_factor(session: motet.Session) -> None:
    random = np.random.default_rng(6)
    root, b = random.standard_normal((2, 5, 5)), random.standard_normal((2, 3, 5))
    a = root @ root.swapaxes(1, 2) + 5 * np.eye(5)
    x, factor = session["solves"](a, b)
    np.testing.assert_allclose(np.tril(factor), np.linalg.cholesky(a), atol=1e-12)
    np.testing.assert_allclose(x @ np.linalg.cholesky(a).swapaxes(1, 2), b, atol=1e-12)


def test_custom_call_is_refused_by_its_name() -> None:
    with pytest.raises(motet.CompileError, match="@my_library"):
        motet.compile(_REFUSED, format="stablehlo")


def test_transform_of_a_dynamic_length_is_refused_by_its_dimension() -> None:
    text = """
    func.func @main(%z: tensor<?x?x8xcomplex<f32>>) -> tensor<?x?x8xcomplex<f32>> {
      %0 = stablehlo.fft %z, type = FFT, length = [4, 8] : (tensor<?x?x8xcomplex<f32>>) -> tensor<?x?x8xcomplex<f32>>
      return %0 : tensor<?x?x8xcomplex<f32>>
    }"""
    with pytest.raises(motet.CompileError, match=r"fft: dimension 1, which is transformed, has no static size"):
        motet.compile(text, format="stablehlo")


def test_bits_of_complex_numbers_keep_their_order_in_memory() -> None:
    """Narrower, wider, and as they were, which dynamic extents allow."""
    text = """
    func.func @main(%z: tensor<3x5xcomplex<f64>>, %w: tensor<3x2xcomplex<f32>>, %d: tensor<?x4xcomplex<f32>>)
        -> (tensor<3x5x2xcomplex<f32>>, tensor<3xcomplex<f64>>, tensor<?x4xcomplex<f32>>) {
      %0 = stablehlo.bitcast_convert %z : (tensor<3x5xcomplex<f64>>) -> tensor<3x5x2xcomplex<f32>>
      %1 = stablehlo.bitcast_convert %w : (tensor<3x2xcomplex<f32>>) -> tensor<3xcomplex<f64>>
      %2 = stablehlo.bitcast_convert %d : (tensor<?x4xcomplex<f32>>) -> tensor<?x4xcomplex<f32>>
      return %0, %1, %2 : tensor<3x5x2xcomplex<f32>>, tensor<3xcomplex<f64>>, tensor<?x4xcomplex<f32>>
    }"""
    session = motet.load(motet.compile(text, format="stablehlo"))
    rng = np.random.default_rng(3)
    z, w, d = (rng.normal(size=(*shape, 2)).view(np.complex128)[..., 0] for shape in ((3, 5), (3, 2), (2, 4)))
    w, d = w.astype(np.complex64), d.astype(np.complex64)
    expected = (z.view(np.complex64).reshape(3, 5, 2), w.view(np.complex128)[:, 0], d)
    for got, want in zip(session(z, w, d), expected, strict=True):
        assert np.asarray(got).shape == want.shape
        assert np.asarray(got).tobytes() == want.tobytes()
