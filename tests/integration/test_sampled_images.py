"""Enlargements to the nearest element, and samples at computed positions, of random odd shapes against numpy in f64."""

from __future__ import annotations

import random

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from tests.seeds import seeds

import motet

LEVELS = ("x86-64-v3", "x86-64-v4")


def run(model: onnx.ModelProto, inputs: dict[str, np.ndarray], level: str) -> np.ndarray:
    artifact = motet.compile(model.SerializeToString(), devices=f"host{{cpu={level}}}", cache=False)
    return np.asarray(motet.load(artifact)(*inputs.values()))


def model_of(nodes: list[onnx.NodeProto], inputs: dict[str, np.ndarray], given: dict[str, np.ndarray],
             dtype: np.dtype) -> onnx.ModelProto:
    def kind(of: np.dtype) -> int:
        return helper.np_dtype_to_tensor_dtype(of)

    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(name, kind(x.dtype), x.shape) for name, x in inputs.items()],
        [helper.make_tensor_value_info("y", kind(dtype), None)],
        [numpy_helper.from_array(array, name) for name, array in given.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.parametrize("seed", seeds(8))
def test_nearest(seed: int) -> None:
    """Whole and broken scales, in both coordinate systems; NaN and infinities are copied."""
    rng = random.Random(seed)
    shape = (rng.choice((1, 2)), rng.choice((1, 3, 17)), rng.choice((1, 5, 16, 25)), rng.choice((1, 7, 19, 33)))
    dtype = np.dtype(rng.choice((np.float32, np.float64, np.int32, np.uint8)))
    scales = [1, 1, rng.choice((1, 2, 3, 4, 2.5)), rng.choice((2, 3, 5, 8, 1.5))]
    x = np.random.default_rng(seed).integers(0, 99, shape).astype(dtype)
    if dtype.kind == "f":
        x.flat[:: 5] = np.nan
        x.flat[1:: 7] = -np.inf
    half = rng.choice((0.0, 0.5))
    node = helper.make_node(
        "Resize", ["x", "", "s"], ["y"], mode="nearest", nearest_mode="floor",
        coordinate_transformation_mode="half_pixel" if half else "asymmetric")
    model = model_of([node], {"x": x}, {"s": np.array(scales, np.float32)}, dtype)
    expected = x
    for axis, (size, scale) in enumerate(zip(shape, scales, strict=True)):
        places = np.floor((np.arange(int(size * scale)) + half) / scale - half).astype(int)
        expected = np.take(expected, places.clip(0, size - 1), axis)
    np.testing.assert_array_equal(run(model, {"x": x}, LEVELS[seed % 2]), expected, err_msg=f"{shape} {scales}")


def sampled(x: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Bilinear samples, zeros outside, corners not aligned: the definition, in f64."""
    batch, channels, height, width = x.shape
    result = np.zeros((batch, channels, *grid.shape[1:3]))
    for n, i, j in np.ndindex(batch, *grid.shape[1:3]):
        across, down = ((grid[n, i, j].astype(np.float64) + 1) * (width, height) - 1) / 2
        left, top = int(np.floor(across)), int(np.floor(down))
        for row in (top, top + 1):
            for column in (left, left + 1):
                if 0 <= row < height and 0 <= column < width:
                    weight = (1 - abs(across - column)) * (1 - abs(down - row))
                    result[n, :, i, j] += x[n, :, row, column] * weight
    return result


@pytest.mark.parametrize("seed", range(6))
def test_grid_sample(seed: int) -> None:
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    batch = rng.choice((1, 1, 2))
    x = numbers.normal(size=(batch, rng.choice((1, 3, 16, 33)), rng.choice((1, 5, 17)), rng.choice((2, 9, 32))))
    grid = numbers.uniform(-1.4, 1.4, (batch, rng.choice((1, 7, 13)), rng.choice((1, 8, 19)), 2)).astype(np.float32)
    x = x.astype(np.float32)
    node = helper.make_node("GridSample", ["x", "grid"], ["y"], mode="linear", align_corners=0)
    inputs = {"x": x, "grid": grid}
    found = run(model_of([node], inputs, {}, x.dtype), inputs, LEVELS[seed % 2])
    np.testing.assert_allclose(found, sampled(x, grid), rtol=1e-4, atol=2e-5, err_msg=str(x.shape))


def test_infinities_outside_the_grid_do_not_spread() -> None:
    x = np.full((1, 2, 3, 3), np.inf, np.float32)
    x[:, :, 1, 1] = 5
    grid = np.array([[[[0, 0], [9, 9], [-3, 0]]]], np.float32)
    node = helper.make_node("GridSample", ["x", "grid"], ["y"], mode="nearest")
    inputs = {"x": x, "grid": grid}
    found = run(model_of([node], inputs, {}, x.dtype), inputs, "x86-64-v4")
    np.testing.assert_array_equal(found, [[[[5, 0, 0]]] * 2])


@pytest.mark.parametrize("level", LEVELS)
def test_choices_of_gathered_elements(level: str) -> None:
    """A gather, a choice by truth values and arithmetic are one kernel, which reads truth values as bytes."""
    numbers = np.random.default_rng(3)
    x = numbers.normal(size=(7, 53)).astype(np.float32)
    places, mask = numbers.integers(-53, 53, 131), numbers.random((1, 131)) < 0.5
    x[:, 11] = np.nan
    nodes = [
        helper.make_node("Gather", ["x", "i"], ["g"], axis=1),
        helper.make_node("Where", ["m", "g", "z"], ["w"]),
        helper.make_node("Add", ["w", "w"], ["y"]),
    ]
    inputs = {"x": x, "i": places, "m": mask}
    found = run(model_of(nodes, inputs, {"z": np.array(0, np.float32)}, x.dtype), inputs, level)
    np.testing.assert_array_equal(found, np.where(mask, x[:, places], 0) * 2)
