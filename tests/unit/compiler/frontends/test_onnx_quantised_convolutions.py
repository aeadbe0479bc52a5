"""Convolutions and products of bytes against their definitions in numpy's 64-bit integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import motet

onnx = pytest.importorskip("onnx", reason="needs onnx: pip install 'motet[onnx]'")


def convolution(
    x: np.ndarray, f: np.ndarray, strides: Sequence[int], dilations: Sequence[int], pads: Sequence[int]
) -> np.ndarray:
    """Of integers from which zero points are taken already, point by point."""
    rank = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    spans = [(k - 1) * d + 1 for k, d in zip(f.shape[2:], dilations, strict=True)]
    shape = [(n - s) // stride + 1 for n, s, stride in zip(x.shape[2:], spans, strides, strict=True)]
    found = np.zeros((x.shape[0], f.shape[0], *shape), np.int64)
    for point in np.ndindex(*shape):
        window = tuple(
            slice(p * stride, p * stride + span, d)
            for p, stride, span, d in zip(point, strides, spans, dilations, strict=True)
        )
        under = x[(slice(None), slice(None), *window)].reshape(x.shape[0], -1)
        found[(..., *point)] = under @ f.reshape(f.shape[0], -1).T
    return found


def model(
    op: str, inputs: dict[str, np.ndarray], given: Sequence[str], names: Sequence[str], kind: Any, **attributes: Any
) -> bytes:
    node = onnx.helper.make_node(op, names, ["y"], **attributes)
    types = {key: onnx.helper.np_dtype_to_tensor_dtype(array.dtype) for key, array in inputs.items()}
    extents = {key: list(inputs[key].shape) for key in given} | {given[0]: ["n", *inputs[given[0]].shape[1:]]}
    infos = [onnx.helper.make_tensor_value_info(key, types[key], extents[key]) for key in given]
    result = onnx.helper.make_tensor_value_info("y", onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind)), None)
    constants = [onnx.numpy_helper.from_array(a, key) for key, a in inputs.items() if key not in given]
    graph = onnx.helper.make_graph([node], "g", infos, [result], constants)
    sets = [onnx.helper.make_opsetid("", 17)]
    return onnx.helper.make_model(graph, opset_imports=sets, ir_version=8).SerializeToString()


def some(rng: np.random.Generator, kind: Any, *shape: int) -> np.ndarray:
    limits = np.iinfo(kind)
    return rng.integers(limits.min, limits.max + 1, shape).astype(kind)


FORMS = [  # image, filters, strides, dilations, pads
    ((2, 5, 9, 8), (7, 5, 3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    ((1, 3, 11, 7), (4, 3, 3, 2), (2, 1), (1, 2), (2, 0, 1, 3)),
    ((3, 4, 6, 5), (6, 4, 1, 1), (1, 1), (1, 1), (0, 0, 0, 0)),
    ((1, 4, 7, 7), (2, 4, 1, 1), (2, 3), (1, 1), (0, 0, 0, 0)),
    ((2, 3, 13), (5, 3, 4), (3,), (2,), (2, 1)),
    ((1, 2, 4, 5, 6), (3, 2, 2, 3, 2), (1, 2, 1), (1, 1, 1), (0, 1, 1, 1, 1, 0)),
]


@pytest.mark.parametrize("kinds", [(np.uint8, np.int8), (np.int8, np.uint8), (np.uint8, np.uint8), (np.int8, np.int8)])
@pytest.mark.parametrize("form", FORMS[:3] + FORMS[4:])
def test_integer_convolutions(form: Any, kinds: Any) -> None:
    rng = np.random.default_rng(0)
    shape, filters, strides, dilations, pads = form
    x, f = some(rng, kinds[0], *shape), some(rng, kinds[1], *filters)
    zero_x, zero_f = np.array([7], kinds[0]), some(rng, kinds[1], filters[0])
    zeros = zero_f.astype(np.int64).reshape(-1, *[1] * (len(shape) - 1))
    wanted = convolution(x.astype(np.int64) - 7, f.astype(np.int64) - zeros, strides, dilations, pads)
    made = model("ConvInteger", {"x": x, "f": f, "zx": zero_x, "zf": zero_f}, ["x"], ["x", "f", "zx", "zf"], np.int32,
                 strides=strides, dilations=dilations, pads=pads)  # fmt: skip
    np.testing.assert_array_equal(motet.load(motet.compile(made, cache=False))(x), wanted)


def test_integer_convolutions_without_zero_points() -> None:
    rng = np.random.default_rng(1)
    x, f = some(rng, np.uint8, 1, 3, 6, 6), some(rng, np.uint8, 2, 3, 3, 3)
    same = {"auto_pad": "SAME_UPPER", "strides": [2, 2]}
    made = model("ConvInteger", {"x": x, "f": f}, ["x", "f"], ["x", "f"], np.int32, **same)
    wanted = convolution(x.astype(np.int64), f.astype(np.int64), (2, 2), (1, 1), (0, 0, 1, 1))
    np.testing.assert_array_equal(motet.load(motet.compile(made, cache=False))(x, f), wanted)


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("form", FORMS[:4])
def test_quantised_convolutions(form: Any, kind: Any) -> None:
    rng = np.random.default_rng(2)
    shape, filters, strides, dilations, pads = form
    x, f = some(rng, kind, *shape), some(rng, np.int8, *filters)
    bias = rng.integers(-900, 900, filters[0]).astype(np.int32)
    scale_x, scale_y = np.array(0.1, np.float32), np.array(3.7, np.float32)
    scale_f = rng.uniform(0.01, 0.2, filters[0]).astype(np.float32)
    zero_x, zero_y = np.array(3, kind), np.array(9, kind)
    inputs = {"x": x, "sx": scale_x, "zx": zero_x, "f": f, "sf": scale_f, "zf": np.zeros(filters[0], np.int8),
              "sy": scale_y, "zy": zero_y, "b": bias}  # fmt: skip
    made = model("QLinearConv", inputs, ["x"], list(inputs), kind, strides=strides, dilations=dilations, pads=pads)
    sums = convolution(x.astype(np.int64) - 3, f.astype(np.int64), strides, dilations, pads)
    lined = (-1, *[1] * (len(shape) - 2))
    sums += bias.reshape(lined)
    factor = (scale_x * scale_f / scale_y).reshape(lined)  # in float32, as runtimes have it
    limits = np.iinfo(kind)
    wanted = np.clip(np.round(sums.astype(np.float32) * factor) + 9, limits.min, limits.max)
    found = np.asarray(motet.load(motet.compile(made, cache=False))(x)).view(kind)
    assert np.abs(found.astype(np.int64) - wanted).max() == 0


@pytest.mark.parametrize("shapes", [((5, 33), (33, 7)), ((2, 5, 16), (16, 9)), ((3, 4, 10), (3, 10, 6))])
def test_quantised_products(shapes: Any) -> None:
    rng = np.random.default_rng(3)
    a, b = some(rng, np.uint8, *shapes[0]), some(rng, np.int8, *shapes[1])
    numbers = [np.array(v, np.float32) for v in (0.2, 0.03, 2.5)]
    inputs = {"a": a, "sa": numbers[0], "za": np.array(131, np.uint8), "b": b, "sb": numbers[1],
              "zb": np.array(-4, np.int8), "sy": numbers[2], "zy": np.array(100, np.uint8)}  # fmt: skip
    made = model("QLinearMatMul", inputs, ["a"], list(inputs), np.uint8)
    sums = np.matmul(a.astype(np.int64) - 131, b.astype(np.int64) + 4).astype(np.float32)
    wanted = np.clip(np.round(sums * (numbers[0] * numbers[1] / numbers[2])) + 100, 0, 255)
    found = np.asarray(motet.load(motet.compile(made, cache=False))(a)).view(np.uint8)
    np.testing.assert_array_equal(found, wanted)


GROUPED = [
    ((2, 6, 7, 9), (6, 1, 3, 3), 6, (1, 1), (1, 1, 1, 1)),
    ((1, 12, 8, 5), (24, 1, 5, 3), 12, (2, 1), (2, 0, 1, 2)),
    ((1, 6, 9), (4, 3, 4), 2, (3,), (2, 1)),
]


@pytest.mark.parametrize("quantised", [True, False])
@pytest.mark.parametrize("form", GROUPED)
def test_convolutions_in_groups(form: Any, quantised: bool) -> None:
    rng = np.random.default_rng(4)
    shape, filters, groups, strides, pads = form
    x, f = some(rng, np.uint8, *shape), some(rng, np.int8, *filters)
    images, parts = np.split(x.astype(np.int64) - 130, groups, axis=1), np.split(f.astype(np.int64), groups)
    steps = (1,) * (len(shape) - 2)
    sums = np.concatenate(
        [convolution(image, part, strides, steps, pads) for image, part in zip(images, parts, strict=True)], axis=1)
    attributes = {"strides": strides, "pads": pads, "group": groups}
    zero = np.array(130, np.uint8)
    if not quantised:
        made = model("ConvInteger", {"x": x, "f": f, "zx": zero}, ["x"], ["x", "f", "zx"], np.int32, **attributes)
        np.testing.assert_array_equal(motet.load(motet.compile(made, cache=False))(x), sums)
        return
    scales = rng.uniform(0.01, 0.2, filters[0]).astype(np.float32)
    inputs = {"x": x, "sx": np.array(0.1, np.float32), "zx": zero, "f": f, "sf": scales,
              "zf": np.zeros(filters[0], np.int8), "sy": np.array(3.7, np.float32),
              "zy": np.array(9, np.uint8)}  # fmt: skip
    made = model("QLinearConv", inputs, ["x"], list(inputs), np.uint8, **attributes)
    exact = sums * (0.1 * scales.astype(np.float64) / 3.7).reshape(-1, *[1] * (len(shape) - 2)) + 9
    found = np.asarray(motet.load(motet.compile(made, cache=False))(x)).view(np.uint8)
    assert np.abs(found - np.clip(exact, 0, 255)).max() <= 0.5 + 1e-4  # half a step
