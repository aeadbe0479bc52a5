"""Numbers that loops and branches end with: as results, and as what other operations read, on any device."""

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
BRANCH = """  %first = tensor.extract %x[%c0] : tensor<6xf32>
  %p = arith.cmpf ogt, %first, %z : f32
  %s, %y = scf.if %p -> (f32, tensor<6xf32>) {
    %d = arith.addf %x, %x : tensor<6xf32>
    %e = tensor.extract %d[%c1] : tensor<6xf32>
    scf.yield %e, %d : f32, tensor<6xf32>
  } else {
    scf.yield %z, %x : f32, tensor<6xf32>
  }
"""
SWITCH = """  %first = tensor.extract %x[%c1] : tensor<6xf32>
  %i = arith.fptosi %first : f32 to i32
  %k = arith.index_cast %i : i32 to index
  %s, %n = scf.index_switch %k -> f32, index
  case 2 {
    %e = math.exp %first : f32
    scf.yield %e, %c6 : f32, index
  }
  default {
    scf.yield %z, %c1 : f32, index
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
    "of a branch": (
        "(tensor<6xf32>, f32)", BRANCH + "%r = math.sqrt %s : f32\n return %y, %r : tensor<6xf32>, f32 }", [2 * X, 2.0]
    ),
    "of a switch": ("(f32, index)", SWITCH + "return %s, %n : f32, index }", [np.exp(np.float32(2)), 6]),
    "of a branch on which an extent depends": (
        "tensor<?xf32>", SWITCH + "%r = tensor.extract_slice %x[0] [%n] [1] : tensor<6xf32> to tensor<?xf32>\n"
        "%q = arith.addf %r, %r : tensor<?xf32>\n return %q : tensor<?xf32> }", [2 * X],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_numbers_that_a_loop_ends_with(case: str) -> None:
    results, text, expected = CASES[case]
    session = motet.load(motet.compile(BEGIN.format(results=results) + text + "\n", devices="host", cache=False))
    found = session(X)
    for mine, wanted in zip(found if isinstance(found, tuple) else [found], expected, strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-6)


@pytest.mark.parametrize("name", ["BOTH", "BRANCH"])
def test_numbers_that_another_device_reads(name: str) -> None:
    text, doubled = (BOTH, np.cumsum(X)) if name == "BOTH" else (BRANCH, 2 * X)
    number = doubled[-1] if name == "BOTH" else doubled[1]
    there = text.replace("%x", "%there")
    program = BEGIN.format(results="(tensor<6xf32>, tensor<6xf32>, f32)") + f"""
  %there = "motet.transfer"(%x) {{to = "b"}} : (tensor<6xf32>) -> tensor<6xf32>
{there}
  %e = tensor.splat %s : tensor<6xf32>
  %here = "motet.transfer"(%x) {{to = "a"}} : (tensor<6xf32>) -> tensor<6xf32>
  %r = arith.addf %here, %e : tensor<6xf32>
  %q = arith.addf %s, %s : f32
  return %y, %r, %q : tensor<6xf32>, tensor<6xf32>, f32 }}
"""
    devices = {"a": "host?threads=1", "b": "host/1?threads=1"}
    artifact = motet.compile(program, devices={"a": "host", "b": "host"}, cache=False)
    with motet.load(artifact, devices=devices) as session:
        found = session(X)
    for mine, wanted in zip(found, [doubled, X + number, 2 * number], strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-6)
