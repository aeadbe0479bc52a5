"""Networks of two convolutions over one to three axes, of odd shapes, against sliding windows in double precision."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import numpy as np
import onnx
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from onnx import TensorProto, helper, numpy_helper

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


def layer(draw: random.Random, channels: int, spatial: int, groups: int, same: bool = False) -> Layer:
    """With `same`, the padding is at least that which keeps extents."""
    rng = np.random.default_rng(draw.randrange(1 << 30))
    taps = [draw.choice((1, 2, 3, 5)) for _ in range(spatial)]
    filters = groups * draw.choice((1, 3, 7, 16, 19, 33))
    dilations = [draw.choice((1, 1, 2, 3)) for _ in range(spatial)]
    reach = [(k - 1) * d for k, d in zip(taps, dilations, strict=True)]
    pads = [draw.randint(-(-each // 2) if same else 0, each) for each in reach]
    return Layer(
        rng.standard_normal((filters, channels // groups, *taps)).astype(np.float32) / math.prod(taps),
        rng.standard_normal(filters).astype(np.float32), groups, [draw.choice((1, 1, 2, 3)) for _ in range(spatial)],
        dilations, [*pads, *pads])


@pytest.mark.parametrize("seed", SEEDS)
def test_two_convolutions_of_any_geometry(seed, tmp_path):
    draw = random.Random(seed)
    spatial, groups = 1 + seed % 3, draw.choice((1, 1, 2, 3))
    channels = groups * draw.choice((1, 5, 16, 24))
    first = layer(draw, channels, spatial, groups)
    second = layer(draw, len(first.bias), spatial, 1, same=True)
    extents = [draw.randint(17, (300, 40, 21)[spatial - 1]) for _ in range(spatial)]
    x = np.random.default_rng(seed).standard_normal((draw.choice((1, 2)), channels, *extents)).astype(np.float32)
    weights = {f"{name}{i}": array for i, each in enumerate((first, second))
               for name, array in (("w", each.weights), ("b", each.bias))}
    graph = helper.make_graph(
        [first.node(0, "x", "h"), helper.make_node("Relu", ["h"], ["r"]), second.node(1, "r", "y")], "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n" if seed % 2 else len(x), *x.shape[1:]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, tmp_path / "model.onnx")
    session = motet.load(motet.compile(tmp_path / "model.onnx", devices="host{cpu=native}"), threads=2)
    expected = second.reference(np.maximum(first.reference(x.astype(np.float64)), 0))
    found = np.asarray(session(x))
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
