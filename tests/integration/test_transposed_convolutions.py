"""Transposed convolutions by constant filters: by phases, without inserted zeros, against their definition in f64."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.seeds import seeds

import motet

Array = np.ndarray[Any, Any]


def scattered(x: Array, w: Array, bias: Array, how: dict[str, Any]) -> Array:
    """Every pixel adds the filters, times its value, to where they meet the result."""
    rank, groups = x.ndim - 2, how["group"]
    strides, dilations, pads, more = (how[name] for name in ("strides", "dilations", "pads", "output_padding"))
    full = [
        (x.shape[a + 2] - 1) * strides[a] + (w.shape[a + 2] - 1) * dilations[a] + 1 + more[a] for a in range(rank)
    ]
    per = x.shape[1] // groups
    y = np.zeros((x.shape[0], groups * w.shape[1], *full))
    for group in range(groups):
        here = slice(group * w.shape[1], (group + 1) * w.shape[1])
        image, filters = x[:, group * per : (group + 1) * per], w[group * per : (group + 1) * per]
        for tap in product(*map(range, w.shape[2:])):
            added = np.einsum("nc...,cf->nf...", image.astype(np.float64), filters[:, :, *tap].astype(np.float64))
            places = tuple(
                slice(tap[a] * dilations[a], tap[a] * dilations[a] + (x.shape[a + 2] - 1) * strides[a] + 1, strides[a])
                for a in range(rank)
            )
            y[:, here, *places] += added
    kept = tuple(slice(pads[a], full[a] - pads[a]) for a in range(rank))
    return np.maximum(y[:, :, *kept] + bias.reshape(-1, *[1] * rank), 0)


def _draw(seed: int) -> tuple[bytes, Array, Array]:
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    rank = rng.choice((1, 2, 2, 3))
    groups = rng.choice((1, 1, 2, 3)) if rank == 2 else 1
    while True:
        windows = [rng.choice((1, 2, 3, 4, 5, 7)) for _ in range(rank)]
        how: dict[str, Any] = {
            "strides": [rng.choice((1, 2, 2, 3, 4, 8)) for _ in range(rank)],
            "dilations": [rng.choice((1, 1, 1, 2, 3)) for _ in range(rank)], "group": groups,
        }
        reach = [(k - 1) * d for k, d in zip(windows, how["dilations"], strict=True)]
        own = [rng.randint(0, r) for r in reach]
        how["pads"] = own * 2
        how["output_padding"] = [
            rng.randrange(max(s, d)) for s, d in zip(how["strides"], how["dilations"], strict=True)
        ]
        extents = [rng.choice((1, 2, 3, 5, 8, 16, 17, 19)) for _ in range(rank)]
        sizes = [
            (n - 1) * s + r + 1 + m - 2 * p for n, s, r, m, p in
            zip(extents, how["strides"], reach, how["output_padding"], own, strict=True)
        ]
        if min(sizes) > 0 and np.prod(sizes) < 20_000:
            break
    channels, filters = rng.choice((1, 2, 5, 16)), rng.choice((1, 3, 8, 16, 17))
    x = numbers.standard_normal((rng.choice((1, 2)), groups * channels, *extents), np.float32)
    w = numbers.standard_normal((groups * channels, filters, *windows), np.float32)
    bias = numbers.standard_normal(groups * filters, np.float32)
    nodes = [helper.make_node("ConvTranspose", ["x", "w", "b"], ["c"], "conv", **how),
             helper.make_node("Relu", ["c"], ["y"], "relu")]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(bias, "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return model.SerializeToString(), x, scattered(x, w, bias, how)


@pytest.mark.parametrize("seed", [*range(10), 105])
def test_transposed_convolutions(seed: int) -> None:
    source, x, expected = _draw(seed)
    found = motet.load(motet.compile(source, cache=False))(x)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize(("channels", "filters"), [(5, 1), (4, 2), (1, 1)])
def test_groups_of_one_channel(channels: int, filters: int, rank: int, dynamic: bool) -> None:
    numbers = np.random.default_rng(rank)
    how: dict[str, Any] = {"strides": [2, 3][:rank], "dilations": [1] * rank, "group": channels, "pads": [1] * 2 * rank,
                           "output_padding": [0] * rank}
    x = numbers.standard_normal((2, channels, *[7, 5][:rank]), np.float32)
    w, bias = numbers.standard_normal((channels, filters, *[4] * rank), np.float32), np.zeros(channels * filters)
    graph = helper.make_graph(
        [helper.make_node("ConvTranspose", ["x", "w"], ["c"], **how), helper.make_node("Relu", ["c"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", channels, *"hw"[:rank]] if dynamic else x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [numpy_helper.from_array(w, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    found = motet.load(motet.compile(model, cache=False))(x)
    np.testing.assert_allclose(found, scattered(x, w, bias, how), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("window", [2, 3, 4])
def test_infinite_pixels_do_not_meet_zeros(window: int) -> None:
    """A pixel that is infinite only changes the points that its window covers, and gives no NaN."""
    x, w = np.ones((1, 1, 5, 5), np.float32), np.ones((1, 1, window, window), np.float32)
    x[0, 0, 2, 2] = np.inf
    graph = helper.make_graph(
        [helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[3, 3])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [numpy_helper.from_array(w, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    found = np.asarray(motet.load(motet.compile(model, cache=False))(x))
    inside = np.zeros(found.shape, bool)
    inside[..., 6 : 6 + window, 6 : 6 + window] = True
    assert np.isposinf(found[inside]).all() and np.isfinite(found[~inside]).all()


@pytest.mark.parametrize("seed", seeds(8))
def test_images_of_dynamic_extents(seed: int) -> None:
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    rank = 1 + seed % 3
    windows = [rng.choice((1, 2, 3, 4, 5, 7)) for _ in range(rank)]
    own = [rng.randint(0, k - 1) for k in windows]
    how: dict[str, Any] = {
        "strides": [rng.choice((1, 2, 3, 4)) for _ in range(rank)], "dilations": [1] * rank, "group": 1,
        "pads": own * 2, "output_padding": [0] * rank}
    channels, filters = rng.choice((1, 2, 5, 16)), rng.choice((1, 3, 8, 17))
    w = numbers.standard_normal((channels, filters, *windows), np.float32)
    bias = numbers.standard_normal(filters, np.float32)
    graph = helper.make_graph(
        [helper.make_node("ConvTranspose", ["x", "w", "b"], ["c"], "conv", **how),
         helper.make_node("Relu", ["c"], ["y"], "relu")], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", channels, *(f"d{a}" for a in range(rank))])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(bias, "b")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    session = motet.load(motet.compile(model, cache=False))
    for more in (0, 1, 6):
        extents = [-(-2 * p // s) + 1 + rng.randint(0, more) for p, s in zip(own, how["strides"], strict=True)]
        x = numbers.standard_normal((1 + more % 3, channels, *extents), np.float32)
        np.testing.assert_allclose(session(x), scattered(x, w, bias, how), rtol=2e-5, atol=2e-5)


BETWEEN_ZEROS = """
func.func @main(%x: tensor<{n}x{channels}x5xf32>, %b: tensor<{extents}xf32>) -> tensor<{n}x9x10xf32> {{
  %k = arith.constant dense<1.5> : tensor<9x10x{window}xf32>
  %zero = arith.constant 0.0 : f32
  %axis = arith.constant 0 : index
  %n = tensor.dim %x, %axis : tensor<{n}x{channels}x5xf32>
  %e = tensor.empty({size}) : tensor<{n}x10x{wide}xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<{n}x10x{wide}xf32>) -> tensor<{n}x10x{wide}xf32>
  %z = tensor.insert_slice %x into %f[0, 0, 1] [{count}, {channels}, 5] [1, 1, 2]
    : tensor<{n}x{channels}x5xf32> into tensor<{n}x10x{wide}xf32>
  %o = tensor.empty({size}) : tensor<{n}x9x10xf32>
  %i = linalg.broadcast ins(%b : tensor<{extents}xf32>) outs(%o : tensor<{n}x9x10xf32>) dimensions = {missing}
  %r = linalg.conv_1d_ncw_fcw {{strides = dense<1> : tensor<1xi64>, dilations = dense<1> : tensor<1xi64>}}
    ins(%z, %k : tensor<{n}x10x{wide}xf32>, tensor<9x10x{window}xf32>) outs(%i : tensor<{n}x9x10xf32>)
    -> tensor<{n}x9x10xf32>
  return %r : tensor<{n}x9x10xf32>
}}
"""


@pytest.mark.parametrize(("n", "channels", "extents", "missing"), [
    (2, 10, "10", [0, 1]),  # initial sums that vary along the image
    ("?", 10, "10", [0, 1]),
    ("?", 10, "?x9", [2]),  # ... and along dimensions of unknown extent
    (2, 8, "9", [0, 2]),  # channels of zeros
], ids=["image", "image-dynamic", "batch", "channels"])  # fmt: skip
@pytest.mark.parametrize("window", [2, 3])
def test_initial_sums_and_channels_of_zeros(
    n: int | str, channels: int, extents: str, missing: list[int], window: int
) -> None:
    text = BETWEEN_ZEROS.format(
        n=n, channels=channels, extents=extents, missing=missing, window=window, wide=9 + window,
        count=n if n == 2 else "%n", size="" if n == 2 else "%n")
    numbers = np.random.default_rng(7)
    x = numbers.standard_normal((2, channels, 5), np.float32)
    b = numbers.standard_normal([int(extent.replace("?", "2")) for extent in extents.split("x")], np.float32)
    zeros = np.zeros((2, 9 + window))
    zeros[:, 1:11:2] = x.sum(1, dtype=np.float64)
    sums = 1.5 * np.stack([zeros[:, h : h + window].sum(1) for h in range(10)], 1)
    expected = np.broadcast_to(sums[:, None] + np.expand_dims(b, missing), (2, 9, 10))
    found = motet.load(motet.compile(text, format="mlir", cache=False))(x, b)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
