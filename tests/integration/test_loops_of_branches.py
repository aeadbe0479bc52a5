"""Loops of branches between blocks, with a part on another device, give what numpy gives on any devices."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.integration.placed import build_placed

from motet.runtime import load

Array = np.ndarray[Any, Any]
DEVICES = {"null": {}, "one host": {"b": "host"}, "two hosts": {"b": "host/1?threads=1"}}

# The loop ends in its head; ADD adds values of @b.
COUNTED = """
func.func @main(%x: T, %n: index) -> T {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  cf.br ^head(%c0, %x : index, T)
^head(%i: index, %v: T):
  %go = arith.cmpi slt, %i, %n : index
  cf.cond_br %go, ^body, ^end
^body:
  %t = "motet.transfer"(%v) {to = "b"} : (T) -> T
  %u = ADD %t, %t : T
  %j = arith.addi %i, %c1 : index
  cf.br ^head(%j, %u : index, T)
^end:
  return %v : T
}"""

# The other device, and then the first one, compute in every iteration; the loop ends in the head, or behind the body.
TWO_EXITS = """
func.func @main(%x: T, %n: index) -> T {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %limit = arith.constant 100.0 : f32
  cf.br ^head(%c0, %x : index, T)
^head(%i: index, %v: T):
  %go = arith.cmpi slt, %i, %n : index
  cf.cond_br %go, ^body, ^end(%v : T)
^body:
  %t = "motet.transfer"(%v) {to = "b"} : (T) -> T
  %u = arith.addf %t, %t : T
  %w = "motet.transfer"(%u) {to = "a"} : (T) -> T
  %e = tensor.extract %w[%c0] : T
  %more = arith.cmpf olt, %e, %limit : f32
  %j = arith.addi %i, %c1 : index
  cf.cond_br %more, ^head(%j, %w : index, T), ^early(%w : T)
^early(%q: T):
  %z = arith.negf %q : T
  EARLY
^end(%r: T):
  return %r : T
}"""

NESTED = """
func.func @main(%x: T, %n: index) -> T {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  cf.br ^head(%c0, %x : index, T)
^head(%i: index, %v: T):
  %go = arith.cmpi slt, %i, %n : index
  cf.cond_br %go, ^before, ^end
^before:
  cf.br ^inner(%c0, %v : index, T)
^inner(%k: index, %p: T):
  %go2 = arith.cmpi slt, %k, %i : index
  cf.cond_br %go2, ^body, ^behind
^body:
  %t = "motet.transfer"(%p) {to = "b"} : (T) -> T
  %u = arith.addf %t, %t : T
  %k1 = arith.addi %k, %c1 : index
  cf.br ^inner(%k1, %u : index, T)
^behind:
  %q = "motet.transfer"(%p) {to = "a"} : (T) -> T
  %s = arith.addf %q, %x : T
  %j = arith.addi %i, %c1 : index
  cf.br ^head(%j, %s : index, T)
^end:
  return %v : T
}"""

# A loop that ends in its head, and one that ends behind its body, of both devices.
IN_A_ROW = """
func.func @main(%x: T, %n: index) -> T {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  cf.br ^head(%c0, %x : index, T)
^head(%i: index, %v: T):
  %go = arith.cmpi slt, %i, %n : index
  cf.cond_br %go, ^body, ^middle
^body:
  %t = "motet.transfer"(%v) {to = "b"} : (T) -> T
  %u = arith.addf %t, %t : T
  %j = arith.addi %i, %c1 : index
  cf.br ^head(%j, %u : index, T)
^middle:
  %m = "motet.transfer"(%v) {to = "a"} : (T) -> T
  cf.br ^head2(%c0, %m : index, T)
^head2(%i2: index, %v2: T):
  %u2 = arith.addf %v2, %x : T
  %t2 = "motet.transfer"(%u2) {to = "b"} : (T) -> T
  %w2 = arith.addf %t2, %t2 : T
  %j2 = arith.addi %i2, %c1 : index
  %go2 = arith.cmpi slt, %j2, %n : index
  cf.cond_br %go2, ^head2(%j2, %w2 : index, T), ^end
^end:
  return %w2 : T
}"""

BRANCH_WITHIN = """
func.func @main(%x: T, %n: index) -> T {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  cf.br ^head(%c0, %x : index, T)
^head(%i: index, %v: T):
  %go = arith.cmpi slt, %i, %n : index
  cf.cond_br %go, ^body, ^end
^body:
  %rest = arith.remui %i, %c2 : index
  %odd = arith.cmpi eq, %rest, %c1 : index
  cf.cond_br %odd, ^there, ^here
^there:
  %t = "motet.transfer"(%v) {to = "b"} : (T) -> T
  %u = arith.addf %t, %t : T
  cf.br ^behind(%u : T)
^here:
  %h = "motet.transfer"(%v) {to = "a"} : (T) -> T
  %s = arith.addf %h, %x : T
  cf.br ^behind(%s : T)
^behind(%w: T):
  %j = arith.addi %i, %c1 : index
  cf.br ^head(%j, %w : index, T)
^end:
  return %v : T
}"""


def two_exits(x: Array, n: int) -> Array:
    for _ in range(n):
        x = x + x
        if x[0] >= 100:
            return -x
    return x


def nested(x: Array, n: int) -> Array:
    v = x
    for i in range(n):
        v = v * 2**i + x
    return v


def in_a_row(x: Array, n: int) -> Array:
    v = x * 2**n
    for _ in range(max(n, 1)):
        v = 2 * (v + x)
    return v


def branch_within(x: Array, n: int) -> Array:
    v = x
    for i in range(n):
        v = v + v if i % 2 else v + x
    return v


PROGRAMS: dict[str, tuple[str, Callable[[Array, int], Array]]] = {
    "counted": (COUNTED.replace("ADD", "arith.addf"), lambda x, n: x * 2**n),
    "two exits to one block": (TWO_EXITS.replace("EARLY", "cf.br ^end(%z : T)"), two_exits),
    "a return in the loop": (TWO_EXITS.replace("EARLY", "return %z : T"), two_exits),
    "nested": (NESTED, nested),
    "in a row": (IN_A_ROW, in_a_row),
    "branch within": (BRANCH_WITHIN, branch_within),
}


def build(text: str, kind: str):
    return build_placed(re.sub(r"\bT\b", kind, text), ("a=host,null", "b=null,host"))


@pytest.mark.parametrize(("name", "kind"), [
    *((name, "tensor<5xf32>") for name in PROGRAMS),
    *((name, "tensor<?xf32>") for name in PROGRAMS if PROGRAMS[name][1] is not two_exits),
])
def test_loops_give_what_numpy_gives(name: str, kind: str) -> None:
    text, expected = PROGRAMS[name]
    artifact, x = build(text, kind), np.array([1, -2, 3.5, 0, 7], np.float32)
    for devices in DEVICES.values():
        with load(artifact, devices=devices, threads=2) as session:
            for n in (0, 1, 2, 5, 9):
                np.testing.assert_array_equal(session(x, np.array(n, np.int64)), expected(x, n))


ELEMENTS: dict[str, tuple[type[Any], str]] = {
    "f32": (np.float32, "arith.addf"), "f64": (np.float64, "arith.addf"), "f16": (np.float16, "arith.addf"),
    "bf16": (ml_dtypes.bfloat16, "arith.addf"), "i64": (np.int64, "arith.addi"), "i32": (np.int32, "arith.addi"),
    "i16": (np.int16, "arith.addi"), "i8": (np.int8, "arith.addi"), "i4": (ml_dtypes.int4, "arith.addi"),
    "i1": (np.bool_, "arith.andi"),
}


@pytest.mark.parametrize("shape", ["", "3x", "2x1x3x", "0x", "?x2x"])
@pytest.mark.parametrize("element", ELEMENTS)
def test_elements_of_any_type_and_tensors_of_any_rank(element: str, shape: str) -> None:
    dtype, add = ELEMENTS[element]
    artifact = build(COUNTED.replace("ADD", add), f"tensor<{shape}{element}>")
    extents = [2 if extent == "?" else int(extent) for extent in shape.split("x")[:-1]]
    x = (np.arange(np.prod(extents, dtype=int)) % 2).reshape(extents).astype(dtype)
    wanted = x if element == "i1" else (x.astype(np.float32) * 4).astype(dtype)
    for devices in DEVICES.values():
        with load(artifact, devices=devices, threads=2) as session:
            found = np.asarray(session(x, np.array(2, np.int64)))
            assert found.dtype == x.dtype
            np.testing.assert_array_equal(found, wanted)


def test_complex_elements() -> None:
    kind = "tensor<3xcomplex<f32>>"
    add = f"""%e = tensor.empty() : {kind}
  %u = linalg.add ins(%t, %t : {kind}, {kind}) outs(%e : {kind}) -> {kind}"""
    artifact = build(COUNTED.replace("%u = ADD %t, %t : T", add), kind)
    x = np.array([1 + 2j, -3j, 4], np.complex64)
    for devices in DEVICES.values():
        with load(artifact, devices=devices, threads=2) as session:
            np.testing.assert_array_equal(session(x, np.array(3, np.int64)), x * 8)
