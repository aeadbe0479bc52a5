"""Numbers that loops end with: as results, and as what other operations read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import motet

BEGIN = """func.func @main(%x: tensor<6xf32>) -> {results} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c6 = arith.constant 6 : index
  %z = arith.constant 0.0 : f32
"""
SUM = """  %s = scf.for %i = %c0 to %c6 step %c1 iter_args(%a = %z) -> f32 {
    %v = tensor.extract %x[%i] : tensor<6xf32>
    %q = arith.addf %a, %v : f32
    scf.yield %q : f32
  }
"""
BOTH = """  %s, %y = scf.for %i = %c0 to %c6 step %c1 iter_args(%a = %z, %t = %x) -> (f32, tensor<6xf32>) {
    %v = tensor.extract %x[%i] : tensor<6xf32>
    %q = arith.addf %a, %v : f32
    %n = tensor.insert %q into %t[%i] : tensor<6xf32>
    scf.yield %q, %n : f32, tensor<6xf32>
  }
"""
UNTIL = """  %lim = arith.constant 100.0 : f32
  %b = tensor.extract %x[%c0] : tensor<6xf32>
  %s, %n = scf.while (%a = %b, %m = %c0) : (f32, index) -> (f32, index) {
    %c = arith.cmpf olt, %a, %lim : f32
    scf.condition(%c) %a, %m : f32, index
  } do {
  ^bb0(%a: f32, %m: index):
    %d = arith.addf %a, %a : f32
    %o = arith.addi %m, %c1 : index
    scf.yield %d, %o : f32, index
  }
"""
X = np.arange(1, 7, dtype=np.float32)

CASES: dict[str, tuple[str, str, list[Any]]] = {
    "itself": ("f32", SUM + "return %s : f32 }", [21.0]),
    "calculated with": ("f32", SUM + "%r = math.sqrt %s : f32\n return %r : f32 }", [np.sqrt(np.float32(21))]),
    "read by a tensor": (
        "(tensor<6xf32>, f32)",
        SUM + "%e = tensor.splat %s : tensor<6xf32>\n %r = arith.divf %x, %e : tensor<6xf32>\n"
        "return %r, %s : tensor<6xf32>, f32 }", [X / np.float32(21), 21.0],
    ),
    "beside a tensor": ("(tensor<6xf32>, f32)", BOTH + "return %y, %s : tensor<6xf32>, f32 }", [np.cumsum(X), 21.0]),
    "of a loop that ends when it does": ("(f32, index)", UNTIL + "return %s, %n : f32, index }", [128.0, 7]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_numbers_that_a_loop_ends_with(case: str) -> None:
    results, text, expected = CASES[case]
    session = motet.load(motet.compile(BEGIN.format(results=results) + text + "\n", devices="host", cache=False))
    found = session(X)
    for mine, wanted in zip(found if isinstance(found, tuple) else [found], expected, strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-6)
