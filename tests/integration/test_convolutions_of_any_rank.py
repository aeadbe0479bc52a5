"""Networks of two convolutions over one to three axes, of odd shapes, against sliding windows in double precision; with
extents that are known when compiling, and with dynamic ones."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

import numpy as np
import onnx
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from onnx import TensorProto, helper, numpy_helper
from tests.seeds import seeds

import motet

SEEDS = range(12)


@dataclass(frozen=True)
class Layer:
    weights: np.ndarray
    bias: np.ndarray
    groups: int
    strides: list[int]
    dilations: list[int]
    pads: list[int]

    def node(self, number: int, source: str, result: str) -> onnx.NodeProto:
        return helper.make_node(
            "Conv", [source, f"w{number}", f"b{number}"], [result], group=self.groups, strides=self.strides,
            dilations=self.dilations, pads=self.pads)

    def reference(self, x: np.ndarray) -> np.ndarray:
        axes = range(2, x.ndim)
        spatial = len(axes)
        padded = np.pad(x, [(0, 0), (0, 0), *zip(self.pads[:spatial], self.pads[spatial:], strict=True)])
        taps = self.weights.shape[2:]
        reach = tuple((k - 1) * d + 1 for k, d in zip(taps, self.dilations, strict=True))
        seen = sliding_window_view(padded, reach, tuple(axes))
        seen = seen[(..., *(slice(None, None, s) for s in self.strides), *[slice(None)] * spatial)]
        seen = seen[(..., *(slice(None, None, d) for d in self.dilations))]
        parts = np.split(seen, self.groups, 1)
        filters = np.split(self.weights.astype(np.float64), self.groups)
        last = range(seen.ndim - spatial, seen.ndim)
        results = [
            np.moveaxis(np.tensordot(part, w, ([1, *last], range(1, w.ndim))), -1, 1)
            for part, w in zip(parts, filters, strict=True)
        ]
        return np.concatenate(results, 1) + self.bias.astype(np.float64).reshape(-1, *[1] * spatial)


def layer(
    draw: random.Random, channels: int, spatial: int, groups: int, same: bool = False,
    each: tuple[int, ...] = (1, 3, 7, 16, 19, 33),
) -> Layer:
    """A layer of one of `each` filters per group. With `same`, the padding is at least that which keeps extents."""
    rng = np.random.default_rng(draw.randrange(1 << 30))
    taps = [draw.choice((1, 2, 3, 5)) for _ in range(spatial)]
    filters = groups * draw.choice(each)
    dilations = [draw.choice((1, 1, 2, 3)) for _ in range(spatial)]
    reach = [(k - 1) * d for k, d in zip(taps, dilations, strict=True)]
    pads = [draw.randint(-(-most // 2) if same else 0, most) for most in reach]
    return Layer(
        rng.standard_normal((filters, channels // groups, *taps)).astype(np.float32) / math.prod(taps),
        rng.standard_normal(filters).astype(np.float32), groups, [draw.choice((1, 1, 2, 3)) for _ in range(spatial)],
        dilations, [*pads, *pads])


def network(first: Layer, second: Layer, extents: list[int | str]) -> onnx.ModelProto:
    """Both convolutions, with a ReLU between them, of an image of `extents`."""
    weights = {f"{name}{i}": array for i, each in enumerate((first, second))
               for name, array in (("w", each.weights), ("b", each.bias))}
    graph = helper.make_graph(
        [first.node(0, "x", "h"), helper.make_node("Relu", ["h"], ["r"]), second.node(1, "r", "y")], "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, extents)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def check(session: motet.Session, x: np.ndarray, first: Layer, second: Layer) -> None:
    expected = second.reference(np.maximum(first.reference(x.astype(np.float64)), 0))
    found = np.asarray(session(x))
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("seed", SEEDS)
def test_two_convolutions_of_any_geometry(seed):
    draw = random.Random(seed)
    spatial, groups = 1 + seed % 3, draw.choice((1, 1, 2, 3))
    channels = groups * draw.choice((1, 5, 16, 24))
    first = layer(draw, channels, spatial, groups)
    second = layer(draw, len(first.bias), spatial, 1, same=True)
    extents = [draw.randint(17, (300, 40, 21)[spatial - 1]) for _ in range(spatial)]
    x = np.random.default_rng(seed).standard_normal((draw.choice((1, 2)), channels, *extents)).astype(np.float32)
    model = network(first, second, ["n" if seed % 2 else len(x), *x.shape[1:]])
    session = motet.load(motet.compile(model, devices="host{cpu=native}"), threads=2)
    check(session, x, first, second)


@pytest.mark.parametrize("seed", seeds(9))
def test_groups_of_few_channels(seed):
    draw = random.Random(100 + seed)
    spatial, groups = 1 + seed % 3, draw.choice((2, 3, 8, 11))
    channels = groups * draw.choice((2, 3, 4, 5, 8))
    only = layer(draw, channels, spatial, groups, each=(2, 3, 4, 7, 17))
    extents = [draw.randint(11, (300, 40, 21)[spatial - 1]) for _ in range(spatial)]
    x = np.random.default_rng(seed).standard_normal((draw.choice((1, 2)), channels, *extents)).astype(np.float32)
    graph = helper.make_graph(
        [only.node(0, "x", "y")], "graph", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(only.weights, "w0"), numpy_helper.from_array(only.bias, "b0")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    level = ("native", "x86-64-v3", "x86-64-v4")[seed // 3]
    session = motet.load(motet.compile(model, devices=f"host{{cpu={level}}}"), threads=2)
    assert all(k.kind != "generic" for variant in session.variants for k in variant.kernels)
    expected = only.reference(x.astype(np.float64))
    np.testing.assert_allclose(session(x), expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("seed", SEEDS[::2])
def test_convolutions_of_dynamic_extents(seed):
    """One artifact for images of all extents from the least on, by a class for convolutions."""
    draw = random.Random(100 + seed)
    spatial, groups = 1 + seed % 3, draw.choice((1, 2, 3, 7))
    channels = groups * draw.choice((1, 5, 16, 24))
    first = layer(draw, channels, spatial, groups)
    second = layer(draw, len(first.bias), spatial, 1, same=True)
    pads = zip(first.weights.shape[2:], first.dilations, first.pads, strict=False)
    least = [max(1, (taps - 1) * dilation + 1 - 2 * pad) for taps, dilation, pad in pads]
    dynamic = [draw.random() < 0.7 for _ in least]
    names = [f"d{axis}" if varies else low + 9 for axis, (low, varies) in enumerate(zip(least, dynamic, strict=True))]
    model = network(first, second, ["n", channels, *names])
    level = draw.choice(("x86-64-v3", "x86-64-v4", "native"))
    session = motet.load(motet.compile(model, devices=f"host{{cpu={level}}}"), threads=2)
    assert all(k.kind != "generic" for variant in session.variants for k in variant.kernels)
    rng = np.random.default_rng(seed)
    for more in (0, 1, 7, draw.randint(2, 60 // spatial)):
        extents = [low + (more if varies else 9) for low, varies in zip(least, dynamic, strict=True)]
        x = rng.standard_normal((draw.choice((1, 2, 3)), channels, *extents)).astype(np.float32)
        check(session, x, first, second)


@pytest.mark.parametrize("channels", [1, 5, 18])
@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_depthwise_convolutions_have_a_class_for_convolutions(spatial, channels):
    """Each channel with filters that only it reads, as one kernel."""
    draw = random.Random(10 * channels + spatial)
    first, second = layer(draw, channels, spatial, channels), layer(draw, channels, spatial, channels, same=True)
    rng = np.random.default_rng(channels)
    shape = (channels, 1, *(3, 4, 3)[:spatial])
    plain = {"strides": [1] * spatial, "dilations": [1] * spatial, "pads": [1] * 2 * spatial}
    first, second = (
        replace(each, weights=rng.standard_normal(shape).astype(np.float32),
                bias=rng.standard_normal(channels).astype(np.float32), **plain)
        for each in (first, second)
    )
    x = rng.standard_normal((2, channels, *(17, 23, 31)[:spatial])).astype(np.float32)
    session = motet.load(motet.compile(network(first, second, list(x.shape)), devices="host{cpu=native}"), threads=2)
    check(session, x, first, second)
    kinds = [kernel.kind for variant in session.variants for kernel in variant.kernels]
    assert len(kinds) <= 4, kinds
    assert not {"generic", "contraction"} & {*kinds}, kinds


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_depthwise_convolutions_of_dynamic_extents(spatial):
    draw = random.Random(200 + spatial)
    channels = (37, 24, 5)[spatial - 1]
    first, second = layer(draw, channels, spatial, channels), layer(draw, channels, spatial, channels, same=True)
    rng = np.random.default_rng(spatial)
    strides = [1 + axis % 2 for axis in range(spatial)]
    first, second = (
        replace(each, weights=rng.standard_normal((channels, 1, *(5, 3, 2)[:spatial])).astype(np.float32),
                bias=rng.standard_normal(channels).astype(np.float32), strides=strides, dilations=[1] * spatial,
                pads=[2] * 2 * spatial)
        for each in (first, second)
    )
    model = network(first, second, ["n", channels, *(f"d{axis}" for axis in range(spatial))])
    session = motet.load(motet.compile(model, devices="host{cpu=native}"), threads=2)
    assert all(k.kind != "generic" for variant in session.variants for k in variant.kernels)
    for extents in ((1, 1, 1), (3, 5, 4), (17, 23, 6), (64, 9, 11)):
        check(session, rng.standard_normal((2, channels, *extents[:spatial])).astype(np.float32), first, second)


def test_dynamic_extents_that_do_not_fit_are_refused():
    draw = random.Random(5)
    first, second = layer(draw, 3, 2, 1), layer(draw, 3, 2, 1, same=True)
    first = replace(first, weights=draw_weights(16, 3, 5, 5), bias=np.zeros(16, np.float32), pads=[1] * 4,
                    dilations=[1, 1], strides=[1, 1])
    second = replace(second, weights=draw_weights(4, 16, 3, 3), bias=np.zeros(4, np.float32), pads=[1] * 4,
                     dilations=[1, 1], strides=[1, 1])
    session = motet.load(motet.compile(network(first, second, ["n", 3, "h", "w"]), devices="host{cpu=native}"))
    check(session, np.ones((1, 3, 3, 4), np.float32), first, second)
    for shape in ((1, 3, 1, 9), (1, 4, 9, 9)):
        with pytest.raises(motet.CallError) as refusal:
            session(np.ones(shape, np.float32))
        assert "\n" not in str(refusal.value)


def draw_weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)
