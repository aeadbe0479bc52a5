"""Complex numbers as scalars of functions, and as constants, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

import motet

A, B = np.array(1 + 2j, np.complex64), np.array(3, np.float32)
X = np.array([1 + 2j, -1j], np.complex64)

CASES = {
    "(%a: complex<f32>) -> complex<f32> { %r = complex.mul %a, %a : complex<f32> return %r : complex<f32> }":
        ([A], A * A),
    "(%a: complex<f32>, %b: f32) -> f32 {"
    " %r = complex.re %a : complex<f32> %s = arith.addf %r, %b : f32 return %s : f32 }": ([A, B], A.real + B),
    "(%a: complex<f32>) -> complex<f32> { %r = complex.exp %a : complex<f32> return %r : complex<f32> }":
        ([A], np.exp(A)),
    "(%a: complex<f32>) -> tensor<2xcomplex<f32>> { %e = tensor.empty() : tensor<2xcomplex<f32>>"
    " %r = linalg.fill ins(%a : complex<f32>) outs(%e : tensor<2xcomplex<f32>>) -> tensor<2xcomplex<f32>>"
    " return %r : tensor<2xcomplex<f32>> }": ([A], np.full(2, A)),
    "(%x: tensor<2xcomplex<f32>>) -> complex<f32> { %c1 = arith.constant 1 : index"
    " %e = tensor.extract %x[%c1] : tensor<2xcomplex<f32>> return %e : complex<f32> }": ([X], X[1]),
    "(%b: f32) -> complex<f32> { %c = complex.constant [1.0 : f32, 2.0 : f32] : complex<f32>"
    " return %c : complex<f32> }": ([B], A),
}  # fmt: skip


@pytest.mark.parametrize("text", CASES)
def test_complex_scalars_and_constants(text: str) -> None:
    given, expected = CASES[text]
    session = motet.load(motet.compile(f"func.func @main{text}\n"), threads=1)
    np.testing.assert_allclose(session(*given), expected, rtol=1e-6)


def test_a_constant_of_different_complex_numbers() -> None:
    text = """func.func @main(%x: tensor<2xcomplex<f32>>) -> tensor<2xcomplex<f32>> {
  %c = arith.constant dense<[(1.0, 2.0), (0.0, -3.0)]> : tensor<2xcomplex<f32>>
  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]} ins(%x, %c : tensor<2xcomplex<f32>>, tensor<2xcomplex<f32>>)
      outs(%x : tensor<2xcomplex<f32>>) {
  ^bb0(%a: complex<f32>, %b: complex<f32>, %o: complex<f32>):
    %m = complex.mul %a, %b : complex<f32>
    linalg.yield %m : complex<f32>
  } -> tensor<2xcomplex<f32>>
  return %r : tensor<2xcomplex<f32>>
}"""
    session = motet.load(motet.compile(text), threads=1)
    np.testing.assert_allclose(session(X), X * np.array([1 + 2j, -3j]), rtol=1e-6)
