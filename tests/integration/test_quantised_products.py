"""QuantizeLinear and DequantizeLinear around products and convolutions: results are exact ones, rounded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.seeds import seeds

import motet

LEVELS = ("x86-64-v3", "x86-64-v4", "native")
KINDS = {np.uint8: TensorProto.UINT8, np.int8: TensorProto.INT8}


@dataclass(frozen=True)
class Convolution:
    """A convolution of bytes; `zeros` are the zero points of image, filters and result."""

    image: tuple[int, ...]
    filters: int
    window: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    kind: type = np.uint8
    zeros: tuple[int, int, int] = (128, 0, 128)
    per_channel: bool = True
    bias: bool = True
    relu: bool = False
    groups: int = 1


def _windows(image: np.ndarray, what: Convolution) -> np.ndarray:
    """The image's windows, [n, points…, channels, taps…], padded with zeros."""
    axes = len(what.window)
    pads = [(0, 0), (0, 0), *((what.pads[i], what.pads[axes + i]) for i in range(axes))]
    reach = [(w - 1) * d + 1 for w, d in zip(what.window, what.dilations, strict=True)]
    view = np.lib.stride_tricks.sliding_window_view(np.pad(image, pads), reach, axis=tuple(range(2, 2 + axes)))
    points = [slice(None, None, step) for step in what.strides]
    taps = [slice(None, None, step) for step in what.dilations]
    return np.moveaxis(view[(slice(None), slice(None), *points, *taps)], 1, 1 + axes)


def _convolution(what: Convolution, random: np.random.Generator) -> tuple[bytes, np.ndarray, np.ndarray]:
    """The model, its input, and its result before the last rounding, from exact integers."""
    info, channels, axes = np.iinfo(what.kind), what.image[1], len(what.window)
    x = random.integers(info.min, info.max + 1, what.image).astype(what.kind)
    w = random.integers(-128, 128, (what.filters, channels // what.groups, *what.window)).astype(np.int8)
    steps = (random.random(what.filters if what.per_channel else ()) * 0.01 + 0.005).astype(np.float32)
    x_step, zeros = np.float32(0.02), what.zeros
    bias = random.integers(-3000, 3000, what.filters).astype(np.int32)
    parts = np.split(_windows(x.astype(np.int64) - zeros[0], what), what.groups, 1 + axes)
    filters = np.split((w.astype(np.int64) - zeros[1]).reshape(what.filters, -1), what.groups)
    depth = w[0].size
    exact = np.concatenate([
        part.reshape(-1, depth) @ own.T for part, own in zip(parts, filters, strict=True)], 1)
    exact = (exact + what.bias * bias) * (steps.astype(np.float64) * x_step)
    exact = np.maximum(exact, 0) if what.relu else exact
    step = np.float32(max(float(np.abs(exact).max(initial=0)) / 140, 1e-3))
    shape = _windows(np.zeros((1, 1, *what.image[2:])), what).shape[1 : 1 + axes]
    exact = np.moveaxis(exact.reshape(what.image[0], *shape, what.filters), -1, 1)
    constants = {
        "w": w, "ws": steps, "wz": np.full(steps.shape, zeros[1], np.int8), "xs": x_step, "b": bias,
        "bs": (steps * x_step).astype(np.float32), "bz": np.zeros(steps.shape, np.int32), "ys": step,
        "xz": np.array(zeros[0], what.kind), "yz": np.array(zeros[2], what.kind),
    }
    inputs = ["xf", "wf"] + ["bf"] * what.bias
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=0),
        helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["bf"], axis=0),
        helper.make_node("Conv", inputs, ["c"], strides=what.strides, dilations=what.dilations, pads=what.pads,
                         group=what.groups),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("QuantizeLinear", ["r" if what.relu else "c", "ys", "yz"], ["y"]),
    ]
    nodes = [node for node in nodes if (node.op_type != "Relu" or what.relu) and (what.bias or node.output[0] != "bf")]
    return _model(nodes, constants, (x, "x"), (exact.shape, what.kind)), x, exact / step + zeros[2]


def _model(
    nodes: list[onnx.NodeProto], constants: dict[str, Any], given: tuple[np.ndarray, str],
    made: tuple[tuple[int, ...], type],
) -> bytes:
    used = {name for node in nodes for name in node.input}
    initializers = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items() if k in used]
    x, name = given
    graph = helper.make_graph(
        nodes, "quantised", [helper.make_tensor_value_info(name, KINDS[x.dtype.type], x.shape)],
        [helper.make_tensor_value_info("y", KINDS[made[1]], made[0])], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model.SerializeToString()


def _check(model: bytes, x: np.ndarray, exact: np.ndarray, level: str) -> None:
    """The result is the exact one rounded; where that is near the middle of two steps, either of them."""
    session = motet.load(motet.compile(model, devices=f"host{{cpu={level}}}"))
    found = np.asarray(session(x))
    info = np.iinfo(found.dtype)
    wide = found.astype(np.float64)
    assert np.abs(wide - np.clip(exact, info.min, info.max)).max(initial=0) <= 0.5 + 1e-3


def _drawn(random: np.random.Generator) -> Convolution:
    axes = int(random.choice([1, 2, 2, 2, 3]))
    window = tuple(int(random.integers(1, 5)) for _ in range(axes))
    dilations = tuple(int(random.integers(1, 3)) for _ in range(axes))
    reach = [(w - 1) * d + 1 for w, d in zip(window, dilations, strict=True)]
    pads = tuple(int(random.integers(0, r)) for r in (*reach, *reach))
    channels = int(random.choice([1, 2, 3, 5, 16, 17, 33, 64, 65]))
    most = {1: 70, 2: 19, 3: 7}[axes]
    image = (int(random.integers(1, 3)), channels, *(r + int(random.integers(0, most)) for r in reach))
    kind = np.uint8 if random.random() < 0.6 else np.int8
    zeros = (int(random.integers(0, 256)) if kind is np.uint8 else int(random.integers(-128, 128)),
             int(random.choice([0, 0, 3])), 128 if kind is np.uint8 else -5)
    return Convolution(
        image, int(random.choice([1, 2, 7, 16, 31, 64, 65])), window, tuple(int(random.integers(1, 4)) for _ in window),
        dilations, pads, kind, zeros, bool(random.random() < 0.7), bool(random.random() < 0.5),
        bool(random.random() < 0.5),
    )


GROUPS = (
    (2, 32, 32, np.uint8, 128), (3, 17, 19, np.int8, -5), (2, 16, 64, np.int8, 0), (4, 20, 16, np.uint8, 7),
    (3, 5, 33, np.uint8, 128),
)


@pytest.mark.parametrize("case", range(len(GROUPS)))
def test_groups_of_many_channels_are_products_of_bytes(case: int) -> None:
    """Groups of fewer channels are multiplied as floats, which are exact as well."""
    groups, channels, filters, kind, zero = GROUPS[case]
    random, axes = np.random.default_rng(case), 1 + case % 3
    what = Convolution(
        (1 + case % 2, groups * channels, *(11, 7, 5)[:axes]), groups * filters, (3, 2, 3)[:axes], (1, 2, 1)[:axes],
        (1, 1, 2)[:axes], (1, 0, 2)[:axes] * 2, kind, (zero, 0, 128 if kind is np.uint8 else 3), groups=groups)
    model, x, exact = _convolution(what, random)
    _check(model, x, exact, LEVELS[case % len(LEVELS)])
    session = motet.load(motet.compile(model, devices="host{cpu=native}"))
    kinds = [kernel.kind for variant in session.variants for kernel in variant.kernels]
    assert any(kind.startswith("integer convolution") for kind in kinds) == (channels >= 16), kinds


@pytest.mark.parametrize("seed", seeds(8))
def test_convolutions_are_within_a_step_of_exact_integers(seed: int) -> None:
    random = np.random.default_rng(seed)
    what = _drawn(random)
    _check(*_convolution(what, random), LEVELS[seed % len(LEVELS)])
