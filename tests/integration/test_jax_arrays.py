"""Sessions that are called with arrays of JAX: results are arrays of JAX, in place where it allows it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import motet
import motet.builder as mb

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")

SPELLINGS = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "int32": "i32", "int8": "i8"}


def doubled(shape: tuple[Any, ...], dtype: str = "f32") -> motet.Session:
    with mb.Graph("double") as graph:
        x = graph.input("x", shape, dtype)
        graph.result(x + x)
    return motet.load(motet.compile(graph))


@pytest.mark.parametrize("dtype", SPELLINGS)
@pytest.mark.parametrize("shape", [(), (3,), (0, 4), (17, 5)], ids=str)
def test_results_are_arrays_of_jax(shape: tuple[int, ...], dtype: str) -> None:
    session = doubled(shape, SPELLINGS[dtype])
    x = jnp.asarray(np.random.default_rng(7).integers(-9, 9, shape), dtype)
    for _ in range(4):  # before and after a call is prepared
        result = session(x)
        assert isinstance(result, jax.Array) and result.dtype == x.dtype
        np.testing.assert_array_equal(np.asarray(result, np.float64), np.asarray(x + x, np.float64))
        assert type(session(np.asarray(x))) is np.ndarray
    assert isinstance(session.submit(x).result(), jax.Array)


def test_large_results_share_memory_with_the_session() -> None:
    session = doubled(("n", 1024))
    x = jnp.ones((700, 1024))
    before = session.memory.results
    result = session(x)
    assert session.memory.results - before >= result.nbytes  # JAX has no copy
    del result
    assert session.memory.results - before < x.nbytes


def test_elements_of_64_bits_are_not_narrowed() -> None:
    session = doubled((3,), "i64")
    x = np.array([1 << 40, 2, 3])
    with jax.enable_x64(True):
        result = session(jnp.asarray(x))
    assert isinstance(result, jax.Array) and result.dtype == np.int64
    mixed = motet.load(motet.compile("""func.func @main(%x: tensor<2xf32>) -> tensor<2xi64> {
  %big = arith.constant dense<1099511627776> : tensor<2xi64>
  return %big : tensor<2xi64>
}
"""))
    result = mixed(jnp.ones(2))
    assert result.dtype == np.int64 and result.tolist() == [1 << 40] * 2


def test_out_is_returned_as_it_was_given() -> None:
    session, out = doubled((4,)), np.empty(4, np.float32)
    assert session(jnp.ones(4), out=out) is out
    assert out.tolist() == [2.0] * 4


def test_extents_that_follow_from_values() -> None:
    session = motet.load(motet.compile("""module {
func.func @main(%n: tensor<i64>, %x: tensor<f32>) -> tensor<?xf32> {
  %v = tensor.extract %n[] : tensor<i64>
  %k = arith.index_cast %v : i64 to index
  %e = tensor.empty(%k) : tensor<?xf32>
  %s = tensor.extract %x[] : tensor<f32>
  %y = linalg.fill ins(%s : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}
}
"""))
    result = session(np.array(3), jnp.asarray(1.5))
    assert isinstance(result, jax.Array) and result.tolist() == [1.5] * 3
