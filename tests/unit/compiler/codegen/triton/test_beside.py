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
