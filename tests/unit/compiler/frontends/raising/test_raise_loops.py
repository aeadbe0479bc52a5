"""Loop nests over memrefs: which become operations of linalg, and that all compute what the loops say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.prepared import load_mlir
from tests.seeds import examples
from tests.unit.compiler.building import X86_64_V3, random, run
from tests.unit.compiler.frontends.raising.loops import Loops, loop_nests

from motet.compiler.verify.oracle import run_oracle


def _is_raised(text: str) -> bool:
    return "scf." not in str(load_mlir(text, "test.mlir").module)


@settings(max_examples=examples(150, 6))
@given(nest=loop_nests(), seed=st.integers(0, 100))
def test_nests_compute_what_their_loops_say(nest: Loops, seed: int) -> None:
    generator = np.random.default_rng(seed)
    arrays = {name: generator.integers(-9, 9, shape).astype(np.int32) for name, shape in nest.shapes.items()}
    program = load_mlir(nest.text(), "test.mlir")
    found = run_oracle(program, "main", [array.copy() for array in arrays.values()])
    nest.run(arrays)
    written = [name for name in arrays if any(store.array == name for store in nest.stores)]
    assert len(found) == len(written)
    for name, result in zip(written, found, strict=True):
        np.testing.assert_array_equal(result, arrays[name])


def test_an_element_read_before_the_loop_that_writes_it_stays_as_it_was_read() -> None:
    text = """
func.func @main(%a: memref<1xi32>) {
  %minus = arith.constant -1 : i32
  affine.for %i = 0 to 1 {
    %0 = affine.load %a[0] : memref<1xi32>
    affine.for %j = 0 to 2 {
      %1 = arith.muli %0, %minus : i32
      affine.store %1, %a[0] : memref<1xi32>
    }
  }
  return
}
"""
    (found,) = run_oracle(load_mlir(text, "test.mlir"), "main", [np.array([6], np.int32)])
    np.testing.assert_array_equal(found, [-6])


MATMUL = """
func.func @main(%a: memref<{m}x{k}xf32>, %b: memref<{k}x{n}xf32>, %c: memref<{m}x{n}xf32>) {{
  affine.for %i = 0 to {m} {{
    affine.for %j = 0 to {n} {{
      affine.for %k = 0 to {k} {{
        %0 = affine.load %a[%i, %k] : memref<{m}x{k}xf32>
        %1 = affine.load %b[%k, %j] : memref<{k}x{n}xf32>
        %2 = affine.load %c[%i, %j] : memref<{m}x{n}xf32>
        %3 = arith.mulf %0, %1 : f32
        %4 = arith.addf %2, %3 : f32
        affine.store %4, %c[%i, %j] : memref<{m}x{n}xf32>
      }}
    }}
  }}
  return
}}
"""


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (7, 13, 5), (64, 32, 17)])
def test_a_product_accumulated_in_memory_is_a_contraction(m: int, n: int, k: int) -> None:
    text = MATMUL.format(m=m, n=n, k=k)
    a, b, c = random(m, k, seed=1), random(k, n, seed=2), random(m, n, seed=3)
    want = c + a @ b
    assert _is_raised(text)
    (found,) = run(text, [a, b, c], X86_64_V3)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


CONVOLUTION = """
func.func @main(%x: memref<{n}x{c}x{h}x{w}xf32>, %f: memref<{o}x{c}x{kh}x{kw}xf32>, %b: memref<{o}xf32>)
    -> memref<{n}x{o}x{oh}x{ow}xf32> {{
  %zero = arith.constant 0.0 : f32
  %y = memref.alloc() : memref<{n}x{o}x{oh}x{ow}xf32>
  affine.for %n = 0 to {n} {{ affine.for %o = 0 to {o} {{ affine.for %i = 0 to {oh} {{ affine.for %j = 0 to {ow} {{
    %s = affine.for %c = 0 to {c} iter_args(%s0 = %zero) -> f32 {{
      %t = affine.for %p = max affine_map<(d0) -> ({low} - d0 * {step}, 0)>(%i)
          to min affine_map<(d0) -> ({h} + {low} - d0 * {step}, {kh})>(%i) iter_args(%s1 = %s0) -> f32 {{
        %u = affine.for %q = max affine_map<(d0) -> ({low} - d0 * {step}, 0)>(%j)
            to min affine_map<(d0) -> ({w} + {low} - d0 * {step}, {kw})>(%j) iter_args(%s2 = %s1) -> f32 {{
          %0 = affine.load %x[%n, %c, %i * {step} + %p - {low}, %j * {step} + %q - {low}]
              : memref<{n}x{c}x{h}x{w}xf32>
          %1 = affine.load %f[%o, %c, %p, %q] : memref<{o}x{c}x{kh}x{kw}xf32>
          %2 = arith.mulf %0, %1 : f32
          %3 = arith.addf %s2, %2 : f32
          affine.yield %3 : f32
        }}
        affine.yield %u : f32
      }}
      affine.yield %t : f32
    }}
    %bias = affine.load %b[%o] : memref<{o}xf32>
    %v = arith.addf %s, %bias : f32
    affine.store %v, %y[%n, %o, %i, %j] : memref<{n}x{o}x{oh}x{ow}xf32>
  }} }} }} }}
  return %y : memref<{n}x{o}x{oh}x{ow}xf32>
}}
"""


@settings(max_examples=examples(20))
@given(
    n=st.integers(1, 2), c=st.integers(1, 3), o=st.integers(1, 5), h=st.integers(3, 11), w=st.integers(3, 11),
    kh=st.integers(1, 3), kw=st.integers(1, 3), low=st.integers(0, 2), high=st.integers(0, 2), step=st.integers(1, 3),
)  # fmt: skip
def test_clamped_bounds_are_padding(
    n: int, c: int, o: int, h: int, w: int, kh: int, kw: int, low: int, high: int, step: int
) -> None:
    oh, ow = (h + low + high - kh) // step + 1, (w + low + high - kw) // step + 1
    text = CONVOLUTION.format(n=n, c=c, o=o, h=h, w=w, kh=kh, kw=kw, low=low, step=step, oh=oh, ow=ow)
    x, f, b = random(n, c, h, w), random(o, c, kh, kw), random(o)
    padded = np.pad(x, ((0, 0), (0, 0), (low, high), (low, high)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kh, kw), axis=(2, 3))[:, :, ::step, ::step]
    want = np.einsum("nchwij,ocij->nohw", windows, f) + b[:, None, None]
    program = load_mlir(text, "test.mlir")
    assert "scf." not in str(program.module)
    (found,) = run_oracle(program, "main", [x, f, b])
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)


def test_loops_that_turn_by_turn_read_what_they_wrote_stay_loops() -> None:
    text = """
    func.func @main(%x: memref<50xi32>) {
      affine.for %i = 1 to 50 {
        %a = affine.load %x[%i - 1] : memref<50xi32>
        %b = affine.load %x[%i] : memref<50xi32>
        %c = arith.addi %a, %b : i32
        affine.store %c, %x[%i] : memref<50xi32>
      }
      return
    }
    """
    x = random(50, dtype="int32")
    want = np.cumsum(x, dtype=np.int32)
    assert not _is_raised(text)
    np.testing.assert_array_equal(run(text, [x], X86_64_V3)[0], want)


def test_blocks_and_threads_of_an_index_are_one_loop_up_to_its_guard() -> None:
    text = """
    func.func @main(%x: memref<1000xf32>, %y: memref<1000xf32>) {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c8 = arith.constant 8 : index
      %c128 = arith.constant 128 : index
      %c1000 = arith.constant 1000 : index
      scf.parallel (%b) = (%c0) to (%c8) step (%c1) {
        scf.parallel (%t) = (%c0) to (%c128) step (%c1) {
          %0 = arith.muli %b, %c128 : index
          %i = arith.addi %0, %t : index
          %in = arith.cmpi ult, %i, %c1000 : index
          scf.if %in {
            %v = memref.load %x[%i] : memref<1000xf32>
            %e = math.exp %v : f32
            memref.store %e, %y[%i] : memref<1000xf32>
          }
        }
      }
      return
    }
    """
    x, y = random(1000), np.zeros(1000, np.float32)
    assert _is_raised(text)
    np.testing.assert_allclose(run(text, [x, y], X86_64_V3)[0], np.exp(x), rtol=1e-5)


def test_the_largest_of_a_bounded_window_is_a_window_over_a_rim_of_minus_infinity() -> None:
    text = """
    func.func @main(%x: memref<3x9xf32>) -> memref<3x9xf32> {
      %low = arith.constant 0xFF800000 : f32
      %y = memref.alloc() : memref<3x9xf32>
      affine.for %i = 0 to 3 {
        affine.for %j = 0 to 9 {
          %m = affine.for %k = max affine_map<(d0) -> (1 - d0, 0)>(%j) to min affine_map<(d0) -> (10 - d0, 3)>(%j)
              iter_args(%a = %low) -> f32 {
            %v = affine.load %x[%i, %j + %k - 1] : memref<3x9xf32>
            %b = arith.maximumf %a, %v : f32
            affine.yield %b : f32
          }
          affine.store %m, %y[%i, %j] : memref<3x9xf32>
        }
      }
      return %y : memref<3x9xf32>
    }
    """
    x = random(3, 9)
    x[1, 4], x[2, 7] = np.nan, np.inf
    rim = np.pad(x, ((0, 0), (1, 1)), constant_values=-np.inf)
    assert _is_raised(text)
    np.testing.assert_array_equal(
        run(text, [x], X86_64_V3)[0], np.maximum(np.maximum(rim[:, :-2], rim[:, 1:-1]), rim[:, 2:])
    )


def test_a_bounded_sum_over_other_bounds_than_its_array_has_stays_a_loop() -> None:
    text = """
    func.func @main(%x: memref<9xf32>) -> memref<9xf32> {
      %zero = arith.constant 0.0 : f32
      %y = memref.alloc() : memref<9xf32>
      affine.for %j = 0 to 9 {
        %m = affine.for %k = 0 to affine_map<(d0) -> (d0 + 1)>(%j) iter_args(%a = %zero) -> f32 {
          %v = affine.load %x[%k] : memref<9xf32>
          %b = arith.addf %a, %v : f32
          affine.yield %b : f32
        }
        affine.store %m, %y[%j] : memref<9xf32>
      }
      return %y : memref<9xf32>
    }
    """
    x = random(9)
    np.testing.assert_allclose(run(text, [x], X86_64_V3)[0], np.cumsum(x), rtol=1e-5)


def _flat(m: int, n: int, k: int, tile: int) -> str:
    """A product on memrefs of one axis, over tiles that reach beyond it, as kernels of CUDA are written."""
    blocks_m, blocks_n = -(-m // tile), -(-n // tile)
    return f"""
    func.func @main(%a: memref<{m * k}xf32>, %b: memref<{k * n}xf32>, %c: memref<{m * n}xf32>) {{
      %zero = arith.constant 0.0 : f32
      affine.for %by = 0 to {blocks_m} {{ affine.for %bx = 0 to {blocks_n} {{
        affine.for %ty = 0 to {tile} {{ affine.for %tx = 0 to {tile} {{
          %row = affine.apply affine_map<(d0, d1) -> (d0 * {tile} + d1)>(%by, %ty)
          %column = affine.apply affine_map<(d0, d1) -> (d0 * {tile} + d1)>(%bx, %tx)
          affine.if affine_set<(d0, d1) : ({m - 1} - d0 >= 0, {n - 1} - d1 >= 0)>(%row, %column) {{
            %s = affine.for %k = 0 to {k} iter_args(%t = %zero) -> f32 {{
              %0 = affine.load %a[%row * {k} + %k] : memref<{m * k}xf32>
              %1 = affine.load %b[%k * {n} + %column] : memref<{k * n}xf32>
              %2 = arith.mulf %0, %1 : f32
              %3 = arith.addf %t, %2 : f32
              affine.yield %3 : f32
            }}
            affine.store %s, %c[%row * {n} + %column] : memref<{m * n}xf32>
          }}
        }} }}
      }} }}
      return
    }}
    """


@settings(max_examples=examples(12))
@given(m=st.integers(2, 20), n=st.integers(2, 20), k=st.integers(2, 9), tile=st.sampled_from([1, 4, 8]))
def test_a_product_on_flat_memory_is_a_contraction(m: int, n: int, k: int, tile: int) -> None:
    program = load_mlir(_flat(m, n, k, tile), "test.mlir")
    assert "scf." not in str(program.module)
    a, b = random(m, k, seed=1), random(k, n, seed=2)
    found = run_oracle(program, "main", [a.ravel(), b.ravel(), np.zeros(m * n, np.float32)])[0]
    np.testing.assert_allclose(found.reshape(m, n), a @ b, rtol=1e-4, atol=1e-5)


@settings(max_examples=examples(12))
@given(n=st.integers(1, 20), low=st.integers(0, 3), high=st.integers(0, 3))
def test_a_load_within_bounds_else_a_constant_is_padding(n: int, low: int, high: int) -> None:
    text = f"""
    func.func @main(%x: memref<{n}xf32>) -> memref<{n + low + high}xf32> {{
      %other = arith.constant 3.5 : f32
      %y = memref.alloc() : memref<{n + low + high}xf32>
      affine.for %i = 0 to {n + low + high} {{
        %v = affine.if affine_set<(d0) : (d0 - {low} >= 0, {n + low - 1} - d0 >= 0)>(%i) -> f32 {{
          %0 = affine.load %x[%i - {low}] : memref<{n}xf32>
          affine.yield %0 : f32
        }} else {{
          affine.yield %other : f32
        }}
        %w = arith.negf %v : f32
        affine.store %w, %y[%i] : memref<{n + low + high}xf32>
      }}
      return %y : memref<{n + low + high}xf32>
    }}
    """
    x = random(n)
    assert _is_raised(text)
    found = run_oracle(load_mlir(text, "test.mlir"), "main", [x])[0]
    np.testing.assert_array_equal(found, -np.pad(x, (low, high), constant_values=3.5))


def test_a_sum_kept_in_memory_of_the_loop_is_a_reduction() -> None:
    text = """
    func.func @main(%x: memref<4x3xf32>, %w: memref<3x5xf32>) -> memref<4x5xf32> {
      %z = arith.constant 0.0 : f32
      %c0 = arith.constant 0 : index
      %y = memref.alloc() : memref<4x5xf32>
      affine.for %i = 0 to 4 { affine.for %j = 0 to 5 {
        %sum = memref.alloca() : memref<1xf32>
        memref.store %z, %sum[%c0] : memref<1xf32>
        affine.for %k = 0 to 3 {
          %a = affine.load %x[%i, %k] : memref<4x3xf32>
          %b = affine.load %w[%k, %j] : memref<3x5xf32>
          %c = memref.load %sum[%c0] : memref<1xf32>
          %m = arith.mulf %a, %b : f32
          %s = arith.addf %c, %m : f32
          memref.store %s, %sum[%c0] : memref<1xf32>
        }
        %r = memref.load %sum[%c0] : memref<1xf32>
        affine.store %r, %y[%i, %j] : memref<4x5xf32>
      } }
      return %y : memref<4x5xf32>
    }
    """
    x, w = random(4, 3), random(3, 5)
    assert _is_raised(text)
    np.testing.assert_allclose(run_oracle(load_mlir(text, "t.mlir"), "main", [x, w])[0], x @ w, rtol=1e-5, atol=1e-5)


SOFTMAX = """
func.func @main(%x: memref<6x10xf32>) -> memref<6x{n}xf32> {{
  %low = arith.constant 0xFF800000 : f32
  %z = arith.constant 0.0 : f32
  %y = memref.alloc() : memref<6x{n}xf32>
  affine.for %i = 0 to 6 {{ affine.for %j = 0 to {n} {{ affine.store %z, %y[%i, %j] : memref<6x{n}xf32> }} }}
  affine.for %i = 0 to 6 {{
    %m = affine.for %j = 0 to 10 iter_args(%a = %low) -> f32 {{
      %v = affine.load %x[%i, %j] : memref<6x10xf32>
      %b = arith.maximumf %a, %v : f32
      affine.yield %b : f32
    }}
    %s = affine.for %j = 0 to 10 iter_args(%a = %z) -> f32 {{
      %v = affine.load %x[%i, %j] : memref<6x10xf32>
      %d = arith.subf %v, %m : f32
      %e = math.exp %d : f32
      affine.store %e, %y[%i, %j] : memref<6x{n}xf32>
      %r = affine.load %y[%i, %j + {shift}] : memref<6x{n}xf32>
      %b = arith.addf %a, %r : f32
      affine.yield %b : f32
    }}
    affine.for %j = 0 to 10 {{
      %v = affine.load %y[%i, %j] : memref<6x{n}xf32>
      %d = arith.divf %v, %s : f32
      affine.store %d, %y[%i, %j] : memref<6x{n}xf32>
    }}
  }}
  return %y : memref<6x{n}xf32>
}}
"""


def test_a_loop_may_store_what_it_sums() -> None:
    text, x = SOFTMAX.format(n=10, shift=0), random(6, 10)
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    assert _is_raised(text)
    (found,) = run(text, [x], X86_64_V3)
    np.testing.assert_allclose(found, powers / powers.sum(axis=1, keepdims=True), rtol=1e-5)


def test_a_loop_that_sums_what_is_stored_later_stays_one() -> None:
    text, x = SOFTMAX.format(n=11, shift=1), random(6, 10)
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    assert not _is_raised(text)
    with np.errstate(divide="ignore"):
        want = powers / np.zeros((6, 1), np.float32)  # all that is summed are zeros from before
    np.testing.assert_array_equal(run(text, [x], X86_64_V3)[0][:, :10], want)


def test_counters_of_loops_may_stand_for_symbols() -> None:
    text = """
    #sum = affine_map<(d0)[s0] -> (d0 + s0)>
    #rest = affine_map<(d0, d1)[s0, s1] -> (d1 * 2 - s1 + s0)>
    func.func @main(%x: memref<30xf32>) -> memref<4x5xf32> {
      %y = memref.alloc() : memref<4x5xf32>
      affine.for %i = 0 to 4 {
        affine.for %j = 0 to 5 {
          %a = affine.apply #sum(%j)[%i]
          %b = affine.apply #rest(%i, %a)[%i, %j]
          %v = affine.load %x[%b] : memref<30xf32>
          affine.store %v, %y[%i, %j] : memref<4x5xf32>
        }
      }
      return %y : memref<4x5xf32>
    }
    """
    x = random(30)
    i, j = np.mgrid[:4, :5]
    assert _is_raised(text)
    found = run_oracle(load_mlir(text, "t.mlir"), "main", [x])[0]
    np.testing.assert_array_equal(found, x[2 * (i + j) - j + i])
