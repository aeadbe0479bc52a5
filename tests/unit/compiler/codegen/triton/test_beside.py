"""Launches that need nothing of one another are one."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.compiler.codegen.triton.building import generate, interpret, random
from tests.unit.compiler.codegen.triton.texts import tensor


def concatenation(widths: list[int], rows: int) -> str:
    kinds = [tensor((rows, width), "f32") for width in widths]
    names = [f"%a{i}" for i in range(len(widths))]
    whole = tensor((rows, sum(widths)), "f32")
    given = ", ".join(f"{name}: {kind}" for name, kind in zip(names, kinds, strict=True))
    return f"""
func.func @main({given}) -> {whole} {{
  %r = tensor.concat dim(1) {", ".join(names)} : ({", ".join(kinds)}) -> {whole}
  return %r : {whole}
}}"""


@pytest.mark.parametrize("widths", [[3, 5], [1, 700, 64, 2, 3000], [7] * 40])
def test_a_concatenation_is_one_launch(widths: list[int]) -> None:
    made = generate(concatenation(widths, 5))
    assert len(made.schedule.commands) == -(-len(widths) // 32)
    parts = [random(5, width, seed=number) for number, width in enumerate(widths)]
    (got,) = interpret(made, parts)
    np.testing.assert_array_equal(got, np.concatenate(parts, 1))


def sums(rows: int, width: int, parts: list[tuple[int, int]]) -> str:
    """The squares of sums of parts of rows, (first element, length), one after the other."""
    whole, row, joined = tensor((rows, width), "f32"), tensor((rows,), "f32"), tensor((len(parts) * rows,), "f32")
    lines: list[str] = []
    for number, (begin, length) in enumerate(parts):
        part = tensor((rows, length), "f32")
        lines += [
            f"%p{number} = tensor.extract_slice %x[0, {begin}] [{rows}, {length}] [1, 1] : {whole} to {part}",
            f"%s{number} = linalg.reduce ins(%p{number} : {part}) outs(%z : {row}) dimensions = [1]",
            "  (%a: f32, %b: f32) { %c = arith.addf %a, %b : f32 linalg.yield %c : f32 }",
            f"%r{number} = arith.mulf %s{number}, %s{number} : {row}",
        ]
    names = ", ".join(f"%r{number}" for number in range(len(parts)))
    text = "\n  ".join(lines)
    return f"""
func.func @main(%x: {whole}) -> {joined} {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : {row}
  %z = linalg.fill ins(%zero : f32) outs(%e : {row}) -> {row}
  {text}
  %r = tensor.concat dim(0) {names} : ({", ".join([row] * len(parts))}) -> {joined}
  return %r : {joined}
}}"""


@pytest.mark.parametrize("parts", [
    [(0, 3), (2, 3)], [(0, 7), (5, 9), (11, 7), (0, 20)], [(number, 6) for number in range(9)],
])
def test_a_concatenation_of_sums_is_one_launch(parts: list[tuple[int, int]]) -> None:
    made = generate(sums(40, 20, parts))
    assert len(made.schedule.commands) == 1
    x = random(40, 20)
    exact = np.concatenate([x[:, begin : begin + length].astype("f8").sum(1) ** 2 for begin, length in parts])
    np.testing.assert_allclose(interpret(made, [x])[0], exact, rtol=1e-4, atol=1e-4)


def inserted(begin: int) -> str:
    """Two rows of numbers, one after the other, put into one."""
    part, whole = tensor((8,), "f32"), tensor((32,), "f32")
    return f"""
func.func @main(%a: {part}, %b: {part}, %w: {whole}) -> {whole} {{
  %0 = tensor.insert_slice %a into %w[4] [8] [1] : {part} into {whole}
  %1 = tensor.insert_slice %b into %0[{begin}] [8] [1] : {part} into {whole}
  return %1 : {whole}
}}"""


@pytest.mark.parametrize("begin", [6, 12, 20])
def test_what_is_written_twice_is_written_in_order(begin: int) -> None:
    a, b, whole = random(8), random(8, seed=1), random(32, seed=2)
    (got,) = interpret(generate(inserted(begin)), [a, b, whole])
    expected = whole.copy()
    expected[4:12] = a
    expected[begin : begin + 8] = b
    np.testing.assert_array_equal(got, expected)


ROTATION = """
func.func @main(%x: tensor<6x9xf32>) -> tensor<6x9xf32> {
  %a = tensor.extract_slice %x[4, 0] [2, 9] [1, 1] : tensor<6x9xf32> to tensor<2x9xf32>
  %b = tensor.extract_slice %x[0, 0] [4, 9] [1, 1] : tensor<6x9xf32> to tensor<4x9xf32>
  %c = tensor.concat dim(0) %a, %b : (tensor<2x9xf32>, tensor<4x9xf32>) -> tensor<6x9xf32>
  %d = tensor.extract_slice %c[0, 3] [6, 6] [1, 1] : tensor<6x9xf32> to tensor<6x6xf32>
  %e = tensor.extract_slice %c[0, 0] [6, 3] [1, 1] : tensor<6x9xf32> to tensor<6x3xf32>
  %f = tensor.concat dim(1) %d, %e : (tensor<6x6xf32>, tensor<6x3xf32>) -> tensor<6x9xf32>
  return %f : tensor<6x9xf32>
}"""


def test_a_rotation_of_two_axes_is_one_launch() -> None:
    made, x = generate(ROTATION), random(6, 9)
    assert len(made.schedule.commands) == 1
    np.testing.assert_array_equal(interpret(made, [x])[0], np.roll(x, (2, -3), (0, 1)))
