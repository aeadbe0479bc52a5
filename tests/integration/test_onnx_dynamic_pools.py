"""Pools of ONNX with ceil_mode over extents that only a call knows: windows that extend past the image, by numpy."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import motet

_PADS = ((0, 0), (1, 0), (0, 1), (1, 1))
WINDOWS = [  # kernel, stride, pads, dilation
    (kernel, stride, pads, dilation)
    for kernel, stride, pads, dilation in itertools.product((1, 2, 3), (1, 2, 3, 4), _PADS, (1, 2))
    if max(pads) < kernel and (kernel > 1 or dilation == 1)
][::5]
EXTENTS = (5, 6, 7, 8, 11)


Windows = list[tuple[int, int, tuple[int, int], int]]


def windows_of(op: str, part: int) -> Windows:
    """Each third one."""
    return [window for window in WINDOWS[part::3] if op != "LpPool" or window[-1] == 1]


def pools(op: str, counted: bool, windows: Windows) -> onnx.ModelProto:
    """A node for each window, of one image with a dynamic extent."""
    nodes: list[onnx.NodeProto] = []
    for number, (kernel, stride, pads, dilation) in enumerate(windows):
        more = {"count_include_pad": int(counted)} if op == "AveragePool" else {}
        more |= {"dilations": [dilation]} if dilation > 1 else {}
        nodes.append(helper.make_node(
            op, ["x"], [f"y{number}"], f"pool{number}", kernel_shape=[kernel], strides=[stride], pads=list(pads),
            ceil_mode=1, **more,
        ))  # fmt: skip
    graph = helper.make_graph(
        nodes, "main", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, "n"])],
        [helper.make_tensor_value_info(f"y{number}", TensorProto.FLOAT, None) for number in range(len(nodes))],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def pooled(op: str, x: np.ndarray, window: tuple[int, int, tuple[int, int], int], counted: bool) -> np.ndarray:
    """By the specification: windows begin inside the image or the padding before it."""
    kernel, stride, (low, high), dilation = window
    size = x.shape[-1]
    reach = (kernel - 1) * dilation + 1
    count = -(-(size + low + high - reach) // stride) + 1
    count -= (count - 1) * stride >= size + low
    found = np.empty((*x.shape[:-1], count))
    for place in range(count):
        taps = place * stride - low + np.arange(kernel) * dilation
        inside = x[..., taps[(taps >= 0) & (taps < size)]]
        terms = ((taps >= -low) & (taps < size + high)).sum() if counted else inside.shape[-1]
        with np.errstate(divide="ignore", invalid="ignore"):
            found[..., place] = {
                "AveragePool": lambda inside=inside, terms=terms: inside.sum(-1) / terms,
                "LpPool": lambda inside=inside: np.sqrt((inside**2).sum(-1)),
                "MaxPool": lambda inside=inside: inside.max(-1, initial=-np.inf),
            }[op]()
    return found


@pytest.mark.parametrize(
    ("op", "counted"), [("AveragePool", False), ("AveragePool", True), ("LpPool", False), ("MaxPool", False)]
)
@pytest.mark.parametrize("part", [0, 1, 2])
def test_windows_past_the_image(op: str, counted: bool, part: int) -> None:
    windows = windows_of(op, part)
    with motet.load(motet.compile(pools(op, counted, windows)), threads=1) as session:
        for size in EXTENTS:
            x = np.random.default_rng(size).normal(size=(1, 2, size)).astype(np.float32)
            for result, window in zip(session(x), windows, strict=True):
                expected = pooled(op, x.astype(np.float64), window, counted)
                np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6, err_msg=f"{window} of {size}")


@pytest.mark.parametrize(
    ("kind", "error"), [(TensorProto.FLOAT16, 2e-3), (TensorProto.FLOAT, 2e-6), (TensorProto.DOUBLE, 2e-14)]
)
@pytest.mark.parametrize("opset", [11, 18])
def test_norms_of_whole_images_of_any_number_of_pixels(opset: int, kind: int, error: float) -> None:
    powers = (1, 2, 3)
    graph = helper.make_graph(
        [helper.make_node("GlobalLpPool", ["x"], [f"y{p}"], f"norm{p}", p=p) for p in powers], "main",
        [helper.make_tensor_value_info("x", kind, ["batch", 3, "n", 5])],
        [helper.make_tensor_value_info(f"y{p}", kind, None) for p in powers],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    session, random = motet.load(motet.compile(model)), np.random.default_rng(0)
    for batch, n in ((2, 0), (1, 1), (2, 7)):
        x = random.standard_normal((batch, 3, n, 5)).astype(helper.tensor_dtype_to_np_dtype(kind))
        for p, found in zip(powers, session(x), strict=True):
            wanted = (np.abs(x.astype(np.float64)) ** p).sum((2, 3), keepdims=True) ** (1 / p)
            np.testing.assert_allclose(found, wanted, rtol=error)
