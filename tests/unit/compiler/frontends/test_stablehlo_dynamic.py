"""StableHLO of dynamic extents, in the forms that jax.export writes for symbolic shapes, against numpy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import motet

_PROGRAM = """
func.func @mean(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %eight = stablehlo.constant dense<8> : tensor<1xi32>
  %one = stablehlo.constant dense<1> : tensor<1xi32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %many = stablehlo.constant dense<8.0> : tensor<f32>
  %a = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x8xf32>) -> tensor<i32>
  %rows = stablehlo.reshape %a : (tensor<i32>) -> tensor<1xi32>
  %sum = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<?x8xf32>, tensor<f32>) -> tensor<?xf32>
  %column = stablehlo.concatenate %rows, %one, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %s = stablehlo.dynamic_broadcast_in_dim %sum, %column, dims = [0] : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x1xf32>
  %m = stablehlo.dynamic_broadcast_in_dim %many, %column, dims = [] : (tensor<f32>, tensor<2xi32>) -> tensor<?x1xf32>
  %mean = stablehlo.divide %s, %m : tensor<?x1xf32>
  %whole = stablehlo.concatenate %rows, %eight, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %wide = stablehlo.dynamic_broadcast_in_dim %mean, %whole, dims = [0, 1]
      : (tensor<?x1xf32>, tensor<2xi32>) -> tensor<?x8xf32>
  %y = stablehlo.subtract %x, %wide : tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}
func.func @inner(%x: tensor<?x?xui8>) -> tensor<?x?xui8> {
  %none = stablehlo.constant dense<0> : tensor<i32>
  %less = stablehlo.constant dense<-2> : tensor<i32>
  %start = stablehlo.constant dense<1> : tensor<1xi32>
  %a = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x?xui8>) -> tensor<i32>
  %b = stablehlo.get_dimension_size %x, dim = 1 : (tensor<?x?xui8>) -> tensor<i32>
  %left = stablehlo.add %b, %less : tensor<i32>
  %count = stablehlo.maximum %none, %left : tensor<i32>
  %rows = stablehlo.reshape %a : (tensor<i32>) -> tensor<1xi32>
  %columns = stablehlo.reshape %count : (tensor<i32>) -> tensor<1xi32>
  %sizes = stablehlo.concatenate %rows, %columns, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %y = "stablehlo.dynamic_gather"(%x, %start, %sizes) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 1],
    start_index_map = [1]>, indices_are_sorted = true}>
    : (tensor<?x?xui8>, tensor<1xi32>, tensor<2xi32>) -> tensor<?x?xui8>
  return %y : tensor<?x?xui8>
}
func.func @taken(%x: tensor<?x8xf64>, %i: tensor<3x1xi32>) -> tensor<?x3xf64> {
  %one = stablehlo.constant dense<1> : tensor<1xi32>
  %a = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x8xf64>) -> tensor<i32>
  %rows = stablehlo.reshape %a : (tensor<i32>) -> tensor<1xi32>
  %sizes = stablehlo.concatenate %rows, %one, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %y = "stablehlo.dynamic_gather"(%x, %i, %sizes) <{dimension_numbers = #stablehlo.gather<offset_dims = [0],
    collapsed_slice_dims = [1], start_index_map = [1], index_vector_dim = 1>}>
    : (tensor<?x8xf64>, tensor<3x1xi32>, tensor<2xi32>) -> tensor<?x3xf64>
  return %y : tensor<?x3xf64>
}
func.func @ordered(%x: tensor<?x?xf32>, %y: tensor<?x?xi32>) -> (tensor<?x?xf32>, tensor<?x?xi32>) {
  %s:2 = "stablehlo.sort"(%x, %y) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>):
    %less = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %less : tensor<i1>
  }) : (tensor<?x?xf32>, tensor<?x?xi32>) -> (tensor<?x?xf32>, tensor<?x?xi32>)
  return %s#0, %s#1 : tensor<?x?xf32>, tensor<?x?xi32>
}
func.func @turned(%x: tensor<?x?xi16>) -> tensor<?x?xi16> {
  %y = stablehlo.reverse %x, dims = [0] : tensor<?x?xi16>
  return %y : tensor<?x?xi16>
}
func.func @spread(%x: tensor<?xf32>, %y: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %a = stablehlo.get_dimension_size %y, dim = 0 : (tensor<?x?xf32>) -> tensor<i32>
  %b = stablehlo.get_dimension_size %y, dim = 1 : (tensor<?x?xf32>) -> tensor<i32>
  %rows = stablehlo.reshape %a : (tensor<i32>) -> tensor<1xi32>
  %columns = stablehlo.reshape %b : (tensor<i32>) -> tensor<1xi32>
  %sizes = stablehlo.concatenate %rows, %columns, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %s = stablehlo.dynamic_broadcast_in_dim %x, %sizes, dims = [1] : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x?xf32>
  %z = stablehlo.multiply %s, %y : tensor<?x?xf32>
  return %z : tensor<?x?xf32>
}
"""


_WINDOWS = """
func.func @sum(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {
  %0 = stablehlo.add %a, %b : tensor<f32>
  return %0 : tensor<f32>
}
func.func @running(%x: tensor<?xf32>) -> tensor<?xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %one = stablehlo.constant dense<1> : tensor<1xi32>
  %none = stablehlo.constant dense<0> : tensor<1xi32>
  %a = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %n = stablehlo.reshape %a : (tensor<i32>) -> tensor<1xi32>
  %less = stablehlo.subtract %n, %one : tensor<1xi32>
  %both = stablehlo.concatenate %less, %none, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %pad = stablehlo.reshape %both : (tensor<2xi32>) -> tensor<1x2xi32>
  %y = stablehlo.custom_call @stablehlo.dynamic_reduce_window(%x, %zero, %n, %one, %one, %one, %pad)
      {called_computations = [@sum]} : (tensor<?xf32>, tensor<f32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>,
      tensor<1xi32>, tensor<1x2xi32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}
func.func @padded(%x: tensor<?x3xi8>, %low: tensor<?xf32>) -> tensor<?x?xi8> {
  %seven = stablehlo.constant dense<7> : tensor<i8>
  %high = stablehlo.constant dense<[1, -1]> : tensor<2xi32>
  %inside = stablehlo.constant dense<[1, 0]> : tensor<2xi32>
  %none = stablehlo.constant dense<0> : tensor<1xi32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %a = stablehlo.get_dimension_size %low, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %b = stablehlo.subtract %a, %two : tensor<i32>
  %c = stablehlo.reshape %b : (tensor<i32>) -> tensor<1xi32>
  %both = stablehlo.concatenate %c, %none, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %y = stablehlo.dynamic_pad %x, %seven, %both, %high, %inside
      : (tensor<?x3xi8>, tensor<i8>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<?x?xi8>
  return %y : tensor<?x?xi8>
}
func.func @doubled(%x: tensor<?x3xf32>, %end: tensor<f32>) -> (tensor<?x3xf32>, tensor<i32>) {
  %none = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %y:2 = stablehlo.while(%a = %x, %i = %none) : tensor<?x3xf32>, tensor<i32>
  cond {
    %sum = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [0, 1]
        : (tensor<?x3xf32>, tensor<f32>) -> tensor<f32>
    %less = stablehlo.compare LT, %sum, %end : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %less : tensor<i1>
  } do {
    %b = stablehlo.add %a, %a : tensor<?x3xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %b, %j : tensor<?x3xf32>, tensor<i32>
  }
  return %y#0, %y#1 : tensor<?x3xf32>, tensor<i32>
}
func.func @turned_filters(%x: tensor<?x?x2xf32>, %f: tensor<3x2x4xf32>) -> tensor<?x?x4xf32> {
  %y = stablehlo.convolution(%x, %f) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
      window = {pad = [[1, 1]], reverse = [true]} {feature_group_count = 1 : i64, batch_group_count = 1 : i64}
      : (tensor<?x?x2xf32>, tensor<3x2x4xf32>) -> tensor<?x?x4xf32>
  return %y : tensor<?x?x4xf32>
}
"""


@pytest.fixture(scope="module")
def session() -> Iterator[motet.Session]:
    with motet.load(motet.compile(_PROGRAM, format="stablehlo", cache=False)) as loaded:
        yield loaded


@pytest.mark.parametrize("rows", [0, 1, 3, 17, 64])
def test_what_jax_writes_is_numpys(session: motet.Session, rows: int) -> None:
    numbers = np.random.default_rng(rows)
    x = numbers.standard_normal((rows, 8)).astype(np.float32)
    np.testing.assert_allclose(session["mean"](x), x - x.mean(1, keepdims=True), rtol=1e-5, atol=1e-6)
    for columns in (1, 2, 3, 9):
        whole = numbers.integers(0, 255, (rows, columns)).astype(np.uint8)
        np.testing.assert_array_equal(session["inner"](whole), whole[:, 1:-1], strict=True)
    places = np.array([[7], [-5], [11]], np.int32)  # starts are clamped
    np.testing.assert_array_equal(session["taken"](x.astype(np.float64), places), x[:, [7, 0, 7]].astype(np.float64))
    short = numbers.integers(-9, 9, (rows, 5)).astype(np.int16)
    np.testing.assert_array_equal(session["turned"](short), short[::-1])
    few = numbers.integers(-2, 3, (rows, 5)).astype(np.float32)
    order = np.argsort(few, axis=0, kind="stable")
    found, carried = session["ordered"](few, np.broadcast_to(np.arange(rows)[:, None], (rows, 5)).astype(np.int32))
    np.testing.assert_array_equal(found, np.take_along_axis(few, order, 0))
    np.testing.assert_array_equal(carried, order)
    line = numbers.standard_normal(8).astype(np.float32)
    np.testing.assert_array_equal(session["spread"](line, x), line * x)


@pytest.fixture(scope="module")
def windows() -> Iterator[motet.Session]:
    with motet.load(motet.compile(_WINDOWS, format="stablehlo", cache=False)) as loaded:
        yield loaded


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 17, 64])
def test_windows_and_pads_of_computed_extents(windows: motet.Session, rows: int) -> None:
    line = np.random.default_rng(rows).standard_normal(rows).astype(np.float32)
    if rows:
        np.testing.assert_allclose(windows["running"](line), np.cumsum(line), rtol=1e-5, atol=1e-5)
    small = np.arange(3 * rows, dtype=np.int8).reshape(rows, 3)
    apart = np.full((max(0, 2 * rows - 1), 3), 7, np.int8)
    apart[::2] = small
    for low in (-2, -1, 0, 5):  # columns lose their last element
        whole = np.pad(apart, ((max(low, 0), 1), (0, 0)), constant_values=7)[max(-low, 0) :, :-1]
        np.testing.assert_array_equal(windows["padded"](small, np.ones(low + 2, np.float32)), whole, strict=True)


def test_functions_of_windows_are_no_entry_points(windows: motet.Session) -> None:
    assert sorted(windows.functions) == ["doubled", "padded", "running", "turned_filters"]


def test_reversed_filters(windows: motet.Session) -> None:
    numbers = np.random.default_rng(0)
    x, filters = numbers.standard_normal((2, 7, 2)), numbers.standard_normal((3, 2, 4))
    padded = np.pad(x, ((0, 0), (1, 1), (0, 0)))
    expected = sum(padded[:, k : k + 7] @ filters[2 - k] for k in range(3))
    got = windows["turned_filters"](x.astype(np.float32), filters.astype(np.float32))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 2, 3, 17])
def test_loops_carry_dynamic_extents(windows: motet.Session, rows: int) -> None:
    x = np.ones((rows, 3), np.float32)
    for end, iterations in ((0, 0), (3 * rows + 1, 1), (100 * rows, 6)):
        doubled, count = windows["doubled"](x, np.array(end, np.float32))
        assert count == iterations
        np.testing.assert_array_equal(doubled, x * 2**iterations)


def test_strides_that_depend_on_extents_are_refused() -> None:
    text = _WINDOWS.replace("%zero, %n, %one, %one,", "%zero, %n, %n, %one,")
    said = "dynamic_reduce_window: the strides depend on symbolic extents; expected constants"
    with pytest.raises(motet.CompileError, match=said):
        motet.compile(text, format="stablehlo", cache=False)


_TOTAL = """
func.func @compared(%x: tensor<?xf16>, %y: tensor<?xf16>) -> tensor<?xi1> {
  %z = stablehlo.compare LT, %x, %y, TOTALORDER : (tensor<?xf16>, tensor<?xf16>) -> tensor<?xi1>
  return %z : tensor<?xi1>
}
func.func @sorted(%x: tensor<?x2xf64>) -> tensor<?x2xf64> {
  %y = "stablehlo.sort"(%x) <{dimension = 0 : i64}> ({
  ^bb0(%a: tensor<f64>, %b: tensor<f64>):
    %half = stablehlo.constant dense<0.5> : tensor<f64>
    %c = stablehlo.multiply %a, %half : tensor<f64>
    %d = stablehlo.multiply %b, %half : tensor<f64>
    %less = stablehlo.compare GT, %c, %d, TOTALORDER : (tensor<f64>, tensor<f64>) -> tensor<i1>
    stablehlo.return %less : tensor<i1>
  }) : (tensor<?x2xf64>) -> tensor<?x2xf64>
  return %y : tensor<?x2xf64>
}
"""


def test_total_order_is_that_of_the_bits() -> None:
    ascending = np.array([-np.nan, -np.inf, -3, -6e-8, -0.0, 0.0, 6e-8, 1, np.inf, np.nan])
    ascending[[0, -1]] = np.copysign(np.nan, [-1, 1])
    with motet.load(motet.compile(_TOTAL, format="stablehlo", cache=False)) as session:
        place = np.arange(100)
        left, right = place // 10, place % 10
        got = session["compared"](ascending.astype(np.float16)[left], ascending.astype(np.float16)[right])
        np.testing.assert_array_equal(got, left < right)
        for rows in (0, 1, 2, 3, 17, 33):
            x = np.random.default_rng(rows).choice(ascending, (rows, 2))
            bits = x.view(np.int64)
            key = np.where(bits < 0, bits ^ np.iinfo(np.int64).max, bits)
            expected = np.take_along_axis(x, np.argsort(key, 0)[::-1], 0)
            np.testing.assert_array_equal(session["sorted"](x).view(np.int64), expected.view(np.int64))


def test_a_dynamic_extent_is_not_stretched(session: motet.Session) -> None:
    with pytest.raises(motet.CallError, match=r"must be equal: (1 and 8|8 and 1)"):
        session["spread"](np.ones(1, np.float32), np.ones((3, 8), np.float32))
