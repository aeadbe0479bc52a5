"""motet.jax.jit: functions of JAX beside JAX's own results and numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import motet
from motet import builder as mb
from motet.errors import CallError, CompileError, MotetError, OptionError

jax: Any = pytest.importorskip("jax", reason="needs JAX: make frameworks")
import jax.numpy as jnp  # noqa: E402

import motet.jax as motet_jax  # noqa: E402
from motet.jax.arrays import result_of  # noqa: E402


def same(got: Any, expected: Any, tolerance: float = 1e-5) -> None:
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert isinstance(a, jax.Array) and (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), tolerance, tolerance)


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("f4")


def test_structures_keywords_and_unused_arguments() -> None:
    def function(weights: Any, x: Any, unused: Any, *, scale: Any = 2.0) -> Any:
        hidden = jnp.tanh(x @ weights["w"] + weights["b"])
        return {"y": hidden * scale, "parts": [hidden.sum(0), (None, x)]}

    compiled = motet_jax.jit(function)
    weights = {"w": jnp.asarray(normal(1, 7, 5)), "b": jnp.asarray(normal(2, 5))}
    for rows in (1, 3, 1):
        x = jnp.asarray(normal(rows, rows, 7))
        same(compiled(weights, x, jnp.ones(2)), function(weights, x, None))
        same(compiled(weights, x, 1, scale=normal(4, 5)), function(weights, x, None, scale=normal(4, 5)))
    assert compiled.combinations == 4 and compiled.__name__ == "function"


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "uint32", "float16", "bfloat16", "float32"])
def test_dtypes(dtype: str) -> None:
    x = jnp.asarray(np.arange(70).reshape(7, 10) % 2, dtype)
    compiled = motet_jax.jit(lambda x: (x, x[::2].T, jnp.where(x, x, 1 - x.astype("int32")).astype(x.dtype)))
    same(compiled(x), (x, x[::2].T, jnp.ones_like(x)))


def test_not_numbers_and_numbers_of_python() -> None:
    x = np.array([np.nan, np.inf, -np.inf, -0.0, 3], "f4")
    same(motet_jax.jit(lambda x, n: x * n)(x, 2), jnp.asarray(x * 2))


def test_static_arguments_by_position_and_name() -> None:
    @motet_jax.jit(static_argnums=1, static_argnames="mode")
    def function(x: Any, times: int, mode: str = "up") -> Any:
        return jnp.tile(x if mode == "up" else -x, times)

    x = jnp.arange(3.0)
    same(function(x, 2), jnp.tile(x, 2))
    same(function(x, times=3, mode="down"), jnp.tile(-x, 3))
    same(function(x, 2, "down"), jnp.tile(-x, 2))
    assert function.combinations == 3
    with pytest.raises(CallError, match="function: a static argument cannot be hashed"):
        function(x, [2])


def test_the_combinations_used_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    compiles = motet.compile
    made: list[str] = []
    monkeypatch.setattr("motet.compile", lambda text, **rest: made.append(text) or compiles(text, **rest))
    compiled = motet_jax.jit(lambda x: x + 1, kept=2)
    for extent in (0, 2, 0, 3, 0, 2):
        same(compiled(jnp.ones(extent)), jnp.full(extent, 2.0))
    assert [text.count("tensor<2xf32>") > 0 for text in made] == [False, True, False, True]
    assert compiled.combinations == 2


@pytest.mark.parametrize("shape", [(1 << 18,), (600, 1001)])
def test_big_results_of_sessions_become_arrays_of_jax_in_place(shape: tuple[int, ...]) -> None:
    with mb.Graph("double") as graph:
        x = graph.input("x", shape)
        graph.result(x + x)
    result = motet.load(motet.compile(graph))(np.ones(shape, np.float32))
    array = result_of(result, jax.ShapeDtypeStruct(shape, np.float32), jax)
    assert array.unsafe_buffer_pointer() == result.ctypes.data
    same(array, np.full(shape, 2, np.float32))


def test_keys_and_closed_values() -> None:
    table = jnp.asarray(normal(3, 100, 60))
    same(motet_jax.jit(lambda i: table[i] + 1)(jnp.array([3, 99])), table[jnp.array([3, 99])] + 1)
    key = jax.random.PRNGKey(3)
    same(motet_jax.jit(lambda k: jax.random.normal(k, (5,)))(key), jax.random.normal(key, (5,)))


def test_within_a_transformation_jax_computes() -> None:
    compiled = motet_jax.jit(lambda x: (x ** 3).sum())
    with pytest.warns(UserWarning, match="JAX computes it"):
        same(jax.grad(compiled)(jnp.arange(3.0)), 3 * jnp.arange(3.0) ** 2)


def branches(x: Any) -> Any:
    return x if x.sum() > 0 else -x


@pytest.mark.parametrize(("function", "arguments", "kind", "said"), [
    (branches, [jnp.ones(2)], CompileError, "branches: JAX cannot trace it: TracerBoolConversionError: "),
    (branches, [jax.random.key(1)], CallError, "branches: a typed key given; expected an array of numbers: "),
    (branches, ["text"], CallError, r"branches: argument .*0.*: str given; expected arrays and numbers"),
    (jnp.linalg.eigvals, [jnp.ones((2, 2))], CompileError, "eigvals: .*lapack"),
])  # fmt: skip
def test_mistakes_are_one_line(function: Any, arguments: list[Any], kind: type[MotetError], said: str) -> None:
    with pytest.raises(kind, match=said) as error:
        motet_jax.jit(function)(*arguments)
    assert "\n" not in str(error.value)


def test_static_values_of_other_types_are_other_programs() -> None:
    compiled = motet_jax.jit(lambda x, n: x * n, static_argnums=1)
    x = jnp.arange(3)
    for value in (1, 1.0, True):
        same(compiled(x, value), x * value)
    assert compiled.combinations == 3


@pytest.mark.parametrize(("options", "said"), [
    ({"static_argnums": 3}, "static_argnums=3; expected a position of x"), ({"kept": 0}, "kept: 0 given"),
    ({"static_argnames": "y"}, "static_argnames='y'; expected one of x"),
    ({"kept": "2"}, "kept: '2' given, of type str"), ({"kept": 1.5}, "kept: 1.5 given, of type float"),
    ({"static_argnums": "x"}, "static_argnums: 'x' given, of type str; expected a position"),
    ({"static_argnums": 1.5}, "static_argnums: 1.5 given"), ({"static_argnames": [5]}, "static_argnames: 5 given"),
])  # fmt: skip
def test_invalid_options(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        motet_jax.jit(branches, **options)


def test_exceptions_of_the_function_are_its_own() -> None:
    def function(x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        motet_jax.jit(function)(jnp.ones(1))
