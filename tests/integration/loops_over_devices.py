"""Programs with loops over @a and @b whose number of iterations a call decides, and what they give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
T = "tensor<5xf32>"
A, B = ('{motet.affinity = "a"}', '{motet.affinity = "b"}')


@dataclass(frozen=True)
class Program:
    """A function @main; `expected` computes in double precision what it gives; `calls` are its arguments."""

    text: str
    expected: Callable[..., Sequence[Array]]
    calls: Sequence[Sequence[Array]]


def vector(seed: int = 0, extent: int = 5) -> Array:
    return np.random.default_rng(seed).uniform(-1, 1, extent).astype(np.float32)


def _count(number: int) -> Array:
    return np.array(number, np.int64)


def _times(x: Array, count: int, step: Callable[[Array, int], Array]) -> Array:
    for i in range(count):
        x = step(x, i)
    return x


COUNTS = (0, 1, 2, 7, 300)

# A count, carried from @a to @b and back; what is around the loop reads its argument too.
COUNTED = Program(f"""
func.func @main(%n: i64, %x: {T}) -> ({T}, {T}) {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %k = arith.index_cast %n : i64 to index
  %r = scf.for %i = %c0 to %k step %c1 iter_args(%v = %x) -> {T} {{
    %m = arith.index_cast %i : index to i64
    %f = arith.sitofp %m : i64 to f32
    %s = tensor.splat %f : {T}
    %0 = arith.addf %v, %s {A} : {T}
    %1 = math.tanh %0 {B} : {T}
    %2 = arith.mulf %1, %x {A} : {T}
    scf.yield %2 : {T}
  }}
  %d = arith.mulf %r, %x {B} : {T}
  return %r, %d : {T}, {T}
}}""",
    lambda n, x: (r := _times(x, int(n), lambda v, i: np.tanh(v + i) * x), r * x),
    [(_count(n), vector(n)) for n in COUNTS],
)

# The condition is data of @b; the numbers that are counted are results.
HALVED = Program(f"""
func.func @main(%x: {T}, %limit: f32) -> ({T}, i32) {{
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %half = arith.constant dense<0.5> : {T}
  %i0 = arith.constant 0 : index
  %start = arith.constant 0.0 : f32
  %r:2 = scf.while (%v = %x, %n = %zero) : ({T}, i32) -> ({T}, i32) {{
    %e = tensor.empty() : tensor<f32>
    %f = linalg.fill ins(%start : f32) outs(%e : tensor<f32>) -> tensor<f32>
    %m = linalg.reduce ins(%v : {T}) outs(%f : tensor<f32>) dimensions = [0] {B}
      (%p: f32, %q: f32) {{
        %a = math.absf %p : f32
        %s = arith.addf %a, %q : f32
        linalg.yield %s : f32
      }}
    %g = tensor.extract %m[] : tensor<f32>
    %c = arith.cmpf ogt, %g, %limit : f32
    scf.condition(%c) %v, %n : {T}, i32
  }} do {{
  ^bb0(%v: {T}, %n: i32):
    %h = arith.mulf %v, %half {A} : {T}
    %k = arith.addi %n, %one : i32
    scf.yield %h, %k : {T}, i32
  }}
  return %r#0, %r#1 : {T}, i32
}}""",
    lambda x, limit: (
        x * 0.5 ** (k := 0 if np.abs(x).sum() <= limit else int(np.ceil(np.log2(np.abs(x).sum() / limit)))),
        np.array(k, np.int32),
    ),
    [(np.array([1, 2, 0.5, 3, -5], np.float32), np.array(limit, np.float32)) for limit in (100, 7, 0.3, 1e-6)],
)


def _fibonacci(n: Array, x: Array, y: Array) -> Sequence[Array]:
    for _ in range(int(n)):
        x, y = y, 0.5 * (x + np.sin(y))
    return x, y


# What is carried changes places, and so its device, in every iteration.
SWAPPED = Program(f"""
func.func @main(%n: i64, %x: {T}, %y: {T} {{motet.affinity = "b"}}) -> ({T}, {T}) {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %half = arith.constant dense<0.5> : {T}
  %k = arith.index_cast %n : i64 to index
  %r:2 = scf.for %i = %c0 to %k step %c1 iter_args(%p = %x, %q = %y) -> ({T}, {T}) {{
    %0 = math.sin %q {B} : {T}
    %1 = arith.addf %p, %0 {A} : {T}
    %2 = arith.mulf %1, %half {A} : {T}
    scf.yield %q, %2 : {T}, {T}
  }}
  return %r#0, %r#1 : {T}, {T}
}}""", _fibonacci, [(_count(n), vector(n), vector(n + 1)) for n in COUNTS])


def _nested(n: Array, x: Array, limit: Array) -> Sequence[Array]:
    made = 0
    for i in range(int(n)):
        x, j = x + 1, 0
        while j < i and abs(x).max() > limit:
            x, j, made = np.tanh(x) / 2, j + 1, made + 1
    return x, np.array(made, np.int64)


# A loop whose bound is counted by the loop around it, and that data may end before.
NESTED = Program(f"""
func.func @main(%n: i64, %x: {T}, %limit: f32) -> ({T}, i64) {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %z = arith.constant 0 : i64
  %o = arith.constant 1 : i64
  %low = arith.constant 0.0 : f32
  %one = arith.constant dense<1.0> : {T}
  %half = arith.constant dense<0.5> : {T}
  %k = arith.index_cast %n : i64 to index
  %r:2 = scf.for %i = %c0 to %k step %c1 iter_args(%v = %x, %made = %z) -> ({T}, i64) {{
    %w = arith.addf %v, %one {A} : {T}
    %s:3 = scf.while (%u = %w, %j = %c0, %m = %made) : ({T}, index, i64) -> ({T}, index, i64) {{
      %e = tensor.empty() : tensor<f32>
      %f = linalg.fill ins(%low : f32) outs(%e : tensor<f32>) -> tensor<f32>
      %t = linalg.reduce ins(%u : {T}) outs(%f : tensor<f32>) dimensions = [0] {A}
        (%p: f32, %q: f32) {{
          %a = math.absf %p : f32
          %b = arith.maximumf %a, %q : f32
          linalg.yield %b : f32
        }}
      %g = tensor.extract %t[] : tensor<f32>
      %c = arith.cmpf ogt, %g, %limit : f32
      %d = arith.cmpi slt, %j, %i : index
      %h = arith.andi %c, %d : i1
      scf.condition(%h) %u, %j, %m : {T}, index, i64
    }} do {{
    ^bb0(%u: {T}, %j: index, %m: i64):
      %a = math.tanh %u {B} : {T}
      %b = arith.mulf %a, %half {A} : {T}
      %jj = arith.addi %j, %c1 : index
      %mm = arith.addi %m, %o : i64
      scf.yield %b, %jj, %mm : {T}, index, i64
    }}
    scf.yield %s#0, %s#2 : {T}, i64
  }}
  return %r#0, %r#1 : {T}, i64
}}""",
    _nested, [(_count(n), vector(n), np.array(least, np.float32)) for n, least in ((0, 1), (1, 1), (9, 0.4), (9, 0))],
)


def _walked(x: Array, start: Array) -> Sequence[Array]:
    total, place = np.zeros(5), int(start)
    while 0 <= place < 5:
        total, place = np.exp(total * 0.25) + x[place], place - 1
    return (total,)


# Blocks: what an iteration too many would read is outside of %x.
BLOCKS = Program(f"""
func.func @main(%x: {T}, %start: i64) -> {T} {{
  %zero = arith.constant dense<0.0> : {T}
  %quarter = arith.constant dense<0.25> : {T}
  %z = arith.constant 0 : i64
  %o = arith.constant 1 : i64
  cf.br ^head(%zero, %start : {T}, i64)
^head(%v: {T}, %k: i64):
  %p = arith.cmpi sge, %k, %z : i64
  cf.cond_br %p, ^body, ^end
^body:
  %i = arith.index_cast %k : i64 to index
  %s = tensor.extract %x[%i] : {T}
  %t = tensor.splat %s : {T}
  %0 = arith.mulf %v, %quarter {A} : {T}
  %1 = math.exp %0 {B} : {T}
  %2 = arith.addf %1, %t {A} : {T}
  %j = arith.subi %k, %o : i64
  cf.br ^head(%2, %j : {T}, i64)
^end:
  return %v : {T}
}}""", _walked, [(vector(n + 1), _count(n)) for n in (-1, 0, 3, 4)])

# Blocks that work first and ask then.
WORKS_FIRST = Program(f"""
func.func @main(%n: i64, %x: {T}) -> {T} {{
  %z = arith.constant 0 : i64
  %o = arith.constant 1 : i64
  cf.br ^body(%x, %n : {T}, i64)
^body(%v: {T}, %k: i64):
  %0 = math.exp %v {A} : {T}
  %1 = math.tanh %0 {B} : {T}
  %j = arith.subi %k, %o : i64
  %p = arith.cmpi sgt, %j, %z : i64
  cf.cond_br %p, ^body(%1, %j : {T}, i64), ^end
^end:
  return %1 : {T}
}}""",
    lambda n, x: (_times(x, max(1, int(n)), lambda v, i: np.tanh(np.exp(v))),),
    [(_count(n), vector(n)) for n in (0, 1, 2, 9)],
)

# In a branch: without iterations in the side that is not taken, where it would never end.
IN_A_BRANCH = Program(f"""
func.func @main(%p: i1, %n: i64, %x: {T}) -> {T} {{
  %z = arith.constant 0 : i64
  %step = arith.constant 2 : i64
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = scf.if %p -> {T} {{
    %w:2 = scf.while (%v = %x, %k = %n) : ({T}, i64) -> ({T}, i64) {{
      %c = arith.cmpi ne, %k, %z : i64
      scf.condition(%c) %v, %k : {T}, i64
    }} do {{
    ^bb0(%v: {T}, %k: i64):
      %0 = math.sin %v {A} : {T}
      %1 = arith.addf %0, %x {B} : {T}
      %j = arith.subi %k, %step : i64
      scf.yield %1, %j : {T}, i64
    }}
    scf.yield %w#0 : {T}
  }} else {{
    %k = arith.index_cast %n : i64 to index
    %f = scf.for %i = %c0 to %k step %c1 iter_args(%v = %x) -> {T} {{
      %0 = math.cos %v {B} : {T}
      %1 = arith.mulf %0, %x {A} : {T}
      scf.yield %1 : {T}
    }}
    scf.yield %f : {T}
  }}
  return %r : {T}
}}""",
    lambda p, n, x: (
        _times(x, int(n) // 2, lambda v, i: np.sin(v) + x) if p else _times(x, int(n), lambda v, i: np.cos(v) * x),
    ),
    [(np.array(p), _count(n), vector(n)) for p, n in ((True, 0), (True, 8), (False, 0), (False, 1), (False, 5))],
)

# A branch in a loop, and a loop in one of its sides.
BRANCHES = Program(f"""
func.func @main(%n: i64, %x: {T}) -> {T} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %k = arith.index_cast %n : i64 to index
  %r = scf.for %i = %c0 to %k step %c1 iter_args(%v = %x) -> {T} {{
    %m = arith.remsi %i, %c2 : index
    %odd = arith.cmpi eq, %m, %c1 : index
    %b = scf.if %odd -> {T} {{
      %f = scf.for %j = %c0 to %i step %c1 iter_args(%u = %v) -> {T} {{
        %0 = math.sin %u {B} : {T}
        %1 = arith.subf %0, %x {A} : {T}
        scf.yield %1 : {T}
      }}
      scf.yield %f : {T}
    }} else {{
      %0 = math.cos %v {A} : {T}
      scf.yield %0 : {T}
    }}
    scf.yield %b : {T}
  }}
  return %r : {T}
}}""",
    lambda n, x: (_times(x, int(n), lambda v, i: _times(v, i, lambda u, j: np.sin(u) - x) if i % 2 else np.cos(v)),),
    [(_count(n), vector(n)) for n in (0, 1, 2, 5)],
)

# Extents that a call decides, a constant matrix, and two loops that need nothing of each other, summed up.
MANY, SIDE = "tensor<?x3xf32>", "tensor<3x3xf32>"
WEIGHTS = np.array([[0.5, -0.25, 1], [0, 0.75, -1], [1, 0.125, 0]], np.float32)
EXTENTS = Program(f"""
func.func @main(%n: i64, %x: {MANY}) -> ({MANY}, {MANY}) {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %w = arith.constant dense<{WEIGHTS.tolist()}> : {SIDE}
  %rows = tensor.dim %x, %c0 : {MANY}
  %k = arith.index_cast %n : i64 to index
  %r = scf.for %i = %c0 to %k step %c1 iter_args(%v = %x) -> {MANY} {{
    %e = tensor.empty(%rows) : {MANY}
    %f = linalg.fill ins(%zero : f32) outs(%e : {MANY}) -> {MANY}
    %m = linalg.matmul {B} ins(%v, %w : {MANY}, {SIDE}) outs(%f : {MANY}) -> {MANY}
    %t = math.tanh %m {A} : {MANY}
    scf.yield %t : {MANY}
  }}
  %s = scf.for %i = %c0 to %k step %c1 iter_args(%v = %x) -> {MANY} {{
    %0 = math.sin %v {B} : {MANY}
    %1 = math.cos %0 {A} : {MANY}
    scf.yield %1 : {MANY}
  }}
  %z = arith.addf %r, %s {A} : {MANY}
  return %r, %z : {MANY}, {MANY}
}}""",
    lambda n, x: (
        r := _times(x, int(n), lambda v, i: np.tanh(v @ WEIGHTS.astype(np.float64))),
        r + _times(x, int(n), lambda v, i: np.cos(np.sin(v))),
    ),
    [(_count(n), vector(n, 3 * rows).reshape(rows, 3)) for n, rows in ((0, 2), (3, 7), (4, 1), (2, 0))],
)

# More iterations, all of them known, than are taken apart.
KNOWN = Program(f"""
func.func @main(%x: {T}) -> {T} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %k = arith.constant 300 : index
  %r = scf.for %i = %c0 to %k step %c1 iter_args(%v = %x) -> {T} {{
    %0 = math.cos %v {A} : {T}
    %1 = arith.addf %0, %x {B} : {T}
    scf.yield %1 : {T}
  }}
  return %r : {T}
}}""", lambda x: (_times(x, 300, lambda v, i: np.cos(v) + x),), [(vector(3),)])

PROGRAMS = {
    "counted": COUNTED, "halved": HALVED, "swapped": SWAPPED, "nested": NESTED, "blocks": BLOCKS,
    "works first": WORKS_FIRST, "in a branch": IN_A_BRANCH, "branches": BRANCHES, "extents": EXTENTS, "known": KNOWN,
}
