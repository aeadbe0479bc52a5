"""Pads that remove elements on one side, and may add as many on the other, in MLIR and StableHLO; and by the oracle."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from tests.prepared import load_mlir

import motet
from motet.compiler.verify.oracle import run_oracle
from motet.errors import CompileError

AMOUNTS = [  # of rows and of columns
    ((1, -1), (0, 0)), ((-1, 1), (0, 0)), ((0, 0), (1, -1)), ((2, -1), (0, 1)), ((-3, 2), (-1, 1)), ((-4, 4), (0, 0)),
    ((-1, -1), (1, 1)), ((4, -4), (-5, 5)),
]  # fmt: skip
X = np.random.default_rng(1).standard_normal((4, 5)).astype(np.float32)


def padded(rows: tuple[int, int], columns: tuple[int, int]) -> np.ndarray:
    left = X[tuple(slice(max(0, -low), size - max(0, -high)) for (low, high), size in
                   zip((rows, columns), X.shape, strict=True))]
    return np.pad(left, [(max(0, low), max(0, high)) for low, high in (rows, columns)], constant_values=2.5)


def pad(number: int, rows: tuple[int, int], columns: tuple[int, int], constants: bool) -> str:
    """One function; with `constants` the amounts for rows are values."""
    shape = f"{4 + sum(rows)}x{5 + sum(columns)}"
    low, high = (f"%a{side}" if constants else str(rows[side]) for side in (0, 1))
    return f"""
      func.func @pad{number}(%x: tensor<4x5xf32>) -> tensor<{shape}xf32> {{
        %c = arith.constant 2.5 : f32
        %a0 = arith.constant {rows[0]} : index
        %a1 = arith.constant {rows[1]} : index
        %r = tensor.pad %x low[{low}, {columns[0]}] high[{high}, {columns[1]}] {{
          ^bb0(%i: index, %j: index): tensor.yield %c : f32
        }} : tensor<4x5xf32> to tensor<{shape}xf32>
        return %r : tensor<{shape}xf32>
      }}"""


CASES = [(rows, columns, constants) for (rows, columns), constants in product(AMOUNTS, (False, True))]


def test_negative_pads_remove_and_add() -> None:
    text = "module {" + "".join(pad(n, *case) for n, case in enumerate(CASES)) + "}"
    session, program = motet.load(motet.compile(text)), load_mlir(text, "pads.mlir")
    for number, (rows, columns, constants) in enumerate(CASES):
        what, name = f"{rows} {columns} {constants}", f"pad{number}"
        np.testing.assert_array_equal(session.functions[name](X), padded(rows, columns), what)
        np.testing.assert_array_equal(run_oracle(program, name, [X])[0], padded(rows, columns), f"oracle {what}")


def test_pads_that_a_call_decides_are_refused_where_extents_are_fixed() -> None:
    text = """
      func.func @shift(%x: tensor<4xf32>, %by: tensor<1xindex>) -> tensor<4xf32> {
        %c = arith.constant 0.0 : f32
        %zero = arith.constant 0 : index
        %low = tensor.extract %by[%zero] : tensor<1xindex>
        %high = arith.subi %zero, %low : index
        %r = tensor.pad %x low[%low] high[%high] { ^bb0(%i: index): tensor.yield %c : f32 }
          : tensor<4xf32> to tensor<4xf32>
        return %r : tensor<4xf32>
      }"""
    with pytest.raises(CompileError, match=r":7:\d+: tensor.pad: amounts that a call decides"):
        motet.compile(text)


@pytest.mark.parametrize(("rows", "columns"), [((1, -1), (-1, 1)), ((-2, 3), (0, -1))])
def test_stablehlo_pads(rows: tuple[int, int], columns: tuple[int, int]) -> None:
    shape = f"{4 + sum(rows)}x{5 + sum(columns)}"
    text = f"""
      func.func public @main(%x: tensor<4x5xf32>) -> tensor<{shape}xf32> {{
        %c = stablehlo.constant dense<2.5> : tensor<f32>
        %0 = stablehlo.pad %x, %c, low = [{rows[0]}, {columns[0]}], high = [{rows[1]}, {columns[1]}], interior = [0, 0]
          : (tensor<4x5xf32>, tensor<f32>) -> tensor<{shape}xf32>
        return %0 : tensor<{shape}xf32>
      }}"""
    np.testing.assert_array_equal(motet.load(motet.compile(text, format="stablehlo"))(X), padded(rows, columns))
