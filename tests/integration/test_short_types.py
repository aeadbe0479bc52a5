"""Programs in MLIR and StableHLO on 8-bit floats and types of 4 and 2 bits, compared with ml_dtypes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import motet
from motet.artifact.dtypes import DTYPES
from motet.errors import CallError

FLOATS = ("f8E4M3FN", "f8E4M3", "f8E3M4", "f8E4M3B11FNUZ", "f8E5M2FNUZ", "f8E8M0FNU", "f6E3M2FN")
INTEGERS = ("i4", "ui2")


def load(text: str) -> motet.Session:
    return motet.load(motet.compile(text, devices="host{cpu=x86-64-v3}", cache=False), threads=1)


def codes(dtype: np.dtype) -> np.ndarray:
    """Every element of a type."""
    bits = 8 if dtype.name.startswith("float8") else int("".join(filter(str.isdigit, dtype.name))[:1])
    return np.arange(1 << bits, dtype=np.uint8).view(dtype)


def same(result: np.ndarray, expected: np.ndarray) -> None:
    assert result.dtype == expected.dtype
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(result.astype(np.float64), expected.astype(np.float64))


def test_stablehlo_converts_moves_and_calculates() -> None:
    kinds = (*FLOATS, *INTEGERS)
    calculated = {name: "add" if name != "f8E8M0FNU" else "maximum" for name in kinds}
    given = [codes(DTYPES[name]) for name in kinds]
    arguments = ", ".join(f"%x{n}: tensor<{given[n].size}x{name}>" for n, name in enumerate(kinds))
    body, results, types = [], [], []
    for n, name in enumerate(kinds):
        size = given[n].size
        body.append(f"""
          %wide{n} = stablehlo.convert %x{n} : (tensor<{size}x{name}>) -> tensor<{size}xf32>
          %back{n} = stablehlo.convert %wide{n} : (tensor<{size}xf32>) -> tensor<{size}x{name}>
          %turned{n} = stablehlo.reverse %back{n}, dims = [0] : tensor<{size}x{name}>
          %made{n} = stablehlo.{calculated[name]} %x{n}, %turned{n} : tensor<{size}x{name}>""")
        results += [f"%wide{n}", f"%turned{n}", f"%made{n}"]
        types += [f"tensor<{size}xf32>", f"tensor<{size}x{name}>", f"tensor<{size}x{name}>"]
    session = load(f"func.func @main({arguments}) -> ({', '.join(types)}) {{ {''.join(body)}\n"
                   f"return {', '.join(results)} : {', '.join(types)} }}")
    found = session(*given)
    assert [spec.dtype for spec in session.main.signature.inputs] == list(kinds)
    for n, name in enumerate(kinds):
        wide, turned, made = found[3 * n : 3 * n + 3]
        same(wide, given[n].astype(np.float32))
        same(turned, given[n][::-1].copy())
        with np.errstate(all="ignore"):
            pair = [each.astype(np.float32) for each in (given[n], given[n][::-1])]
            expected = pair[0] + pair[1] if calculated[name] == "add" else np.maximum(*pair)
            if name in INTEGERS:
                expected = expected.astype(np.int8)
            same(made, expected.astype(given[n].dtype))


def test_products_of_four_bit_integers_with_constants() -> None:
    session = load("""
        func.func @main(%x: tensor<3x4xi4>) -> (tensor<3x2xi32>, tensor<5x4xi4>) {
          %w = arith.constant dense<[[7, -8], [1, 2], [-3, 4], [5, -6]]> : tensor<4x2xi4>
          %zero = arith.constant 0 : i32
          %empty = tensor.empty() : tensor<3x2xi32>
          %begin = linalg.fill ins(%zero : i32) outs(%empty : tensor<3x2xi32>) -> tensor<3x2xi32>
          %product = linalg.matmul ins(%x, %w : tensor<3x4xi4>, tensor<4x2xi4>)
                       outs(%begin : tensor<3x2xi32>) -> tensor<3x2xi32>
          %seven = arith.constant -7 : i4
          %padded = tensor.pad %x low[1, 0] high[1, 0] {
            ^bb0(%i: index, %j: index): tensor.yield %seven : i4 } : tensor<3x4xi4> to tensor<5x4xi4>
          return %product, %padded : tensor<3x2xi32>, tensor<5x4xi4>
        }""")
    x = np.arange(-6, 6).reshape(3, 4).astype(ml_dtypes.int4)
    weight = np.array([[7, -8], [1, 2], [-3, 4], [5, -6]])
    product, padded = session(x)
    same(product, (x.astype(np.int32) @ weight).astype(np.int32))
    same(padded, np.pad(x.astype(np.int8), ((1, 1), (0, 0)), constant_values=-7).astype(ml_dtypes.int4))


def test_constants_of_short_floats() -> None:
    session = load("""
        func.func @main() -> (tensor<4xf8E5M2FNUZ>, tensor<3xf8E5M2>, tensor<2x2xf4E2M1FN>, tensor<3xf32>) {
          %a = arith.constant dense<[1.5, -0.25, 0x80, 57344.0]> : tensor<4xf8E5M2FNUZ>
          %b = arith.constant dense<[0x7C, 0xFC, 0x7E]> : tensor<3xf8E5M2>
          %c = arith.constant dense<-6.0> : tensor<2x2xf4E2M1FN>
          %d = arith.extf %b : tensor<3xf8E5M2> to tensor<3xf32>
          return %a, %b, %c, %d : tensor<4xf8E5M2FNUZ>, tensor<3xf8E5M2>, tensor<2x2xf4E2M1FN>, tensor<3xf32>
        }""")
    a, b, c, d = session()
    same(a, np.array([1.5, -0.25, np.nan, 57344], ml_dtypes.float8_e5m2fnuz))
    same(b, np.array([np.inf, -np.inf, np.nan], ml_dtypes.float8_e5m2))
    same(c, np.full((2, 2), -6, ml_dtypes.float4_e2m1fn))
    same(d, np.array([np.inf, -np.inf, np.nan], np.float32))


def test_other_dtypes_are_refused_and_unused_bits_ignored() -> None:
    session = load("""
        func.func @main(%x: tensor<2xi4>) -> tensor<2xf32> {
          %0 = arith.sitofp %x : tensor<2xi4> to tensor<2xf32>
          return %0 : tensor<2xf32>
        }""")
    same(session(np.array([0xF5, 0x18], np.uint8).view(ml_dtypes.int4)), np.array([5, -8], np.float32))
    for wrong, name in ((np.zeros(2, np.int8), "i8"), (np.zeros(2, ml_dtypes.uint4), "ui4")):
        with pytest.raises(CallError, match=f"dtype {name} given, i4 expected"):
            session(wrong)
