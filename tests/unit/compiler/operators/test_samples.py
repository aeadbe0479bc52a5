"""Samples at computed places: grids, regions and deformed windows of extents that only a call knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import motet
from motet.errors import CallError

pytest.importorskip("onnx", reason="needs ONNX: pip install 'motet[onnx]'")

from onnx import ModelProto, TensorProto, helper
from onnx.reference import ReferenceEvaluator

RNG = np.random.default_rng(4)


def model_of(op: str, shapes: list[list[Any]], rank: int, *forms: dict[str, Any]) -> ModelProto:
    names = [f"x{number}" for number in range(len(shapes))]
    kinds = [TensorProto.INT64 if len(shape) == 1 else TensorProto.FLOAT for shape in shapes]
    graph = helper.make_graph(
        [helper.make_node(op, names, [f"y{k}"], f"node{k}", **form) for k, form in enumerate(forms)], "sampled",
        [helper.make_tensor_value_info(*each) for each in zip(names, kinds, shapes, strict=True)],
        [helper.make_tensor_value_info(f"y{k}", TensorProto.FLOAT, [None] * rank) for k in range(len(forms))],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def check(model: ModelProto, *given: np.ndarray) -> None:
    session = motet.load(motet.compile(model, cache=False))
    feeds = {f"x{number}": array for number, array in enumerate(given)}
    expected: list[Any] = ReferenceEvaluator(model).run(None, feeds)
    results = session(*given)
    for found, wanted in zip(results if isinstance(results, tuple) else [results], expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("channels", [2, 7, "c"])
def test_grids_of_any_extent(channels: int | str) -> None:
    forms = [
        {"mode": mode, "padding_mode": padding, "align_corners": aligned}
        for mode, padding, aligned in (("linear", "zeros", 0), ("nearest", "border", 1), ("cubic", "reflection", 0))
    ]
    model = model_of("GridSample", [["n", channels, "h", "w"], ["n", "i", "j", 2]], 4, *forms)
    count = channels if isinstance(channels, int) else 5
    for n, h, w, i, j in ((2, 5, 4, 3, 7), (1, 1, 6, 1, 2)):
        grid = RNG.uniform(-1.4, 1.4, (n, i, j, 2)).astype(np.float32)
        check(model, RNG.normal(size=(n, count, h, w)).astype(np.float32), grid)


@pytest.mark.parametrize("channels", [2, 9])
def test_regions_of_images_of_any_extent(channels: int) -> None:
    forms = [{"mode": mode, "sampling_ratio": ratio, "output_height": 3, "output_width": 2, "spatial_scale": 0.5}
             for mode, ratio in (("avg", 2), ("max", 0), ("avg", 6))]  # fmt: skip
    model = model_of("RoiAlign", [["n", channels, "h", "w"], ["r", 4], ["r"]], 4, *forms)
    regions = np.array([[0, 0, 5, 5], [3, 4, 60, 15], [-12, -1, 4, 8]], np.float32)
    check(model, RNG.normal(size=(2, channels, 9, 6)).astype(np.float32), regions, np.array([0, 1, 1]))


def test_images_without_elements_and_regions_of_none_are_refused() -> None:
    grid = motet.load(motet.compile(model_of("GridSample", [[1, 2, "h", 3], [1, 2, 2, 2]], 4, {}), cache=False))
    with pytest.raises(CallError, match="axis 2 of input 0 must be at least 1"):
        grid(np.zeros((1, 2, 0, 3), np.float32), np.zeros((1, 2, 2, 2), np.float32))
    regions = motet.load(motet.compile(model_of("RoiAlign", [["n", 2, 3, 3], ["r", 4], ["r"]], 4, {}), cache=False))
    with pytest.raises(CallError, match="index 2"):
        regions(np.zeros((2, 2, 3, 3), np.float32), np.zeros((1, 4), np.float32), np.array([2]))
