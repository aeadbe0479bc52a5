"""Depthwise convolutions and poolings of channels-first images and volumes, against their definitions in f64."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper
from tests.seeds import seeds

import motet

Array = np.ndarray[Any, Any]
TYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16}


def _windows(x: Array, how: dict[str, Any], fill: float) -> Array:
    """`x`, with its border, as [n, c, places…, taps…]."""
    rank = x.ndim - 2
    around = [(0, 0), (0, 0), *((how["pads"][a], how["pads"][rank + a]) for a in range(rank))]
    wide = np.pad(x.astype(np.float64), around, constant_values=fill)
    sizes = [
        (wide.shape[2 + a] - (how["kernel_shape"][a] - 1) * how["dilations"][a] - 1) // how["strides"][a] + 1
        for a in range(rank)
    ]
    result = np.empty((*x.shape[:2], *sizes, *how["kernel_shape"]))
    for tap in product(*map(range, how["kernel_shape"])):
        where = tuple(
            slice(first, first + (sizes[a] - 1) * how["strides"][a] + 1, how["strides"][a])
            for a, first in enumerate(t * how["dilations"][a] for a, t in enumerate(tap))
        )
        result[(..., *tap)] = wide[(slice(None), slice(None), *where)]
    return result


def _geometry(rng: random.Random, rank: int) -> tuple[list[int], dict[str, Any]]:
    while True:
        kernel = [rng.choice((1, 2, 3, 3, 5, 7, 9)[: 7 if rank == 2 else 4]) for _ in range(rank)]
        dilations = [rng.choice((1, 1, 1, 2, 3)) for _ in range(rank)]
        extents = [rng.choice((4, 7, 13, 16, 17, 31, 33, 40)[: 8 if rank == 2 else 5]) for _ in range(rank)]
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        pads = [rng.randint(0, k // 2) for _ in range(2) for k in kernel]
        if all(n + pads[a] + pads[rank + a] >= reach[a] for a, n in enumerate(extents)):
            strides = [rng.choice((1, 1, 2, 3, 4)) for _ in range(rank)]
            return extents, {"kernel_shape": kernel, "dilations": dilations, "strides": strides, "pads": pads}


def _run(nodes: list[Any], x: Array, held: dict[str, Array]) -> Array:
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", kind, ["n", *x.shape[1:]])],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    return np.asarray(motet.load(motet.compile(model, cache=False))(x)).astype(np.float64)


@pytest.mark.parametrize("seed", seeds(8))
def test_depthwise(seed: int) -> None:
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    dtype = TYPES[rng.choice(("f32", "f32", "f64", "f16"))]
    extents, how = _geometry(rng, 2)
    channels = rng.choice((1, 3, 8, 17))
    x = numbers.standard_normal((rng.choice((1, 2)), channels, *extents)).astype(dtype)
    w = numbers.standard_normal((channels, 1, *how["kernel_shape"])).astype(dtype)
    bias = numbers.standard_normal(channels).astype(dtype)
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv", group=channels, **how),
             helper.make_node("Relu", ["c"], ["y"], "relu")]
    expected = np.einsum("ncpqij,cij->ncpq", _windows(x, how, 0), w[:, 0].astype(np.float64))
    expected = np.maximum(expected + bias.astype(np.float64).reshape(-1, 1, 1), 0)
    close = 2e-3 if dtype == np.float16 else 1e-5
    np.testing.assert_allclose(_run(nodes, x, {"w": w, "b": bias}), expected, rtol=close, atol=close * 10)


@pytest.mark.parametrize("seed", seeds(10))
def test_pools(seed: int) -> None:
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    kind, rank = rng.choice(("MaxPool", "AveragePool")), rng.choice((2, 2, 3))
    dtype = TYPES[rng.choice(("f32", "f32", "f64"))]
    extents, how = _geometry(rng, rank)
    x = numbers.standard_normal((2, rng.choice((1, 3, 5)), *extents)).astype(dtype)
    taps = tuple(range(2 + rank, 2 + 2 * rank))
    if kind == "MaxPool":
        expected = _windows(x, how, -np.inf).max(taps)
    else:
        how["dilations"] = [1] * rank
        counts = _windows(np.ones_like(x), how, 0).sum(taps)
        expected = _windows(x, how, 0).sum(taps) / counts
    found = _run([helper.make_node(kind, ["x"], ["y"], "pool", **how)], x, {})
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.every
@pytest.mark.parametrize("taps", [2, 3, 5, 7])
def test_pools_whose_windows_share_lines(taps: int) -> None:
    how: dict[str, Any] = {"kernel_shape": [taps, 3], "dilations": [1, 1], "strides": [1, 1], "pads": [1, 0, 0, 1]}
    x = np.random.default_rng(taps).standard_normal((1, 3, 23, 21)).astype(np.float32)
    node = [helper.make_node("MaxPool", ["x"], ["y"], "pool", **how)]
    np.testing.assert_array_equal(_run(node, x, {}), _windows(x, how, -np.inf).max((4, 5)))
    node = [helper.make_node("AveragePool", ["x"], ["y"], "pool", count_include_pad=1, **how)]
    np.testing.assert_allclose(_run(node, x, {}), _windows(x, how, 0).mean((4, 5)), rtol=1e-5, atol=1e-6)


def test_pools_of_bytes_and_of_numbers_that_are_none() -> None:
    how: dict[str, Any] = {"kernel_shape": [5, 4], "dilations": [1, 1], "strides": [2, 1], "pads": [1, 2, 2, 1]}
    numbers = np.random.default_rng(0)
    node = [helper.make_node("MaxPool", ["x"], ["y"], "pool", **how)]
    for dtype in (np.int8, np.uint8):
        x = numbers.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (1, 3, 19, 21)).astype(dtype)
        np.testing.assert_array_equal(_run(node, x, {}), _windows(x, how, np.iinfo(dtype).min).max((4, 5)))
    x = numbers.standard_normal((1, 3, 19, 21)).astype(np.float32)
    x[0, 1, 7, 8], x[0, 2, 3, 3] = np.nan, -np.inf
    np.testing.assert_array_equal(_run(node, x, {}), _windows(x, how, -np.inf).max((4, 5)))
