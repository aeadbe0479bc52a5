"""Sorts in the bodies of loops and branches. What is expected comes from numpy's stable argsort."""

from __future__ import annotations

import numpy as np
import pytest

import motet

TEXT = """
func.func @loop(%x: tensor<2x7x3xf32>, %n: tensor<i32>) -> tensor<2x7x3xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%k = %zero, %t = %x) : tensor<i32>, tensor<2x7x3xf32>
  cond {
    %c = stablehlo.compare LT, %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %next = stablehlo.add %k, %one : tensor<i32>
    %s = "stablehlo.sort"(%t) <{dimension = 1 : i64, is_stable = true}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %less = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %less : tensor<i1>
    }) : (tensor<2x7x3xf32>) -> tensor<2x7x3xf32>
    %m = stablehlo.negate %s : tensor<2x7x3xf32>
    stablehlo.return %next, %m : tensor<i32>, tensor<2x7x3xf32>
  }
  return %r#1 : tensor<2x7x3xf32>
}
func.func @branch(%x: tensor<9xui8>, %y: tensor<9xi64>, %p: tensor<i1>) -> (tensor<9xui8>, tensor<9xi64>) {
  %r:2 = "stablehlo.if"(%p) ({
    %s:2 = "stablehlo.sort"(%x, %y) <{dimension = 0 : i64, is_stable = true}> ({
    ^bb0(%a: tensor<ui8>, %b: tensor<ui8>, %c: tensor<i64>, %d: tensor<i64>):
      %more = stablehlo.compare GT, %a, %b : (tensor<ui8>, tensor<ui8>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    }) : (tensor<9xui8>, tensor<9xi64>) -> (tensor<9xui8>, tensor<9xi64>)
    stablehlo.return %s#0, %s#1 : tensor<9xui8>, tensor<9xi64>
  }, {
    stablehlo.return %x, %y : tensor<9xui8>, tensor<9xi64>
  }) : (tensor<i1>) -> (tensor<9xui8>, tensor<9xi64>)
  return %r#0, %r#1 : tensor<9xui8>, tensor<9xi64>
}
"""


@pytest.fixture(scope="module")
def session() -> motet.Session:
    return motet.load(motet.compile(TEXT, format="stablehlo", devices="host{cpu=native}", cache=False))


def test_floats_are_sorted_in_a_loop(session: motet.Session) -> None:
    x = np.random.default_rng(7).standard_normal((2, 7, 3)).astype(np.float32)
    x[0, 2, 1], x[1, 4, 0], x[1, 0, 2] = np.nan, np.inf, -np.inf
    np.testing.assert_array_equal(session.loop(x, np.int32(1)), -np.sort(x, 1))
    np.testing.assert_array_equal(session.loop(x, np.int32(2)), -np.sort(-np.sort(x, 1), 1))


def test_equal_elements_keep_their_order_in_a_branch(session: motet.Session) -> None:
    x, y = np.array([3, 200, 3, 0, 255, 3, 200, 1, 0], np.uint8), np.arange(9)
    order = np.argsort(-x.astype(int), kind="stable")
    values, places = session.branch(x, y, np.bool_(True))
    np.testing.assert_array_equal(values, x[order])
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(session.branch(x, y, np.bool_(False))[0], x)


def test_keys_that_are_the_same_everywhere_or_places_themselves() -> None:
    """Neither needs an operand, as the positions that a sort carries along do not."""
    text = """
    func.func @main(%y: tensor<9xi64>) -> (tensor<2x9xi1>, tensor<9xi32>, tensor<9xi64>) {
      %true = stablehlo.constant dense<true> : tensor<2x9xi1>
      %0 = "stablehlo.sort"(%true) <{dimension = 1 : i64}> ({
      ^bb0(%a: tensor<i1>, %b: tensor<i1>):
        %less = stablehlo.compare LT, %a, %b, UNSIGNED : (tensor<i1>, tensor<i1>) -> tensor<i1>
        stablehlo.return %less : tensor<i1>
      }) : (tensor<2x9xi1>) -> tensor<2x9xi1>
      %places = stablehlo.iota dim = 0 : tensor<9xi32>
      %1:2 = "stablehlo.sort"(%places, %y) <{dimension = 0 : i64, is_stable = true}> ({
      ^bb0(%a: tensor<i32>, %b: tensor<i32>, %c: tensor<i64>, %d: tensor<i64>):
        %more = stablehlo.compare GT, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %more : tensor<i1>
      }) : (tensor<9xi32>, tensor<9xi64>) -> (tensor<9xi32>, tensor<9xi64>)
      return %0, %1#0, %1#1 : tensor<2x9xi1>, tensor<9xi32>, tensor<9xi64>
    }"""
    y = np.random.default_rng(2).integers(0, 9, 9)
    equal, places, values = motet.load(motet.compile(text, format="stablehlo"))(y)
    assert np.asarray(equal).all()
    np.testing.assert_array_equal(places, np.arange(9)[::-1])
    np.testing.assert_array_equal(values, y[::-1])
