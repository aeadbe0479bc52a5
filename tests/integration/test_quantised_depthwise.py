"""Depthwise convolutions between QuantizeLinear and DequantizeLinear: results are exact sums of integers, rounded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.seeds import seeds

import motet

LEVELS = ("native", "x86-64-v4", "x86-64-v3", "x86-64-v4-vnni")
KINDS = {np.uint8: TensorProto.UINT8, np.int8: TensorProto.INT8}


@dataclass(frozen=True)
class Depthwise:
    """A convolution with a filter for each channel of a channels-last image; one zero point of image and filters."""

    image: tuple[int, int, int, int]  # n, h, w, c
    window: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int, int, int]
    kind: type
    filter_kind: type
    zero: int
    filter_zero: int


def _drawn(random: np.random.Generator) -> Depthwise:
    window = tuple(int(random.choice([1, 2, 3, 3, 5, 7])) for _ in range(2))
    dilations = tuple(int(random.choice([1, 1, 2])) for _ in range(2))
    reach = [(w - 1) * d + 1 for w, d in zip(window, dilations, strict=True)]
    pads = tuple(int(random.integers(0, r)) for r in (*reach, *reach))
    extents = [r + int(random.integers(0, 14)) for r in reach]
    channels = int(random.choice([2, 3, 7, 16, 17, 31, 32, 33, 40, 64, 96]))
    kinds = [[np.uint8, np.int8][int(random.integers(0, 2))] for _ in range(2)]
    zeros = [int(random.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1)) for kind in kinds]
    return Depthwise(
        (int(random.integers(1, 3)), *extents, channels), window, tuple(int(random.integers(1, 4)) for _ in window),
        dilations, pads, *kinds, zeros[0], zeros[1] if random.random() < 0.4 else 0)  # type: ignore[arg-type]


def _sums(what: Depthwise, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The convolution in 64-bit integers, by its definition; `w` is [c, taps…]."""
    top, left, bottom, right = what.pads
    image = np.pad(x.astype(np.int64) - what.zero, [(0, 0), (top, bottom), (left, right), (0, 0)])
    reach = [(k - 1) * d + 1 for k, d in zip(what.window, what.dilations, strict=True)]
    view = np.lib.stride_tricks.sliding_window_view(image, reach, axis=(1, 2))
    view = view[:, :: what.strides[0], :: what.strides[1], :, :: what.dilations[0], :: what.dilations[1]]
    return np.einsum("nhwckl,ckl->nhwc", view, w.astype(np.int64) - what.filter_zero)


def _model(what: Depthwise, random: np.random.Generator) -> tuple[bytes, np.ndarray, np.ndarray]:
    """The model, its input, and its result before the last rounding."""
    channels = what.image[3]
    x, w = (
        random.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, shape).astype(kind)
        for kind, shape in ((what.kind, what.image), (what.filter_kind, (channels, *what.window))))
    scales = random.uniform(0.001, 0.02, channels).astype(np.float32)
    exact = _sums(what, x, w) * (scales.astype(np.float64) * np.float32(0.02))
    step = np.float32(max(float(np.abs(exact).max()) / 140, 1e-3))
    constants = {
        "w": w[:, None], "ws": scales, "wz": np.full(channels, what.filter_zero, what.filter_kind),
        "xs": np.float32(0.02), "xz": np.array(what.zero, what.kind), "ys": step, "yz": np.array(120, np.uint8)}
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
        helper.make_node("DequantizeLinear", ["t", "xs", "xz"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=0),
        helper.make_node("Conv", ["xf", "wf"], ["c"], group=channels, strides=what.strides,
                         dilations=what.dilations, pads=what.pads),
        helper.make_node("QuantizeLinear", ["c", "ys", "yz"], ["q"]),
        helper.make_node("Transpose", ["q"], ["y"], perm=[0, 2, 3, 1]),
    ]
    graph = helper.make_graph(
        nodes, "depthwise", [helper.make_tensor_value_info("x", KINDS[what.kind], what.image)],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString(), x, exact / step + 120


def _check(what: Depthwise, seed: int, level: str) -> None:
    model, x, exact = _model(what, np.random.default_rng(seed))
    found = np.asarray(motet.load(motet.compile(model, devices=f"host{{cpu={level}}}"))(x))
    assert np.abs(found.astype(np.float64) - np.clip(exact, 0, 255)).max() <= 0.5 + 1e-3, what


@pytest.mark.parametrize("seed", seeds(8))
def test_sums_are_exact(seed: int) -> None:
    _check(_drawn(np.random.default_rng(seed)), seed, LEVELS[seed % len(LEVELS)])


@pytest.mark.parametrize("level", LEVELS)
def test_rows_and_columns_outside_the_image_are_the_zero_point(level: str) -> None:
    """Windows longer than the image, which extend past all of its borders."""
    what = Depthwise((1, 3, 4, 33), (7, 5), (2, 1), (1, 1), (3, 2, 6, 4), np.int8, np.int8, -77, 0)
    _check(what, 0, level)


@pytest.mark.parametrize("level", ["x86-64-v4-vnni", "x86-64-v3"])
def test_the_convolution_reads_and_writes_bytes(level: str) -> None:
    what = Depthwise((1, 9, 9, 32), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), np.uint8, np.int8, 128, 0)
    made = motet.compile(_model(what, np.random.default_rng(0))[0], devices=f"host{{cpu={level}}}")
    for variant in made.manifest.variants:
        assert {kernel.kind for kernel in variant.kernels} - {"renaming"} == {"integer depthwise"}
