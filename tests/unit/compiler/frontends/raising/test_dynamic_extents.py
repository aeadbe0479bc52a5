"""Loop nests whose ends are known when running alone: which become operations of linalg, and that all compute what the
loops say, for extents of every kind."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.prepared import load_mlir
from tests.seeds import examples
from tests.unit.compiler.building import X86_64_V3, build, kinds, random
from tests.unit.compiler.frontends.raising.loops import Loops, loop_nests

from motet.compiler.verify.oracle import run_oracle
from motet.errors import CallError


def is_raised(text: str) -> bool:
    return "scf." not in str(load_mlir(text, "test.mlir").module)


def check(text: str, calls: list[list[np.ndarray]], wanted: list[list[np.ndarray]], *, oracle: bool = True) -> None:
    """Every call's results, compiled once, and by upstream's loops of what the nest became."""
    session = build(text, X86_64_V3)["main"]
    program = load_mlir(text, "test.mlir")
    for inputs, values in zip(calls, wanted, strict=True):
        results = session(*(array.copy() for array in inputs))
        results = list(results) if isinstance(results, tuple) else [results]
        others = run_oracle(program, "main", [array.copy() for array in inputs]) if oracle else results
        assert len(results) == len(others) == len(values)
        for result, other, value in zip(results, others, values, strict=True):
            np.testing.assert_allclose(result, value, rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(other, value, rtol=1e-4, atol=1e-4)


DIMS = """
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
"""
MATMUL = """
func.func @main(%a: memref<?x?xf32>, %b: memref<?x?xf32>{argument}) {result} {{
  %zero = arith.constant 0.0 : f32
""" + DIMS + """
  %m = memref.dim %a, %c0 : memref<?x?xf32>
  %k = memref.dim %{inner}, %c{axis} : memref<?x?xf32>
  %n = memref.dim %b, %c1 : memref<?x?xf32>
  {made}
  affine.for %i = 0 to %m {{
    affine.for %j = 0 to %n {{
      %s = affine.for %p = 0 to %k iter_args(%before = %zero) -> f32 {{
        %0 = affine.load %a[%i, %p] : memref<?x?xf32>
        %1 = affine.load %b[%p, %j] : memref<?x?xf32>
        %2 = arith.mulf %0, %1 : f32
        %3 = arith.addf %before, %2 : f32
        affine.yield %3 : f32
      }}
      affine.store %s, %c[%i, %j] : memref<?x?xf32>
    }}
  }}
  return {returned}
}}
"""
RETURNED = MATMUL.format(
    argument="", result="-> memref<?x?xf32>", made="%c = memref.alloc(%m, %n) : memref<?x?xf32>",
    returned="%c : memref<?x?xf32>", inner="a", axis=1,
)
WRITTEN = MATMUL.format(argument=", %c: memref<?x?xf32>", result="", made="", returned="", inner="b", axis=0)
PRODUCTS = [(1, 1, 1), (7, 13, 5), (64, 33, 17), (3, 1, 100), (130, 16, 64)]


def test_a_product_is_a_contraction() -> None:
    assert is_raised(RETURNED)
    assert kinds(RETURNED, X86_64_V3) == ["contraction"]
    calls = [[random(m, k, seed=1), random(k, n, seed=2)] for m, n, k in PRODUCTS]
    check(RETURNED, calls, [[a @ b] for a, b in calls])


def test_a_product_is_written_into_the_rows_and_columns_that_the_loops_run_over() -> None:
    """The result's extents are its own: it may be larger than what is stored."""
    assert is_raised(WRITTEN)
    assert "contraction" in kinds(WRITTEN, X86_64_V3)
    calls, wanted = [], []
    for number, (m, n, k) in enumerate(PRODUCTS):
        a, b, c = random(m, k, seed=1), random(k, n, seed=2), random(m + number, n + 2 * number, seed=3)
        calls.append([a, b, c])
        want = c.copy()
        want[:m, :n] = a @ b
        wanted.append([want])
    check(WRITTEN, calls, wanted)


def test_more_rows_than_loops_run_over_are_not_read() -> None:
    a, b = random(5, 7), random(11, 3)  # the loop over %p ends where the rows of %a do
    check(RETURNED, [[a, b]], [[a @ b[:7]]])


SYMBOLS = """
func.func @main(%x: memref<?x?xf32>, %y: memref<?xf32>) -> memref<?x?xf32> {
""" + DIMS + """
  %m = memref.dim %x, %c0 : memref<?x?xf32>
  %n = memref.dim %x, %c1 : memref<?x?xf32>
  %z = memref.alloc(%m, %n) : memref<?x?xf32>
  affine.for %i = 0 to affine_map<()[s0] -> (s0)>()[%m] {
    affine.for %j = 0 to affine_map<()[s0] -> (s0)>()[%n] {
      %0 = affine.load %x[%i, %j] : memref<?x?xf32>
      %1 = affine.load %y[%j] : memref<?xf32>
      %2 = arith.addf %0, %1 : f32
      %3 = math.exp %2 : f32
      %4 = arith.mulf %3, %0 : f32
      affine.store %4, %z[%i, %j] : memref<?x?xf32>
    }
  }
  return %z : memref<?x?xf32>
}
"""


def test_element_wise_work_up_to_symbols() -> None:
    assert is_raised(SYMBOLS)
    calls = [[random(m, n), random(n)] for m, n in ((1, 1), (7, 9), (31, 64), (0, 5), (2, 1000))]
    check(SYMBOLS, calls, [[np.exp(x + y) * x] for x, y in calls])


STENCIL = """
func.func @main(%x: memref<?xf32>, %y: memref<?xf32>) {
""" + DIMS + """
  %third = arith.constant 0.25 : f32
  %n = memref.dim %x, %c0 : memref<?xf32>
  affine.for %i = 1 to affine_map<()[s0] -> (s0 - 1)>()[%n] {
    %0 = affine.load %x[%i - 1] : memref<?xf32>
    %1 = affine.load %x[%i] : memref<?xf32>
    %2 = affine.load %x[%i + 1] : memref<?xf32>
    %3 = arith.addf %0, %1 : f32
    %4 = arith.addf %3, %2 : f32
    %5 = arith.mulf %4, %third : f32
    affine.store %5, %y[%i] : memref<?xf32>
  }
  return
}
"""


def test_the_inside_of_an_axis() -> None:
    assert not is_raised(STENCIL)  # its parts would be copied, which is all there is to do
    calls, wanted = [], []
    for n in (0, 1, 2, 3, 4, 17, 1000):
        x, y = random(n, seed=1), random(n, seed=2)
        calls.append([x, y])
        want = y.copy()
        if n > 2:
            want[1:-1] = (x[:-2] + x[1:-1] + x[2:]) / 4
        wanted.append([want])
    check(STENCIL, calls, wanted)


CONVOLUTION = """
func.func @main(%x: memref<?x3x{h}x{w}xf32>, %f: memref<8x3x3x3xf32>) -> memref<?x8x{oh}x{ow}xf32> {{
""" + DIMS + """
  %zero = arith.constant 0.0 : f32
  %n = memref.dim %x, %c0 : memref<?x3x{h}x{w}xf32>
  %y = memref.alloc(%n) : memref<?x8x{oh}x{ow}xf32>
  affine.for %b = 0 to %n {{ affine.for %o = 0 to 8 {{ affine.for %i = 0 to {oh} {{ affine.for %j = 0 to {ow} {{
    %s = affine.for %c = 0 to 3 iter_args(%s0 = %zero) -> f32 {{
      %t = affine.for %p = max affine_map<(d0) -> ({pad} - d0, 0)>(%i)
          to min affine_map<(d0) -> ({h} + {pad} - d0, 3)>(%i) iter_args(%s1 = %s0) -> f32 {{
        %u = affine.for %q = max affine_map<(d0) -> ({pad} - d0, 0)>(%j)
            to min affine_map<(d0) -> ({w} + {pad} - d0, 3)>(%j) iter_args(%s2 = %s1) -> f32 {{
          %0 = affine.load %x[%b, %c, %i + %p - {pad}, %j + %q - {pad}] : memref<?x3x{h}x{w}xf32>
          %1 = affine.load %f[%o, %c, %p, %q] : memref<8x3x3x3xf32>
          %2 = arith.mulf %0, %1 : f32
          %3 = arith.addf %s2, %2 : f32
          affine.yield %3 : f32
        }}
        affine.yield %u : f32
      }}
      affine.yield %t : f32
    }}
    affine.store %s, %y[%b, %o, %i, %j] : memref<?x8x{oh}x{ow}xf32>
  }} }} }} }}
  return %y : memref<?x8x{oh}x{ow}xf32>
}}
"""


def convolution(x: np.ndarray, f: np.ndarray, pad: int) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, f.shape[2:], (2, 3))
    return np.einsum("ncijpq,ocpq->noij", windows, f)


@pytest.mark.parametrize("pad", [0, 1])
def test_a_convolution_of_any_number_of_images(pad: int) -> None:
    h, w = 9, 12
    text = CONVOLUTION.format(h=h, w=w, oh=h - 2 + 2 * pad, ow=w - 2 + 2 * pad, pad=pad)
    assert is_raised(text)
    known = text.replace("memref<?x", "memref<4x").replace("alloc(%n)", "alloc()")
    assert kinds(text, X86_64_V3) == kinds(known, X86_64_V3)
    f = random(8, 3, 3, 3)
    calls = [[random(n, 3, h, w), f] for n in (1, 2, 5)]
    check(text, calls, [[convolution(x, f, pad)] for x, f in calls])


WINDOWS = """
func.func @main(%x: memref<?xf32>, %f: memref<5xf32>) -> memref<?xf32> {
""" + DIMS + """
  %zero = arith.constant 0.0 : f32
  %n = memref.dim %x, %c0 : memref<?xf32>
  %c4 = arith.constant 4 : index
  %m = arith.subi %n, %c4 : index
  %y = memref.alloc(%m) : memref<?xf32>
  affine.for %i = 0 to %m {
    affine.store %zero, %y[%i] : memref<?xf32>
    affine.for %p = 0 to 5 {
      %0 = affine.load %x[%i + %p] : memref<?xf32>
      %1 = affine.load %f[%p] : memref<5xf32>
      %2 = affine.load %y[%i] : memref<?xf32>
      %3 = arith.mulf %0, %1 : f32
      %4 = arith.addf %2, %3 : f32
      affine.store %4, %y[%i] : memref<?xf32>
    }
  }
  return %y : memref<?xf32>
}
"""


def test_windows_along_an_axis_of_any_extent() -> None:
    assert not is_raised(WINDOWS)  # five terms are little work
    longer = WINDOWS.replace("5xf32", "50xf32").replace("0 to 5", "0 to 50").replace("constant 4", "constant 49")
    assert is_raised(longer)
    f = random(5)
    calls = [[random(n), f] for n in (5, 6, 9, 100, 1001)]
    check(WINDOWS, calls, [[np.correlate(x, f)] for x, f in calls])


ROWS = """
func.func @main(%x: memref<?x?xf32>) -> memref<?xf32> {
""" + DIMS + """
  %low = arith.constant 0xFF800000 : f32
  %m = memref.dim %x, %c0 : memref<?x?xf32>
  %n = memref.dim %x, %c1 : memref<?x?xf32>
  %y = memref.alloc(%m) : memref<?xf32>
  scf.for %i = %c0 to %m step %c1 {
    %s = scf.for %j = %c0 to %n step %c1 iter_args(%before = %low) -> (f32) {
      %0 = memref.load %x[%i, %j] : memref<?x?xf32>
      %1 = arith.maximumf %before, %0 : f32
      scf.yield %1 : f32
    }
    memref.store %s, %y[%i] : memref<?xf32>
  }
  return %y : memref<?xf32>
}
"""


def test_the_largest_of_every_row() -> None:
    assert is_raised(ROWS)
    calls = [[random(m, n)] for m, n in ((1, 1), (5, 7), (64, 100), (0, 3), (3, 0))]
    check(ROWS, calls, [[x.max(axis=1, initial=-np.inf)] for (x,) in calls])


BLOCKS = """
func.func @main(%x: memref<?x?xf32>, %v: memref<?xf32>, %y: memref<?xf32>, %blocks: memref<?xi8>) {
""" + DIMS + """
  %zero = arith.constant 0.0 : f32
  %c128 = arith.constant 128 : index
  %n = memref.dim %x, %c0 : memref<?x?xf32>
  %k = memref.dim %x, %c1 : memref<?x?xf32>
  %m = memref.dim %blocks, %c0 : memref<?xi8>
  affine.for %b = 0 to %m {
    affine.for %t = 0 to 128 {
      %0 = arith.muli %b, %c128 : index
      %i = arith.addi %0, %t : index
      %in = arith.cmpi PREDICATE, %i, %n : index
      scf.if %in {
        %s = affine.for %p = 0 to %k iter_args(%before = %zero) -> f32 {
          %1 = memref.load %x[%i, %p] : memref<?x?xf32>
          %2 = memref.load %v[%p] : memref<?xf32>
          %3 = arith.mulf %1, %2 : f32
          %4 = arith.addf %before, %3 : f32
          affine.yield %4 : f32
        }
        memref.store %s, %y[%i] : memref<?xf32>
      }
    }
  }
  return
}
"""


@pytest.mark.parametrize("predicate", ["slt", "ult"])
def test_blocks_and_threads_of_an_index_are_one_loop_up_to_its_guard(predicate: str) -> None:
    """Where there are fewer blocks than it takes, rows are left; where there are more, nothing is read beyond."""
    text = BLOCKS.replace("PREDICATE", predicate)
    assert is_raised(text)
    calls, wanted = [], []
    for blocks, n, k in ((1, 128, 5), (1, 100, 20), (3, 257, 64), (1, 300, 3), (8, 1, 1)):
        x, v, y = random(n, k), random(k), random(n, seed=4)
        calls.append([x, v, y, np.zeros(blocks, np.int8)])
        ran = np.arange(n) < 128 * blocks
        wanted.append([np.where(ran, x @ v, y)])
    check(text, calls, wanted)


def nest(header: str, body: str, close: int = 1) -> str:
    return f"""
func.func @main(%x: memref<?x?xf32>, %y: memref<?x?xf32>) {{
  {DIMS}
  %m = memref.dim %x, %c0 : memref<?x?xf32>
  %n = memref.dim %x, %c1 : memref<?x?xf32>
  {header}
  {body}
  {"}" * close}
  return
}}
"""


COPY = "%v = memref.load %x[%i, %j] : memref<?x?xf32> memref.store %v, %y[%i, %j] : memref<?x?xf32>"
STAY = {
    "a triangle": (
        nest("affine.for %i = 0 to %m { affine.for %j = 0 to affine_map<(d0) -> (d0 + 1)>(%i) {", COPY, 2),
        lambda x, y: np.tril(x) + np.triu(y, 1),
    ),
    "the shorter of two axes": (
        nest("affine.for %i = 0 to min affine_map<()[s0, s1] -> (s0, s1)>()[%m, %n] { affine.for %j = 0 to 2 {",
             COPY, 2),
        lambda x, y: np.where((np.arange(len(x))[:, None] < x.shape[1]) & (np.arange(x.shape[1]) < 2), x, y),
    ),
    "a guard": (
        nest("affine.for %i = 0 to %m { affine.for %j = 0 to %n {",
             f"%in = arith.cmpi slt, %j, %m : index scf.if %in {{ {COPY} }}", 2),
        lambda x, y: np.where(np.arange(x.shape[1]) < x.shape[0], x, y),
    ),
    "rows backwards": (
        nest("affine.for %i = 0 to %m { affine.for %j = 0 to %n {",
             "%r = affine.apply affine_map<(d0)[s0] -> (s0 - 1 - d0)>(%i)[%m] "
             + COPY.replace("load %x[%i", "load %x[%r"), 2),
        lambda x, y: x[::-1],
    ),
    "every third row": (
        nest("affine.for %i = 0 to %m step 3 { affine.for %j = 0 to %n {", COPY, 2),
        lambda x, y: np.where(np.arange(len(x))[:, None] % 3 == 0, x, y),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STAY)
def test_what_is_little_work_or_depends_on_extents_stays_a_loop(name: str) -> None:
    text, expected = STAY[name]
    assert not is_raised(text)
    shapes = [(5, 5), (7, 7), (2, 2)]
    if name != "a triangle":
        shapes += [(3, 8), (8, 3)]
    calls = [[random(*shape, seed=1), random(*shape, seed=2)] for shape in shapes]
    check(text, calls, [[expected(x, y)] for x, y in calls], oracle=False)


def with_unknown_ends(nest: Loops, loops: frozenset[int]) -> str:
    """The nest over arrays of which no extent is known; some of its loops end where an array of their own does."""
    text = nest.text()
    for shape in nest.shapes.values():
        text = text.replace(f"memref<{''.join(f'{n}x' for n in shape)}i32>", f"memref<{'?x' * len(shape)}i32>")
    ends = ["%zero = arith.constant 0 : index"]
    for dim in sorted(loops):
        begin, end, _ = nest.bounds[dim]
        text = text.replace(f"%d{dim} = {begin} to {end} step", f"%d{dim} = {begin} to %n{dim} step")
        text = text.replace(") {\n", f", %e{dim}: memref<?xi8>) {{\n", 1)
        ends.append(f"%n{dim} = memref.dim %e{dim}, %zero : memref<?xi8>")
    return text.replace(") {\n", ") {\n" + "\n".join(ends) + "\n", 1)


@settings(max_examples=examples(40))
@given(nest=loop_nests(), chosen=st.frozensets(st.integers(0, 2)), seed=st.integers(0, 100))
def test_random_nests_of_unknown_extents_compute_what_their_loops_say(
    nest: Loops, chosen: frozenset[int], seed: int
) -> None:
    loops = chosen & frozenset(dim for dim in range(len(nest.bounds)) if any(s.depth > dim for s in nest.stores))
    text = with_unknown_ends(nest, loops)
    generator = np.random.default_rng(seed)
    arrays = {name: generator.integers(-9, 9, shape).astype(np.int32) for name, shape in nest.shapes.items()}
    inputs = [array.copy() for array in arrays.values()]
    inputs += [np.zeros(nest.bounds[dim][1], np.int8) for dim in sorted(loops)]
    nest.run(arrays)
    written = [arrays[name] for name in arrays if any(store.array == name for store in nest.stores)]
    check(text, [inputs], [written])


STEPS_OF_A_CALL = """
func.func @every(%x: memref<?xf32>, %n: index, %s: index) {
  %c0 = arith.constant 0 : index
  scf.for %i = %c0 to %n step %s {
    %v = memref.load %x[%i] : memref<?xf32>
    %w = arith.addf %v, %v : f32
    memref.store %w, %x[%i] : memref<?xf32>
  }
  return
}
func.func @tiles(%x: memref<?xf32>, %y: memref<?xf32>, %n: index, %s: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %s {
    %past = arith.addi %i, %s : index
    %end = arith.minsi %past, %n : index
    scf.for %j = %i to %end step %c1 {
      %v = memref.load %x[%j] : memref<?xf32>
      %w = memref.load %y[%i] : memref<?xf32>
      %t = arith.addf %w, %v : f32
      memref.store %t, %y[%i] : memref<?xf32>
    }
  }
  return
}
func.func @carried(%x: tensor<4xf32>, %n: index, %s: index) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %r = scf.for %i = %c0 to %n step %s iter_args(%a = %x) -> (tensor<4xf32>) {
    %e = tensor.empty() : tensor<4xf32>
    %b = linalg.add ins(%a, %x : tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    scf.yield %b : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}
"""


def test_loops_with_steps_that_a_call_gives() -> None:
    session = build(STEPS_OF_A_CALL, X86_64_V3)
    for n, s in itertools.product((0, 1, 5, 17), (1, 2, 3, 7, 40)):
        x = np.arange(1, 18, dtype=np.float32)
        wanted = x.copy()
        wanted[:n:s] *= 2
        session["every"](x, n, s)
        np.testing.assert_array_equal(x, wanted)
        y, sums = np.zeros(17, np.float32), np.zeros(17, np.float32)
        for i in range(0, n, s):
            sums[i] = x[i : min(i + s, n)].sum()
        session["tiles"](x, y, n, s)
        np.testing.assert_allclose(y, sums, rtol=1e-6)
        np.testing.assert_array_equal(session["carried"](x[:4], n, s), x[:4] * (1 + len(range(0, n, s))))


@pytest.mark.parametrize("step", [0, -1])
def test_steps_that_are_not_positive_are_refused(step: int) -> None:
    session = build(STEPS_OF_A_CALL, X86_64_V3)
    x = np.ones(17, np.float32)
    for name, arguments in (("every", [x]), ("tiles", [x, x.copy()]), ("carried", [x[:4]])):
        with pytest.raises(CallError, match=r"scf\.for: the step must be positive"):
            session[name](*arguments, 5, step)
