"""Pools with ceil_mode inside of a model, whose extents shape inference has to tell, against PyTorch's rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from onnx import TensorProto, helper

import motet


def extent(size: int, kernel: int, stride: int, pad: int) -> int:
    windows = -(-(size + 2 * pad - kernel) // stride) + 1
    return windows - ((windows - 1) * stride >= size + pad)


def pooled(x: np.ndarray, kernel: int, stride: int, pad: int, operator: str) -> np.ndarray:
    fill = {"MaxPool": -np.inf, "AveragePool": np.nan, "LpPool": 0.0}[operator]
    ends = [(pad, (extent(size, kernel, stride, pad) - 1) * stride + kernel - size - pad) for size in x.shape[2:]]
    around = [(0, 0), (0, 0), *((low, max(high, 0)) for low, high in ends)]
    padded = np.pad(x.astype(np.float64), around, constant_values=fill)
    windows = sliding_window_view(padded, (kernel, kernel), (2, 3))[:, :, ::stride, ::stride]
    counts = [extent(size, kernel, stride, pad) for size in x.shape[2:]]
    windows = windows[:, :, : counts[0], : counts[1]]
    if operator == "LpPool":
        return np.sqrt((windows**2).sum((4, 5)))
    return windows.max((4, 5)) if operator == "MaxPool" else np.nanmean(windows, (4, 5))


@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize("opset", [18, 19, 22])
@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize(("kernel", "stride", "pad", "size"), [(3, 3, 1, 8), (2, 3, 1, 7), (1, 3, 0, 5), (3, 2, 1, 9)])
def test_windows_that_begin_in_the_padding_are_dropped(
    kernel: int, stride: int, pad: int, size: int, operator: str, opset: int, declared: bool
) -> None:
    x = np.random.default_rng(size).standard_normal((1, 2, size, size + 1), np.float32)
    window = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4, "ceil_mode": 1}
    nodes = [
        helper.make_node(operator, ["x"], ["p"], **window), helper.make_node("Neg", ["p"], ["q"]),
        helper.make_node(operator, ["q"], ["r"], **window), helper.make_node("Neg", ["r"], ["y"]),
    ]
    wrong = [-(-(n + 2 * pad - kernel) // stride) + 1 for n in x.shape[2:]]  # as older exporters have it
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2, *wrong]) for name in "pq"]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], value_info=infos if declared else [],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    with motet.load(motet.compile(model.SerializeToString())) as session:
        found = session.main(x)
    expected = -pooled(-pooled(x, kernel, stride, pad, operator), kernel, stride, pad, operator)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("shape", [
    pytest.param([2, 4, 5, 3], id="static"), pytest.param(["a", 4, "h", "w"], id="dynamic", marks=pytest.mark.slow),
])
@pytest.mark.parametrize(("norm", "opset"), [
    ("GroupNormalization", 18), ("GroupNormalization", 21), ("MeanVarianceNormalization", 13),
])
def test_windows_over_what_shape_inference_has_no_rule_for(norm: str, opset: int, shape: list[int | str]) -> None:
    x = np.random.default_rng(3).standard_normal((2, 4, 5, 3), np.float32)
    grouped, count = norm == "GroupNormalization", 2 if opset == 18 else 4
    scale, shift = (
        helper.make_tensor(name, TensorProto.FLOAT, [count], [value] * count) for name, value in (("s", 1), ("b", 0))
    )
    operands = ["x", "s", "b"] if grouped else ["x"]
    more: dict[str, Any] = {"num_groups": 2} if grouped else {}
    window: dict[str, Any] = {
        "kernel_shape": [3, 3], "strides": [1, 3], "pads": [0, 2, 0, 0], "ceil_mode": 1, "count_include_pad": 1,
    }
    graph = helper.make_graph(
        [helper.make_node(norm, operands, ["n"], **more), helper.make_node("AveragePool", ["n"], ["y"], **window)], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [scale, shift] if grouped else [],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    with motet.load(motet.compile(model.SerializeToString())) as session:
        found = session.main(x)
    parts, axes = (x.reshape(2, 2, -1), (2,)) if grouped else (x, (0, 2, 3))
    parts = parts.astype(np.float64)
    unit = (parts - parts.mean(axes, keepdims=True)) / np.sqrt(parts.var(axes, keepdims=True) + 1e-5 * grouped)
    padded = np.pad(unit.reshape(x.shape), [(0, 0), (0, 0), (0, 0), (2, 0)])
    rows = sliding_window_view(padded, 3, 2).sum(-1)
    expected = np.stack([rows[..., :3].sum(-1) / 9, rows[..., 3:].sum(-1) / 6], -1)  # the last window has 2 columns
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.every
@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("more", [
    {"ceil_mode": 1, "pads": [1, 0, 2, 1]}, {"ceil_mode": 1, "auto_pad": "VALID"}, {"auto_pad": "VALID"},
], ids=["ceiled", "ceiled without pads", "without pads"])
def test_windows_with_gaps(operator: str, more: dict[str, object]) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs ONNX Runtime: pip install 'motet[onnxruntime]'")
    window = {"kernel_shape": [3, 2], "strides": [2, 3], "dilations": [2, 3], **more}
    x = np.random.default_rng(5).standard_normal((1, 2, 12, 15), np.float32)
    graph = helper.make_graph(
        [helper.make_node(operator, ["x"], ["y"], **window)], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=8).SerializeToString()
    (expected,) = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    with motet.load(motet.compile(model)) as session:
        np.testing.assert_allclose(session.main(x), expected, rtol=1e-5)
