"""Constants that numpy calculates are those that the oracle does, to the bit; what it may not calculate is left."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.unit.compiler.building import run_oracle_text

import motet
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.program import Program
from motet.compiler.passes.fuse import fold_constants
from motet.compiler.passes.fuse.evaluate import evaluate
from motet.compiler.verify.oracle import OracleCode, oracle_code

MAPS = "indexing_maps = [affine_map<(i, j) -> ({0})>, affine_map<(i, j) -> ({0})>, affine_map<(i, j) -> (i, j)>]"
KERNEL = """
func.func @main(%a: tensor<17x13x{0}>, %b: tensor<17x13x{0}>) -> tensor<17x13x{1}> {{
  %e = tensor.empty() : tensor<17x13x{1}>
  %r = linalg.generic {{{2}, iterator_types = ["parallel", "parallel"]}}
      ins(%a, %b : tensor<17x13x{0}>, tensor<17x13x{0}>) outs(%e : tensor<17x13x{1}>) {{
  ^bb0(%x: {0}, %y: {0}, %out: {1}):
    {3}
    linalg.yield %z : {1}
  }} -> tensor<17x13x{1}>
  return %r : tensor<17x13x{1}>
}}
"""
DTYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "i32": np.int32}


def text(given: str, made: str, body: str, order: str = "i, j") -> str:
    return KERNEL.format(given, made, MAPS.format(order), body)


def numbers(dtype: str) -> np.ndarray:
    """Numbers of all sizes, with infinities, zeros of both signs, NaN, and some between two of a shorter type."""
    random = np.random.default_rng(5)
    with np.errstate(all="ignore"):
        values = random.normal(size=(17, 13)) * 10.0 ** random.integers(-12, 12, (17, 13))
        values.flat[:8] = [np.inf, -np.inf, 0.0, -0.0, np.nan, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 65520]
        return values.astype(DTYPES[dtype])


def evaluated(source: str, inputs: list[np.ndarray]) -> list[np.ndarray] | None:
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse(source)
        return evaluate(module.body.operations[0].operation, inputs)


@pytest.mark.parametrize(("given", "made", "body"), [
    ("bf16", "f32", "%z = arith.extf %x : bf16 to f32"),
    ("f16", "f32", "%z = arith.extf %x : f16 to f32"),
    ("f32", "f64", "%z = arith.extf %x : f32 to f64"),
    ("f32", "bf16", "%z = arith.truncf %x : f32 to bf16"),
    ("f32", "f16", "%z = arith.truncf %x : f32 to f16"),
    ("f64", "f32", "%z = arith.truncf %x : f64 to f32"),
    ("f32", "f32", "%z = arith.addf %x, %y : f32"),
    ("f32", "f32", "%z = arith.subf %x, %y : f32"),
    ("f64", "f64", "%z = arith.mulf %x, %y : f64"),
    ("f32", "f32", "%z = arith.divf %x, %y : f32"),
    ("bf16", "bf16", "%p = arith.extf %x : bf16 to f32\n%q = arith.extf %y : bf16 to f32\n"
     "%m = arith.mulf %p, %q : f32\n%n = arith.negf %m : f32\n%z = arith.truncf %n : f32 to bf16"),
])  # fmt: skip
def test_results_are_the_oracles(given: str, made: str, body: str) -> None:
    inputs = [numbers(given), np.flip(numbers(given), 0).copy()]
    found = evaluated(text(given, made, body), inputs)
    (expected,) = run_oracle_text(text(given, made, body), "main", inputs)
    assert found is not None and found[0].dtype == expected.dtype == DTYPES[made]
    numeric = ~np.isnan(expected)  # which bits a NaN has is nobody's promise
    np.testing.assert_array_equal(found[0][numeric].view(np.uint8), expected[numeric].view(np.uint8))
    np.testing.assert_array_equal(np.isnan(found[0]), ~numeric)


@pytest.mark.parametrize(("given", "made", "body", "order"), [
    ("f32", "f32", "%z = math.exp %x : f32", "i, j"),
    ("bf16", "bf16", "%z = arith.addf %x, %y : bf16", "i, j"),
    ("i32", "i32", "%z = arith.addi %x, %y : i32", "i, j"),
    ("f32", "f32", "%z = arith.addf %out, %y : f32", "i, j"),
])  # fmt: skip
def test_what_may_differ_is_left(given: str, made: str, body: str, order: str) -> None:
    inputs = [numbers("f32").astype(DTYPES[given])] * 2 if given != "i32" else [np.ones((17, 13), np.int32)] * 2
    assert evaluated(text(given, made, body, order), inputs) is None


def test_operands_that_lie_otherwise_are_left() -> None:
    source = text("f32", "f32", "%z = arith.addf %x, %y : f32", "j, i").replace("17x13", "13x13")
    assert evaluated(source, [np.ones((13, 13), np.float32)] * 2) is None


def test_constants_rounded_from_f64_to_bf16_are_left_to_the_compiled_program() -> None:
    """The oracle's engine has no function that rounds so; and rounding by way of f32 would round twice."""
    just_above_a_tie = 1 + 2.0**-8 + 2.0**-40
    session = motet.load(motet.compile(f"""
        func.func @main(%x: tensor<2xbf16>) -> (tensor<2xbf16>, tensor<2xbf16>) {{
          %c = arith.constant dense<[{just_above_a_tie!r}, 4.0]> : tensor<2xf64>
          %e = tensor.empty() : tensor<2xbf16>
          %r = linalg.generic {{indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
              iterator_types = ["parallel"]}} ins(%c : tensor<2xf64>) outs(%e : tensor<2xbf16>) {{
          ^bb0(%a: f64, %out: bf16):
            %b = arith.truncf %a : f64 to bf16
            %s = math.absf %b : bf16
            %q = math.sqrt %s : bf16
            %z = arith.mulf %q, %q : bf16
            linalg.yield %z : bf16
          }} -> tensor<2xbf16>
          return %r, %x : tensor<2xbf16>, tensor<2xbf16>
        }}""", cache=False))
    found, _ = session(np.zeros(2, ml_dtypes.bfloat16))
    root = np.sqrt(np.array([1 + 2.0**-7, 4.0])).astype(ml_dtypes.bfloat16)
    assert (found == (root.astype(np.float64) ** 2).astype(ml_dtypes.bfloat16)).all()


def test_equal_kernels_of_constants_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row sums of three weights, two of them of equal shape."""
    made: list[ir.Module] = []

    def counted(module: ir.Module, function: str) -> OracleCode:
        made.append(module)
        return oracle_code(module, function)

    monkeypatch.setattr(fold_constants, "oracle_code", counted)
    random = np.random.default_rng(3)
    weights = {name: random.normal(size=shape) for name, shape in (("a", (3, 5)), ("b", (3, 5)), ("c", (4, 5)))}
    kernels, calls, arguments = "", "", ""
    for name, weight in weights.items():
        whole, rows = f"tensor<{len(weight)}x5xf64>", f"tensor<{len(weight)}xf64>"
        arguments += f", %{name}: {whole} {{motet.parameter = \"{name}\"}}"
        calls += f"%r{name} = call @sum_{name}(%{name}) : ({whole}) -> {rows}\n"
        kernels += f"""func.func private @sum_{name}(%w: {whole}) -> {rows} {{
          %z = arith.constant dense<0.0> : {rows}
          %s = linalg.reduce ins(%w : {whole}) outs(%z : {rows}) dimensions = [1]
            (%x: f64, %y: f64) {{ %t = arith.addf %x, %y : f64  linalg.yield %t : f64 }}
          return %s : {rows}
        }}
        """
    source = f"""func.func @main(%x: tensor<1xf64>{arguments}) -> (tensor<3xf64>, tensor<3xf64>, tensor<4xf64>) {{
      {calls} return %ra, %rb, %rc : tensor<3xf64>, tensor<3xf64>, tensor<4xf64>
    }}
    {kernels}"""
    context = ir.Context()
    context.allow_unregistered_dialects = True
    with context, ir.Location.unknown():
        program = Program(ir.Module.parse(source), weights)
        assert fold_constants.FoldConstants().run(program)
    assert len(made) == 2
    for weight in weights.values():
        sums = [np.sum(weight, axis=1)]
        assert any(np.allclose(array, sums) for array in program.parameters.values() if array.shape == sums[0].shape)
