"""Dynamic extents in windows, padding, concatenations, slices and numbers, by Triton's interpreter, against the naive
lowering and numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.unit.compiler.codegen.triton.building import check, generate, interpret, random

from motet import builder as mb


def text(build: Callable[..., mb.Tensor], *shapes: tuple[int | str, ...], dtype: str = "f32") -> str:
    with mb.Graph("main") as graph:
        graph.result(build(*(graph.input(f"x{i}", shape, dtype) for i, shape in enumerate(shapes))))
    return graph.to_mlir()


WEIGHTS = random(5, 3, 3, 2)


@pytest.mark.parametrize("extents", [(1, 7, 6), (2, 13, 5), (3, 1, 1), (1, 33, 17)])
@pytest.mark.parametrize("strides, padding", [
    ((1, 1), ((1, 1), (1, 1))), ((2, 3), ((0, 2), (3, 1))), ((2, 2), ((1, 1), (1, 1))),
])
def test_convolutions_of_images_of_any_size(
    extents: tuple[int, int, int], strides: tuple[int, int], padding: tuple[tuple[int, int], tuple[int, int]]
) -> None:
    n, h, w = extents
    if h + sum(padding[0]) < 3 or w + sum(padding[1]) < 2:
        pytest.skip("windows do not fit")
    made = text(lambda x: mb.conv2d(x, WEIGHTS, stride=strides, padding=padding), ("n", 3, "h", "w"))
    check(made, [random(n, 3, h, w)], 1e-4)


@pytest.mark.parametrize("extents", [(1, 7, 6), (2, 12, 5), (1, 33, 17)])
def test_poolings_of_images_of_any_size(extents: tuple[int, int, int]) -> None:
    n, h, w = extents
    made = text(lambda x: mb.max_pool2d(x, 3, 2, padding=((1, 1), (1, 0))), ("n", 3, "h", "w"))
    check(made, [random(n, 3, h, w)])


@pytest.mark.parametrize("axes", [(2, 3), (0,), (0, 1, 2, 3)])
def test_means_over_any_number_of_elements(axes: tuple[int, ...]) -> None:
    x = random(3, 4, 5, 7)
    (got,) = interpret(generate(text(lambda x: mb.reduce_mean(x, axes), ("n", 4, "h", "w"))), [x])
    np.testing.assert_allclose(got, x.astype("f8").mean(axes), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("lengths", [(1, 1, 1), (7, 1, 30), (64, 65, 3)])
@pytest.mark.parametrize("dtype", ["f32", "f16", "i8"])
def test_concatenations_of_any_length(lengths: tuple[int, int, int], dtype: str) -> None:
    given = text(lambda a, b, c: mb.concat([a, b, c], 1), *((2, extent, 5) for extent in "pqr"), dtype=dtype)
    parts = [(random(2, length, 5) * 50).astype({"f32": "f4", "f16": "f2", "i8": "i1"}[dtype]) for length in lengths]
    (got,) = interpret(generate(given), parts)
    np.testing.assert_array_equal(got, np.concatenate(parts, 1))


@pytest.mark.parametrize("length", [1, 4, 65])
def test_padding_of_any_length(length: int) -> None:
    x = random(2, length)
    (got,) = interpret(generate(text(lambda x: mb.pad(x, (0, 3), (1, 2), -1.5), (2, "n"))), [x])
    np.testing.assert_array_equal(got, np.pad(x, ((0, 1), (3, 2)), constant_values=-1.5))


SLICE = """
func.func @main(%x: tensor<?x6xf32>, %k: tensor<i64>) -> tensor<3x2xf32> {
  %i = tensor.extract %k[] : tensor<i64>
  %o = arith.index_cast %i : i64 to index
  %y = tensor.extract_slice %x[%o, 1] [3, 2] [2, 3] : tensor<?x6xf32> to tensor<3x2xf32>
  return %y : tensor<3x2xf32>
}"""


@pytest.mark.parametrize("begin", [0, 4])
def test_slices_from_a_computed_place_on(begin: int) -> None:
    x = random(11, 6)
    (got,) = interpret(generate(SLICE), [x, np.array(begin)])
    np.testing.assert_array_equal(got, x[begin : begin + 6 : 2, 1:6:3])


def test_numbers_that_are_calculated_outside_of_bodies() -> None:
    given = """
func.func @main(%x: tensor<4x5xf32>, %s: tensor<f32>, %z: tensor<i8>) -> tensor<4x5xf32> {
  %a = tensor.extract %s[] : tensor<f32>
  %b = tensor.extract %z[] : tensor<i8>
  %c = arith.sitofp %b : i8 to f32
  %d = arith.mulf %a, %c : f32
  %big = arith.constant -1.0e300 : f64
  %low = arith.truncf %big : f64 to f32
  %e = tensor.empty() : tensor<4x5xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4x5xf32>) outs(%e : tensor<4x5xf32>) {
  ^bb0(%v: f32, %o: f32):
    %p = arith.mulf %v, %d : f32
    %q = arith.maximumf %p, %low : f32
    linalg.yield %q : f32
  } -> tensor<4x5xf32>
  return %y : tensor<4x5xf32>
}"""
    x = random(4, 5)
    (got,) = interpret(generate(given), [x, np.float32(0.5), np.int8(-3)])
    np.testing.assert_array_equal(got, x * np.float32(-1.5))


LOOP = """
#m = affine_map<(i) -> (i)>
func.func @main(%x: tensor<6x5xf32>, %b: tensor<5xf32>) -> (tensor<5xf32>, tensor<6x5xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c6 = arith.constant 6 : index
  %e = tensor.empty() : tensor<6x5xf32>
  %r:2 = scf.for %i = %c0 to %c6 step %c1 iter_args(%s = %b, %all = %e) -> (tensor<5xf32>, tensor<6x5xf32>) {
    %k = arith.subi %c6, %i : index
    %j = arith.subi %k, %c1 : index
    %v = tensor.extract_slice %x[%j, 0] [1, 5] [1, 1] : tensor<6x5xf32> to tensor<5xf32>
    %n = tensor.empty() : tensor<5xf32>
    %y = linalg.generic {indexing_maps = [#m, #m, #m], iterator_types = ["parallel"]}
        ins(%v, %s : tensor<5xf32>, tensor<5xf32>) outs(%n : tensor<5xf32>) {
    ^bb0(%p: f32, %q: f32, %o: f32):
      %h = arith.constant 0.5 : f32
      %a = arith.mulf %q, %h : f32
      %z = arith.addf %p, %a : f32
      linalg.yield %z : f32
    } -> tensor<5xf32>
    %w = tensor.insert_slice %y into %all[%i, 0] [1, 5] [1, 1] : tensor<5xf32> into tensor<6x5xf32>
    scf.yield %y, %w : tensor<5xf32>, tensor<6x5xf32>
  }
  return %r#0, %r#1 : tensor<5xf32>, tensor<6x5xf32>
}"""


def test_recurrences_are_taken_apart() -> None:
    x, state = random(6, 5), random(5)
    last, every = interpret(generate(LOOP), [x, state])
    for turn in range(6):
        state = x[5 - turn] + state * np.float32(0.5)
        np.testing.assert_array_equal(every[turn], state)
    np.testing.assert_array_equal(last, state)


PAD = """
func.func @main(%x: tensor<4x?xf32>, %v: tensor<f32>) -> tensor<6x?xf32> {
  %c1 = arith.constant 1 : index
  %f = tensor.extract %v[] : tensor<f32>
  %p = tensor.pad %x low[0, 2] high[2, 1] {
  ^bb0(%i: index, %j: index):
    tensor.yield %f : f32
  } : tensor<4x?xf32> to tensor<6x?xf32>
  return %p : tensor<6x?xf32>
}"""


def test_padding_with_a_number_in_a_tensor() -> None:
    x = random(4, 7)
    (got,) = interpret(generate(PAD), [x, np.float32(2.5)])
    np.testing.assert_array_equal(got, np.pad(x, ((0, 2), (2, 1)), constant_values=np.float32(2.5)))


APPLIED = """
#m = affine_map<(i) -> (i)>
#a = affine_map<(d)[s] -> (d * 3 + s floordiv 2 - 1)>
func.func @main(%x: tensor<?xf32>, %t: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?xf32>
  %k = affine.apply #a(%n)[%n]
  %l = arith.index_cast %k : index to i64
  %e = tensor.empty(%n) : tensor<?xf32>
  %y = linalg.generic {indexing_maps = [#m, #m], iterator_types = ["parallel"]}
      ins(%x : tensor<?xf32>) outs(%e : tensor<?xf32>) {
  ^bb0(%p: f32, %o: f32):
    %i = linalg.index 0 : index
    %j = affine.apply affine_map<(d) -> (d * 2 + 1)>(%i)
    %v = tensor.extract %t[%j] : tensor<?xf32>
    %f = arith.sitofp %l : i64 to f32
    %g = arith.addf %v, %f : f32
    %h = arith.addf %g, %p : f32
    linalg.yield %h : f32
  } -> tensor<?xf32>
  return %y : tensor<?xf32>
}"""


@pytest.mark.parametrize("count", [1, 5, 40])
def test_affine_arithmetic_in_bodies_and_outside(count: int) -> None:
    x, table = random(count), random(2 * count + 3)
    (got,) = interpret(generate(APPLIED), [x, table])
    number = np.float32(count * 3 + count // 2 - 1)
    np.testing.assert_array_equal(got, table[1 : 2 * count + 1 : 2] + number + x)


def test_quotients_of_f32_are_rounded_right() -> None:
    rng = np.random.default_rng(3)
    x, y = (rng.uniform(-9, 9, 4000).astype(np.float32) for _ in range(2))
    made = generate(text(lambda x, y: mb.div(x, y), (4000,), (4000,)))
    assert "tl.div_rn(" in next(iter(made.programs.values())).forms[0].source
    (got,) = interpret(made, [x, y])
    np.testing.assert_array_equal(got, x / y)


@pytest.mark.parametrize("function, wanted", [(mb.reduce_sum, 1.0), (mb.reduce_prod, float(np.exp(np.float32(1))))])
def test_rows_of_no_elements_read_nothing(function: Callable[..., mb.Tensor], wanted: float) -> None:
    made = generate(text(lambda x, y: mb.mul(mb.exp(function(mb.neg(x), 1)), y), (3, 0, 2), (3, 2)))
    sources = [program.forms[0].source for program in made.programs.values()]
    assert all("mask" in line for source in sources for line in source.splitlines() if "tl.load" in line)
    (got,) = interpret(made, [np.empty((3, 0, 2), np.float32), random(3, 2)])
    np.testing.assert_allclose(got, wanted * random(3, 2), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("shape, axis", [((3, 1000, 101), 1), ((1000, 101), 0), ((1, 1024, 128), 1), ((700, 33), 0)])
def test_sums_of_columns_have_all_rows(shape: tuple[int, ...], axis: int) -> None:
    x = random(*shape)
    (got,) = interpret(generate(text(lambda x: mb.reduce_sum(x, axis), shape)), [x])
    np.testing.assert_allclose(got, x.astype("f8").sum(axis), rtol=1e-4, atol=1e-3)


ANY = """
func.func @main(%x: tensor<{rows}x{columns}xf32>) -> tensor<{rows}xi1> {{
  %z = arith.constant 0.0 : f32
  %f = arith.constant {begin}
  %e = tensor.empty() : tensor<{rows}xi1>
  %i = linalg.fill ins(%f : i1) outs(%e : tensor<{rows}xi1>) -> tensor<{rows}xi1>
  %r = linalg.generic {{indexing_maps = [affine_map<(a, b) -> (a, b)>, affine_map<(a, b) -> (a)>],
      iterator_types = ["parallel", "reduction"]}} ins(%x : tensor<{rows}x{columns}xf32>)
      outs(%i : tensor<{rows}xi1>) {{
  ^bb0(%a: f32, %o: i1):
    %c = arith.cmpf une, %a, %z : f32
    %d = {op} %c, %o : i1
    linalg.yield %d : i1
  }} -> tensor<{rows}xi1>
  return %r : tensor<{rows}xi1>
}}"""


@pytest.mark.parametrize("rows, columns", [(5, 7), (3, 64), (1, 20000)])
@pytest.mark.parametrize("op, begin", [("arith.ori", "false"), ("arith.andi", "true"), ("arith.minui", "true")])
def test_reductions_of_truth_values(rows: int, columns: int, op: str, begin: str) -> None:
    x = np.where(random(rows, columns) > (1.5 if op == "arith.ori" else -1.5), 1, 0).astype(np.float32)
    x[-1] = op != "arith.ori"
    (got,) = interpret(generate(ANY.format(rows=rows, columns=columns, op=op, begin=begin)), [x])
    np.testing.assert_array_equal(got, (x != 0).any(1) if op == "arith.ori" else (x != 0).all(1))


AVERAGES = """
func.func @main(%x: tensor<4x3xf32>) -> tensor<4x3xf32> {
  %one = arith.constant dense<1.0> : tensor<5xf32>
  %zero = arith.constant 0.0 : f32
  %p = tensor.pad %one low[1] high[1] {
  ^bb0(%i: index):
    tensor.yield %zero : f32
  } : tensor<5xf32> to tensor<7xf32>
  %w = tensor.empty() : tensor<3xf32>
  %e = tensor.empty() : tensor<3xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<3xf32>) -> tensor<3xf32>
  %c = linalg.generic {indexing_maps = [affine_map<(i, k) -> (i * 2 + k)>, affine_map<(i, k) -> (k)>,
      affine_map<(i, k) -> (i)>], iterator_types = ["parallel", "reduction"]}
      ins(%p, %w : tensor<7xf32>, tensor<3xf32>) outs(%f : tensor<3xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.addf %a, %o : f32
    linalg.yield %s : f32
  } -> tensor<3xf32>
  %n = tensor.empty() : tensor<4x3xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>,
      affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%x, %c : tensor<4x3xf32>, tensor<3xf32>) outs(%n : tensor<4x3xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %d = arith.divf %a, %b : f32
    linalg.yield %d : f32
  } -> tensor<4x3xf32>
  return %y : tensor<4x3xf32>
}"""


def test_counts_over_padded_constants() -> None:
    x = random(4, 3)
    (got,) = interpret(generate(AVERAGES), [x])
    np.testing.assert_allclose(got, x / np.array([2, 3, 2], np.float32), rtol=1e-6)


@pytest.mark.parametrize("lengths", [(1, 5), (9, 33)])
def test_elements_at_places_that_an_extent_gives(lengths: tuple[int, int]) -> None:
    made = """
        func.func @main(%x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
          %c0 = arith.constant 0 : index
          %c1 = arith.constant 1 : index
          %c2 = arith.constant 2 : index
          %n = tensor.dim %x, %c0 : tensor<?xf32>
          %m = tensor.dim %y, %c0 : tensor<?xf32>
          %last = arith.subi %n, %c1 : index
          %out = tensor.empty(%m) : tensor<?xf32>
          %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
              iterator_types = ["parallel"]} ins(%y : tensor<?xf32>) outs(%out : tensor<?xf32>) {
          ^bb0(%a: f32, %b: f32):
            %half = arith.divsi %last, %c2 : index
            %middle = tensor.extract %x[%half] : tensor<?xf32>
            %below = arith.cmpf olt, %middle, %a : f32
            %place = arith.select %below, %last, %half : index
            %taken = tensor.extract %x[%place] : tensor<?xf32>
            linalg.yield %taken : f32
          } -> tensor<?xf32>
          return %r : tensor<?xf32>
        }"""
    x, y = random(lengths[0]), random(lengths[1])
    (got,) = interpret(generate(made), [x, y])
    half = (len(x) - 1) // 2
    np.testing.assert_array_equal(got, np.where(x[half] < y, x[-1], x[half]))
