"""Functions of JAX exported with symbolic extents, compiled once, against JAX at many extents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import motet

jax: Any = pytest.importorskip("jax", reason="needs JAX: make frameworks")
import jax.numpy as jnp  # noqa: E402
from jax import export, lax  # noqa: E402

_EXTENTS = (1, 2, 3, 5, 7, 8, 16, 17, 33)
_LAYOUT = ("NHWC", "HWIO", "NHWC")
_FILTERS = np.random.default_rng(1).standard_normal((3, 3, 2, 4)).astype("f4")


def pool(x: Any, window: Any, strides: Any, padding: Any, **dilations: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, padding, **dilations)


def convolve(x: Any, strides: Any, padding: Any, filters: Any = _FILTERS, **more: Any) -> Any:
    return lax.conv_general_dilated(x, filters, strides, padding, dimension_numbers=_LAYOUT, **more)


def first_of_largest(x: Any, y: Any) -> Any:
    def larger(a: Any, b: Any) -> Any:
        return tuple(jnp.where(a[0] >= b[0], u, v) for u, v in zip(a, b, strict=True))

    return lax.reduce_window((x, y), (jnp.float32(-jnp.inf), jnp.float32(-1)), larger, (3,), (2,), [(1, 1)])


def check(function: Callable[..., Any], *shapes: str, dtype: str = "f4", values: Any = None) -> motet.Session:
    """Compares at all extents; `values` makes an argument from a generator and its shape."""
    scope = export.SymbolicScope()
    given = [jax.ShapeDtypeStruct(export.symbolic_shape(shape, scope=scope), dtype) for shape in shapes]
    text = export.export(jax.jit(function))(*given).mlir_module()
    session = motet.load(motet.compile(text, format="stablehlo", cache=False))
    for number, n in enumerate(_EXTENTS):
        extents = {"n": n, "m": _EXTENTS[(2 * number + 4) % 9], "k": _EXTENTS[(4 * number + 2) % 9]}
        generator = np.random.default_rng(number)
        sizes = [tuple(int(eval(one, {}, extents)) for one in shape.split(",")) for shape in shapes]
        arguments = [(values or _numbers)(generator, size).astype(dtype) for size in sizes]
        expected = jax.tree.leaves(jax.jit(function)(*arguments))
        got = session(*arguments)
        for a, b in zip(got if isinstance(got, (list, tuple)) else [got], expected, strict=True):
            assert a.shape == b.shape
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), 2e-4, 1e-4, err_msg=str(extents))
    return session


def _numbers(generator: np.random.Generator, size: tuple[int, ...]) -> np.ndarray:
    return 4 * generator.standard_normal(size)


@pytest.mark.parametrize(("shape", "function"), [
    ("n", lambda x: jnp.cumsum(x)),
    ("n, m", lambda x: lax.cumsum(x, 0, reverse=True)),
    ("n, m", lambda x: lax.cummax(x, 1)),
    ("n, m", lambda x: lax.cummin(x * 2, 0)),
    ("n, 3", lambda x: lax.cumprod(x / 4, 0)),
    ("n, m", lambda x: lax.cumlogsumexp(x, 1)),
    ("n", lambda x: jax.grad(lambda y: (jnp.cumsum(y) ** 2).sum())(x)),
    ("n", lambda x: lax.reduce_window(x, jnp.float32(0), lax.add, x.shape, (1,), "VALID")),
    ("n, 9, 8, 3", lambda x: pool(x, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")),
    ("2, n, m, 3", lambda x: pool(x, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")),
    ("2, n, m, 3", lambda x: pool(x, (1, 2, 3, 1), (1, 1, 2, 1), "SAME", window_dilation=(1, 2, 1, 1))),
    ("n, m", lambda x: pool(x, (2, 1), (1, 1), [(1, 2), (0, 0)], base_dilation=(2, 3))),
])  # fmt: skip
def test_windows(shape: str, function: Callable[..., Any]) -> None:
    check(function, shape)


def test_windows_of_several_tensors() -> None:
    check(first_of_largest, "n", "n")


@pytest.mark.parametrize(("shape", "function"), [
    ("n, m", lambda x: lax.pad(x, jnp.float32(7), ((-1, 2, 0), (0, -1, 0)))),
    ("n, m", lambda x: lax.pad(x, jnp.float32(7), ((1, 2, 1), (0, -1, 2)))),
    ("n, m", lambda x: lax.pad(x, jnp.float32(7), ((x.shape[1], 2, 0), (0, x.shape[0], 0)))),
    ("n, m", lambda x: lax.pad(x, jnp.float32(7), ((3 - x.shape[1], x.shape[1], 0), (0, 0, 0)))),
])  # fmt: skip
def test_pads(shape: str, function: Callable[..., Any]) -> None:
    check(function, shape)


@pytest.mark.parametrize(("shape", "function"), [
    ("n, 8, 9, 2", lambda x: convolve(x, (1, 1), "SAME")),
    ("n, m, m, 2", lambda x: convolve(x, (2, 2), "SAME")),
    ("1, n+2, m+2, 2", lambda x: convolve(x, (2, 1), "VALID")),
    ("2, n+2, m+4, 2", lambda x: convolve(x, (1, 1), [(1, 2), (3, 0)], rhs_dilation=(1, 2))),
    ("2, n, m, 2", lambda x: convolve(x, (1, 1), [(1, 2), (2, 1)], lhs_dilation=(2, 3))),
    ("1, n+2, m+1, 2", lambda x: convolve(x, (1, 1), [(-1, 2), (2, -1)])),
    ("n, m, m, 2", lambda x: convolve(x, (1, 2), "SAME", _FILTERS[:, :, :1], feature_group_count=2)),
    ("2*n, m, m, 2", lambda x: convolve(x, (1, 1), "SAME", batch_group_count=2)),
    ("2, n, m, 2", lambda x: lax.conv_transpose(x, _FILTERS, (2, 2), "SAME", dimension_numbers=_LAYOUT)),
    ("n, 2, m, m", lambda x: lax.conv_general_dilated(x, _FILTERS.transpose(3, 2, 0, 1), (2, 2), "SAME")),
    ("n, m, m, 2", lambda x: convolve(x * (1 + 2j), (1, 1), "SAME", _FILTERS * (1 - 1j))),
    ("n, m, m, 2", lambda x: jax.grad(lambda y: (convolve(y, (1, 1), "SAME") ** 2).sum())(x)),
    ("n, m, m, 2", lambda x: jax.grad(lambda k: convolve(x, (1, 1), "SAME", k).mean())(jnp.asarray(_FILTERS))),
])  # fmt: skip
def test_convolutions(shape: str, function: Callable[..., Any]) -> None:
    check(function, shape)


def test_filters_of_dynamic_extents() -> None:
    check(lambda x, k: convolve(x, (1, 1), [(3, 3), (40, 40)], k), "2, n, m, 2", "3, k, 2, 4")


@pytest.mark.parametrize(("dtype", "wide"), [("int8", "int32"), ("uint8", "uint32"), ("bfloat16", "float32")])
def test_convolutions_in_a_wider_type(dtype: str, wide: str) -> None:
    filters = np.arange(18).reshape(3, 3, 2, 1).astype(dtype)
    check(lambda x: convolve(x, (1, 1), "SAME", filters, preferred_element_type=wide), "n, m, m, 2", dtype=dtype)


def _with_ties(generator: np.random.Generator, size: tuple[int, ...]) -> np.ndarray:
    return generator.choice([-np.inf, -2, -0.0, 0.0, 1, 3, np.nan], size)


@pytest.mark.parametrize(("shape", "function"), [
    ("n, m", lambda x: lax.top_k(x, 1)),
    ("n, 2*m", lambda x: lax.top_k(x, x.shape[1] // 2)),
    ("3, n, m", lambda x: lax.top_k((x * 2).astype("int32"), x.shape[2])),
    ("n, m", lambda x: jnp.sort(x, 0, descending=True)),
    ("n, m", lambda x: jnp.argsort(x, -1)),
    ("n, m", lambda x: x[::-2, ::-1]),
])  # fmt: skip
def test_orders(shape: str, function: Callable[..., Any]) -> None:
    check(function, shape, values=_with_ties)


def _rows(x: Any) -> Any:
    return jnp.arange(x.shape[0]) // 2


def _gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    return jax.grad(lambda x: (function(x) ** 2).sum())


_SMALL_WINDOWS = lax.ScatterDimensionNumbers((1,), (0,), (0,))


@pytest.mark.parametrize(("shape", "function"), [
    ("n-1, 8", lambda x: x.at[_rows(x)].add(x)),
    ("n-1, m-1", lambda x: x.at[_rows(x)].mul(x * 2)),
    ("n, m", lambda x: x.at[:, _rows(x.T)].min(x * 2)),
    ("n, m", lambda x: x.at[_rows(x), 0].set(7)),
    ("n, m, 3", lambda x: x.at[x[:, 0, 0].astype("int32")].max(1, mode="drop")),
    ("n, m+1", lambda x: x.at[:, 1:].set(x[:, :-1])),
    ("n, m+1", lambda x: lax.scatter_add(x, jnp.array([[0], [0]]), jnp.ones((2, x.shape[1] - 1)), _SMALL_WINDOWS)),
    ("n, m, 8", jax.vmap(lambda x: x.at[_rows(x)].add(x))),
    ("n-1", lambda x: jax.ops.segment_sum(x, _rows(x), 4)),
    ("n, m", lambda x: jax.ops.segment_max(x, _rows(x), x.shape[1])),
    pytest.param("n-1, m-1", lambda x: jnp.abs((x * (1 + 2j)).at[_rows(x)].add(x * 1j)), marks=pytest.mark.slow),
    pytest.param("n-1, m-1", lambda x: jnp.abs((x * (1 + 2j)).at[:, _rows(x.T)].mul(x - 1j)), marks=pytest.mark.slow),
    ("n, 8", _gradient(lambda x: x[_rows(x)])),
    ("n, m", _gradient(lambda x: jnp.sort(x, 1))),
])  # fmt: skip
def test_scatters(shape: str, function: Callable[..., Any]) -> None:
    check(function, shape)


@pytest.mark.parametrize(("shape", "function"), [
    ("n-1, 4, 6, 3", lambda x: pool(x, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")),
    ("2, n, m, 3", lambda x: pool(x, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")),
    ("n, m", lambda x: lax.reduce_window(x, jnp.inf, lax.min, (2, 3), (1, 2), [(1, 0), (1, 2)])),
])  # fmt: skip
def test_gradients_of_pools(shape: str, function: Callable[..., Any]) -> None:
    check(_gradient(function), shape)


@pytest.mark.parametrize(("shape", "function"), [
    ("n-1, 8", jnp.fft.fft),
    ("n, 34", lambda x: jnp.fft.ifft(x * (1 + 2j))),
    ("n, m, 9", jnp.fft.rfft),
    ("n, 9", lambda x: jnp.fft.irfft(x * (1 - 1j))),
    ("n, 6, 10", lambda x: jnp.fft.rfftn(x, axes=(1, 2))),
    ("n, 6, 10", lambda x: jnp.fft.irfft2(x * (1 - 1j))),
    ("8, n", lambda x: jnp.fft.fft(x, axis=0)),
    ("n, 12", _gradient(lambda x: jnp.abs(jnp.fft.rfft(x)))),
])  # fmt: skip
def test_transforms_of_known_lengths(shape: str, function: Callable[..., Any]) -> None:
    check(function, shape)


@pytest.mark.parametrize(("shape", "function"), [
    ("n, m", lambda x: lax.fori_loop(0, x.shape[0], lambda i, c: c + x[i], jnp.zeros(x.shape[1], "f4"))),
    ("n, m", lambda x: lax.scan(lambda c, a: (c / 2 + a, c * a), jnp.zeros(x.shape[1], "f4"), x)),
    ("n, m", lambda x: lax.scan(lambda c, a: (c / 2 + a, c.sum()), x[0], x, reverse=True)),
    ("n, m", lambda x: lax.map(lambda row: row.sum() * row, x)),
    ("n, m", lambda x: lax.dynamic_update_slice(x, x[:1], (x.shape[0], -3))),
    ("n", lambda x: lax.while_loop(lambda c: c.sum() < 100, lambda c: c * 2 + 1, jnp.abs(x))),
    ("n, m", lambda x: lax.cond(x.sum() > 0, lambda y: y * 2, lambda y: -y[::-1], x)),
])  # fmt: skip
def test_loops_and_branches(shape: str, function: Callable[..., Any]) -> None:
    check(function, shape)
