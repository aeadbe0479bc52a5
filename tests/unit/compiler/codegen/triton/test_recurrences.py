"""Loops over the elements of sequences as one program, by Triton's interpreter; what is no recurrence is unrolled."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.compiler.codegen.triton.building import Generated, check, generate, random

from motet.compiler.codegen.triton.compile.objects import compile_programs
from motet.compiler.targets.families import resolve_target
from motet.compiler.targets.gpu import GpuTarget

# A layer y[t] = tanh(x[p(t)] + b + h · w): `place` computes p(t) from %t.
LAYER = """
#m = affine_map<(i, j, k) -> (i, k)>
#w = affine_map<(i, j, k) -> (k, j)>
#p = affine_map<(i, j, k) -> (i, j)>
#e = affine_map<(i, j) -> (i, j)>
#b = affine_map<(i, j) -> (j)>
func.func @main(%x: tensor<{t}x{n}x{h}x{d}>, %w: tensor<{h}x{h}x{d}>, %b: tensor<{h}x{d}>, %h0: tensor<{n}x{h}x{d}>)
    -> (tensor<{t}x{n}x{h}x{d}>, tensor<{n}x{h}x{d}>) {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %last = arith.constant {last} : index
  %ct = arith.constant {t} : index
  %zero = arith.constant 0.0 : {d}
  %e = tensor.empty() : tensor<{n}x{h}x{d}>
  %s = tensor.empty() : tensor<{t}x{n}x{h}x{d}>
  %r:2 = scf.for %t = %c0 to %ct step %c1 iter_args(%y = %s, %h = %h0)
      -> (tensor<{t}x{n}x{h}x{d}>, tensor<{n}x{h}x{d}>) {{
    {place}
    %xt = tensor.extract_slice %x[%q, 0, 0] [1, {n}, {h}] [1, 1, 1]
        : tensor<{t}x{n}x{h}x{d}> to tensor<{n}x{h}x{d}>
    %z = linalg.fill ins(%zero : {d}) outs(%e : tensor<{n}x{h}x{d}>) -> tensor<{n}x{h}x{d}>
    %m = linalg.generic {{indexing_maps = [#m, #w, #p], iterator_types = ["parallel", "parallel", "reduction"]}}
        ins(%h, %w : tensor<{n}x{h}x{d}>, tensor<{h}x{h}x{d}>) outs(%z : tensor<{n}x{h}x{d}>) {{
    ^bb0(%u: {d}, %v: {d}, %o: {d}):
      %k = arith.mulf %u, %v : {d}
      %a = arith.addf %o, %k : {d}
      linalg.yield %a : {d}
    }} -> tensor<{n}x{h}x{d}>
    %g = linalg.generic {{indexing_maps = [#e, #e, #b, #e], iterator_types = ["parallel", "parallel"]}}
        ins(%m, %xt, %b : tensor<{n}x{h}x{d}>, tensor<{n}x{h}x{d}>, tensor<{h}x{d}>)
        outs(%e : tensor<{n}x{h}x{d}>) {{
    ^bb0(%u: {d}, %v: {d}, %c: {d}, %o: {d}):
      %f = arith.addf %u, %v : {d}
      %a = arith.addf %f, %c : {d}
      %n = math.tanh %a : {d}
      linalg.yield %n : {d}
    }} -> tensor<{n}x{h}x{d}>
    %i = tensor.insert_slice %g into %y[%t, 0, 0] [1, {n}, {h}] [1, 1, 1]
        : tensor<{n}x{h}x{d}> into tensor<{t}x{n}x{h}x{d}>
    scf.yield %i, %g : tensor<{t}x{n}x{h}x{d}>, tensor<{n}x{h}x{d}>
  }}
  return %r#0, %r#1 : tensor<{t}x{n}x{h}x{d}>, tensor<{n}x{h}x{d}>
}}"""
FORWARD, BACKWARD = "%q = arith.addi %t, %c0 : index", "%q = arith.subi %last, %t : index"
HALVES = "%q = arith.divui %t, %c2 : index"
FOLDED = "%d = arith.subi %last, %t : index\n    %q = arith.minsi %t, %d : index"

# s = a[t] · s + x[t]: no value has columns.
SCAN = """
#e = affine_map<(i, j) -> (i, j)>
func.func @main(%a: tensor<9x5x70xf32>, %x: tensor<9x5x70xf32>) -> tensor<9x5x70xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c9 = arith.constant 9 : index
  %h0 = arith.constant dense<1.0> : tensor<5x70xf32>
  %e = tensor.empty() : tensor<5x70xf32>
  %s = tensor.empty() : tensor<9x5x70xf32>
  %r:2 = scf.for %t = %c0 to %c9 step %c1 iter_args(%y = %s, %h = %h0) -> (tensor<9x5x70xf32>, tensor<5x70xf32>) {
    %at = tensor.extract_slice %a[%t, 0, 0] [1, 5, 70] [1, 1, 1] : tensor<9x5x70xf32> to tensor<5x70xf32>
    %xt = tensor.extract_slice %x[%t, 0, 0] [1, 5, 70] [1, 1, 1] : tensor<9x5x70xf32> to tensor<5x70xf32>
    %n = linalg.generic {indexing_maps = [#e, #e, #e, #e], iterator_types = ["parallel", "parallel"]}
        ins(%at, %xt, %h : tensor<5x70xf32>, tensor<5x70xf32>, tensor<5x70xf32>) outs(%e : tensor<5x70xf32>) {
    ^bb0(%u: f32, %v: f32, %w: f32, %o: f32):
      %p = arith.mulf %u, %w : f32
      %q = arith.addf %p, %v : f32
      linalg.yield %q : f32
    } -> tensor<5x70xf32>
    %i = tensor.insert_slice %n into %y[%t, 0, 0] [1, 5, 70] [1, 1, 1] : tensor<5x70xf32> into tensor<9x5x70xf32>
    scf.yield %i, %n : tensor<9x5x70xf32>, tensor<5x70xf32>
  }
  return %r#0 : tensor<9x5x70xf32>
}"""


def layer(steps: int, rows: int, hidden: int, place: str = FORWARD, dtype: str = "f32") -> tuple[str, list[np.ndarray]]:
    text = LAYER.format(t=steps, n=rows, h=hidden, d=dtype, last=steps - 1, place=place)
    kind = {"f32": "float32", "f64": "float64", "bf16": "bfloat16"}[dtype]
    shapes = ((steps, rows, hidden), (hidden, hidden), (hidden,), (rows, hidden))
    return text, [(random(*shape) * 0.5).astype(kind) for shape in shapes]


def recurrences(made: Generated) -> int:
    return made.kinds.count("recurrence")


@pytest.mark.parametrize("steps, rows, hidden", [(4, 1, 1), (5, 3, 7), (9, 2, 16), (4, 3, 33)])
@pytest.mark.parametrize("place", [FORWARD, BACKWARD])
def test_a_layer_is_one_program(steps: int, rows: int, hidden: int, place: str) -> None:
    made = check(*layer(steps, rows, hidden, place))
    assert recurrences(made) == 1


@pytest.mark.parametrize("dtype, tolerance", [("f64", 1e-12), ("bf16", 2e-2)])
def test_a_layer_of_another_type(dtype: str, tolerance: float) -> None:
    made = check(*layer(5, 2, 9, dtype=dtype), tolerance=tolerance)
    assert recurrences(made) == 1


@pytest.mark.parametrize("place", [HALVES, FOLDED])
def test_places_that_are_not_linear_are_unrolled(place: str) -> None:
    made = check(*layer(6, 2, 5, place))
    assert recurrences(made) == 0


def test_three_iterations_are_unrolled() -> None:
    assert recurrences(check(*layer(3, 2, 5))) == 0


def test_hidden_states_that_do_not_fit_a_program_are_unrolled() -> None:
    text, _ = layer(4, 1, 600)
    assert recurrences(generate(text)) == 0


def test_elements_of_a_scan_are_spread_over_programs() -> None:
    made = check(SCAN, [random(9, 5, 70, seed=1), random(9, 5, 70, seed=2)])
    assert recurrences(made) == 1
    program = next(program for program in made.programs.values() if program.about == "recurrence")
    assert program.forms[0].tasks == 3


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("hidden, dtype, warps", [(3, "f32", 1), (84, "f32", 4), (97, "f64", 8), (129, "bf16", 8)])
def test_weights_stay_in_registers_of_a_column(architecture: str, hidden: int, dtype: str, warps: int) -> None:
    target = resolve_target(f"cuda:{architecture}")
    assert isinstance(target, GpuTarget)
    made = generate(layer(5, 2, hidden, dtype=dtype)[0], target)
    program = next(program for program in made.programs.values() if program.about == "recurrence")
    ((found,),) = compile_programs([program], target, 1)
    assert (found.form, found.warps) == (0, warps), "not the form in Gluon"
    assert not found.spills
