"""The oracle agrees with numpy on every dtype and kind of function that a program may hold."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from tests.unit.compiler.building import run_oracle_text
from tests.unit.compiler.codegen.whole_texts import load, scan, sort

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.program import Program
from motet.compiler.verify.oracle import run_oracle
from motet.compiler.verify.verification import verify
from motet.errors import CallError

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def elementwise(dtype: str, body: str, result: str = "") -> str:
    result = result or dtype
    return f"""
    #id = affine_map<(i) -> (i)>
    func.func @main(%a: tensor<?x{dtype}>, %b: tensor<?x{dtype}>) -> tensor<?x{result}> {{
      %c0 = arith.constant 0 : index
      %n = tensor.dim %a, %c0 : tensor<?x{dtype}>
      %e = tensor.empty(%n) : tensor<?x{result}>
      %0 = linalg.generic {{indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}}
        ins(%a, %b : tensor<?x{dtype}>, tensor<?x{dtype}>) outs(%e : tensor<?x{result}>) {{
      ^bb0(%x: {dtype}, %y: {dtype}, %o: {result}):
        {body}
        linalg.yield %r : {result}
      }} -> tensor<?x{result}>
      return %0 : tensor<?x{result}>
    }}"""


FLOATS = [("f16", np.dtype(np.float16)), ("bf16", BFLOAT16), ("f32", np.dtype(np.float32)),
          ("f64", np.dtype(np.float64))]


@pytest.mark.parametrize(("name", "dtype"), FLOATS)
def test_floating_arithmetic_is_that_of_numpy_bit_for_bit(name: str, dtype: np.dtype) -> None:
    generator = np.random.default_rng(1)
    a, b = (generator.normal(size=1001).astype(dtype) for _ in range(2))
    a[:5] = [np.inf, -np.inf, np.nan, -0.0, 0.0]
    text = elementwise(name, f"%m = arith.mulf %x, %y : {name} %r = arith.addf %m, %x : {name}")
    (result,) = run_oracle_text(text, "main", [a, b])
    assert result.dtype == dtype
    with np.errstate(invalid="ignore"):
        expected = a * b + a
    np.testing.assert_array_equal(result.astype(np.float64), expected.astype(np.float64))


@pytest.mark.parametrize(
    ("name", "dtype"), [("i8", np.int8), ("i16", np.int16), ("i32", np.int32), ("i64", np.int64)]
)
def test_integer_arithmetic_wraps(name: str, dtype: type) -> None:
    generator = np.random.default_rng(2)
    a, b = (generator.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, 77, dtype) for _ in range(2))
    text = elementwise(name, f"%m = arith.muli %x, %y : {name} %r = arith.subi %m, %y : {name}")
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(run_oracle_text(text, "main", [a, b])[0], a * b - b)


def test_comparison_gives_booleans() -> None:
    a, b = np.random.default_rng(3).normal(size=(2, 13)).astype(np.float32)
    (result,) = run_oracle_text(elementwise("f32", "%r = arith.cmpf olt, %x, %y : f32", "i1"), "main", [a, b])
    assert result.dtype == np.bool_
    np.testing.assert_array_equal(result, a < b)


def test_booleans_go_in() -> None:
    a, b = np.random.default_rng(4).integers(0, 2, (2, 31)).astype(bool)
    (result,) = run_oracle_text(elementwise("i1", "%r = arith.xori %x, %y : i1"), "main", [a, b])
    np.testing.assert_array_equal(result, a ^ b)


@pytest.mark.parametrize(("name", "dtype"), [FLOATS[0], FLOATS[1]])
def test_narrowing_rounds_to_even_over_all_exponents(name: str, dtype: np.dtype) -> None:
    bits = np.random.default_rng(5).integers(0, 1 << 32, 5000, np.uint32)
    a = bits.view(np.float32)
    text = elementwise("f32", f"%r = arith.truncf %x : f32 to {name}", name)
    (result,) = run_oracle_text(text, "main", [a, a])
    with np.errstate(over="ignore", invalid="ignore"):
        expected = a.astype(dtype)
    np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(result.view(np.uint16)[number], expected.view(np.uint16)[number])


def test_narrowing_a_double_to_f16_rounds_once() -> None:
    random = np.random.default_rng(6)
    halves = random.integers(0, 1 << 16, 2000, np.uint16).view(np.float16).astype(np.float64)
    nudges = random.choice([0.0, 1e-13, -1e-13, 2**-12, 2**-12 + 1e-13, 2**-12 - 1e-13], 2000)
    halves = halves[np.isfinite(halves)]
    nudges = nudges[: len(halves)]
    a = np.concatenate([halves * (1 + nudges), [70000.0, 1e-8, 5e-8, -0.0, 1e300, np.inf, np.nan]])
    (result,) = run_oracle_text(elementwise("f64", "%r = arith.truncf %x : f64 to f16", "f16"), "main", [a, a])
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        np.testing.assert_array_equal(result, a.astype(np.float16))


@pytest.mark.parametrize(
    ("operation", "function"),
    [("exp", np.exp), ("tanh", np.tanh), ("log", np.log), ("sqrt", np.sqrt),
     ("rsqrt", lambda x: 1 / np.sqrt(x)), ("erf", np.vectorize(math.erf)),
     ("sin", np.sin), ("floor", np.floor), ("roundeven", np.rint),
     ("log1p", np.log1p), ("cbrt", np.cbrt), ("atan", np.arctan)],
)
@pytest.mark.parametrize(("name", "dtype"), FLOATS)
def test_math_is_that_of_the_c_library(operation: str, function, name: str, dtype: np.dtype) -> None:
    a = np.random.default_rng(6).uniform(0.1, 4, 64).astype(dtype)
    (result,) = run_oracle_text(elementwise(name, f"%r = math.{operation} %x : {name}"), "main", [a, a])
    expected = function(a.astype(np.float64))
    tolerance = 4 * float(ml_dtypes.finfo(dtype).eps)
    np.testing.assert_allclose(result.astype(np.float64), expected, rtol=tolerance)


def test_matrix_product_of_named_operations() -> None:
    text = """
    func.func @main(%a: tensor<?x7xf32>, %b: tensor<7x5xf32>) -> tensor<?x5xf32> {
      %c0 = arith.constant 0 : index
      %z = arith.constant 0.0 : f32
      %n = tensor.dim %a, %c0 : tensor<?x7xf32>
      %e = tensor.empty(%n) : tensor<?x5xf32>
      %f = linalg.fill ins(%z : f32) outs(%e : tensor<?x5xf32>) -> tensor<?x5xf32>
      %0 = linalg.matmul ins(%a, %b : tensor<?x7xf32>, tensor<7x5xf32>)
                         outs(%f : tensor<?x5xf32>) -> tensor<?x5xf32>
      return %0 : tensor<?x5xf32>
    }"""
    generator = np.random.default_rng(7)
    b = generator.normal(size=(7, 5)).astype(np.float32)
    for rows in (0, 1, 11):
        a = generator.normal(size=(rows, 7)).astype(np.float32)
        (result,) = run_oracle_text(text, "main", [a, b])
        assert result.shape == (rows, 5)
        np.testing.assert_allclose(result, a @ b, rtol=1e-5, atol=1e-5)


def test_results_may_be_inputs_constants_views_or_the_same_tensor() -> None:
    text = """
    func.func @main(%a: tensor<4x3xf32>) -> (tensor<4x3xf32>, tensor<2xi32>, tensor<12xf32>, tensor<4xf32>,
                                             tensor<4x3xf32>, tensor<f32>) {
      %c = arith.constant dense<[3, -7]> : tensor<2xi32>
      %v = tensor.collapse_shape %a [[0, 1]] : tensor<4x3xf32> into tensor<12xf32>
      %s = tensor.extract_slice %a[0, 1] [4, 1] [1, 1] : tensor<4x3xf32> to tensor<4xf32>
      %z = arith.constant dense<2.5> : tensor<f32>
      return %a, %c, %v, %s, %a, %z : tensor<4x3xf32>, tensor<2xi32>, tensor<12xf32>, tensor<4xf32>,
                                      tensor<4x3xf32>, tensor<f32>
    }"""
    a = np.arange(12, dtype=np.float32).reshape(4, 3)
    results = run_oracle_text(text, "main", [a])
    expected = [a, [3, -7], a.reshape(12), a[:, 1], a, 2.5]
    for got, want in zip(results, expected, strict=True):
        np.testing.assert_array_equal(got, want)
        assert not np.shares_memory(got, a)


def test_inputs_are_never_written_to() -> None:
    text = """
    func.func @main(%a: tensor<4xf32>, %x: tensor<2xf32>) -> tensor<4xf32> {
      %0 = tensor.insert_slice %x into %a[1] [2] [1] : tensor<2xf32> into tensor<4xf32>
      return %0 : tensor<4xf32>
    }"""
    a, x = np.zeros(4, np.float32), np.ones(2, np.float32)
    np.testing.assert_array_equal(run_oracle_text(text, "main", [a, x])[0], [0, 1, 1, 0])
    np.testing.assert_array_equal(a, 0)


def test_parameters_follow_the_inputs_and_private_functions_are_called() -> None:
    text = """
    func.func private @twice(%x: tensor<3xf32>, %y: tensor<3xf32>) -> tensor<3xf32> {
      %e = tensor.empty() : tensor<3xf32>
      %0 = linalg.add ins(%x, %y : tensor<3xf32>, tensor<3xf32>) outs(%e : tensor<3xf32>) -> tensor<3xf32>
      return %0 : tensor<3xf32>
    }
    func.func @other(%a: tensor<3xf32>) -> tensor<3xf32> { return %a : tensor<3xf32> }
    func.func @main(%a: tensor<3xf32> {motet.name = "x"}, %w: tensor<3xf32> {motet.parameter = "weight"})
        -> (tensor<3xf32> {motet.destination = 0 : i64}) {
      %0 = call @twice(%a, %w) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      %1 = call @twice(%0, %w) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
      %2 = call @other(%1) : (tensor<3xf32>) -> tensor<3xf32>
      return %2 : tensor<3xf32>
    }"""
    a, weight = np.random.default_rng(8).normal(size=(2, 3)).astype(np.float32)
    context = ir.Context()
    context.allow_unregistered_dialects = True
    with context, ir.Location.unknown():
        program = Program(ir.Module.parse(text), {"weight": weight})
        before = str(program.module)
        for _ in range(2):
            np.testing.assert_array_equal(run_oracle(program, "main", [a])[0], a + weight + weight)
        np.testing.assert_array_equal(run_oracle(program, "other", [a])[0], a)
        assert str(program.module) == before


def test_loops_with_a_carried_tensor() -> None:
    text = """
    func.func @main(%a: tensor<?xf64>, %n: tensor<index>) -> tensor<?xf64> {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %k = tensor.extract %n[] : tensor<index>
      %r = scf.for %i = %c0 to %k step %c1 iter_args(%t = %a) -> tensor<?xf64> {
        %d = tensor.dim %t, %c0 : tensor<?xf64>
        %e = tensor.empty(%d) : tensor<?xf64>
        %u = linalg.add ins(%t, %a : tensor<?xf64>, tensor<?xf64>) outs(%e : tensor<?xf64>) -> tensor<?xf64>
        scf.yield %u : tensor<?xf64>
      }
      return %r : tensor<?xf64>
    }"""
    a = np.arange(5.0)
    for count in (0, 1, 6):
        (result,) = run_oracle_text(text, "main", [a, np.array(count)])
        np.testing.assert_array_equal(result, a * (count + 1))


def test_concatenation_softmax_and_padding() -> None:
    text = """
    func.func @main(%a: tensor<4x?xf32>, %b: tensor<4x3xf32>)
        -> (tensor<4x?xf32>, tensor<4x3xf32>, tensor<8x?xf32>) {
      %c = tensor.concat dim(1) %a, %b : (tensor<4x?xf32>, tensor<4x3xf32>) -> tensor<4x?xf32>
      %e = tensor.empty() : tensor<4x3xf32>
      %s = linalg.softmax dimension(1) ins(%b : tensor<4x3xf32>) outs(%e : tensor<4x3xf32>) -> tensor<4x3xf32>
      %z = arith.constant 7.0 : f32
      %p = tensor.pad %a low[1, 2] high[3, 4] {
      ^bb0(%x: index, %y: index):
        tensor.yield %z : f32
      } : tensor<4x?xf32> to tensor<8x?xf32>
      return %c, %s, %p : tensor<4x?xf32>, tensor<4x3xf32>, tensor<8x?xf32>
    }"""
    generator = np.random.default_rng(9)
    a, b = generator.normal(size=(4, 5)).astype(np.float32), generator.normal(size=(4, 3)).astype(np.float32)
    joined, softmax, padded = run_oracle_text(text, "main", [a, b])
    np.testing.assert_array_equal(joined, np.concatenate([a, b], 1))
    exps = np.exp(b - b.max(1, keepdims=True))
    np.testing.assert_allclose(softmax, exps / exps.sum(1, keepdims=True), rtol=1e-6)
    np.testing.assert_array_equal(padded, np.pad(a, ((1, 3), (2, 4)), constant_values=7))


def test_complex_numbers() -> None:
    a, b = np.random.default_rng(10).normal(size=(2, 9, 2)).view(np.complex128)[..., 0].astype(np.complex64)
    text = elementwise("complex<f32>", "%r = complex.mul %x, %y : complex<f32>")
    np.testing.assert_allclose(run_oracle_text(text, "main", [a, b])[0], a * b, rtol=1e-5)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [([np.zeros(3, np.float32)], "expected 2 inputs"),
     ([np.zeros(3, np.float32), np.zeros((3, 1), np.float32)], r"input 1: expected tensor<\?xf32>"),
     ([np.zeros(3, np.float32), np.zeros(3)], "float64")],
)
def test_inputs_that_do_not_fit_are_an_error(inputs: list[np.ndarray], message: str) -> None:
    with pytest.raises(CallError, match=message):
        run_oracle_text(elementwise("f32", "%r = arith.addf %x, %y : f32"), "main", inputs)


def test_an_unknown_function_is_an_error() -> None:
    with pytest.raises(CallError, match="'nothing'"):
        run_oracle_text("func.func @main() { return }", "nothing", [])


@pytest.mark.parametrize("shape, dim", [((3, 50), 1), ((20, 3), 0), ((2, 1, 4), 1)])
def test_sorts_and_scans_of_whole_tensors(shape: tuple[int, ...], dim: int) -> None:
    x = np.random.default_rng(0).standard_normal(shape).round(1).astype("f4")
    positions = np.ascontiguousarray(np.broadcast_to(np.indices(shape)[dim], shape))
    program = load(sort(shape, dim, "arith.cmpf ole", "f32"), "sort.mlir")
    y, p = run_oracle(program, "main", [x, positions])
    order = np.argsort(x, dim, kind="stable")
    np.testing.assert_array_equal(p, order)
    np.testing.assert_array_equal(y, np.take_along_axis(x, order, dim))
    (total,) = run_oracle(load(scan(shape, dim, "arith.addf", "f32"), "scan.mlir"), "main", [x])
    np.testing.assert_allclose(total, np.cumsum(x.astype("f8"), dim), rtol=1e-4, atol=1e-4)


def test_what_only_another_oracle_finds_is_said_to_be_in_how_the_source_is_read() -> None:
    text = elementwise("f32", "%r = arith.addf %x, %y : f32")
    a, b = np.arange(7, dtype=np.float32), np.ones(7, np.float32)
    with ir.Context(), ir.Location.unknown():
        report = verify(
            Program(ir.Module.parse(text)), "main", {"input0": a, "input1": b, "result0": a + b}, [], 1,
            lambda inputs: [inputs[0] - inputs[1]],
        )
    assert not report.ok and len(report.lines) == 2
    assert "7 elements differ, the first at [0]: 1.0, expected -1.0" in report.lines[0]
    assert "the difference is in how the source is read, or is the oracle's" in report.lines[1]
