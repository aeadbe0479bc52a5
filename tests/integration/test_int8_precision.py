"""`--option precision=int8`: products with constant weights are those of rows and columns rounded to bytes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import motet
from motet.errors import OptionError


def _model(shape: list[int | str], weights: np.ndarray, bias: np.ndarray, transposed: bool) -> bytes:
    constants = {"w": np.ascontiguousarray(weights.T) if transposed else weights, "b": bias}
    nodes = [helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0])] if transposed else []
    nodes += [helper.make_node("MatMul", ["x", "t" if transposed else "w"], ["p"]),
              helper.make_node("Add", ["p", "b"], ["y"])]
    graph = helper.make_graph(
        nodes, "linear", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def _rounded(x: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Bytes and scales by their definition, in f64."""
    scale = np.maximum(np.abs(x.astype(np.float64)).max(axis=axis, keepdims=True), 1e-30) / 127
    return np.rint(x / scale), scale


SHAPES = [((5, 16), 3), ((1, 67), 129), ((2, 7, 100), 33), ((130, 64), 64), ((3, 1, 31), 1)]


@pytest.mark.parametrize(("shape", "columns"), SHAPES)
@pytest.mark.parametrize("level", ["native", "x86-64-v3"])
def test_results_are_products_of_rounded_rows_and_columns(shape: tuple[int, ...], columns: int, level: str) -> None:
    random = np.random.default_rng(columns)
    x = (random.standard_normal(shape) * 10.0 ** random.integers(-3, 4, (*shape[:-1], 1))).astype(np.float32)
    x[(0,) * (len(shape) - 1)] = 0  # a row of zeros
    weights = random.standard_normal((shape[-1], columns)).astype(np.float32)
    bias = random.standard_normal(columns).astype(np.float32)
    model = _model(["n", *shape[1:]], weights, bias, transposed=columns % 2 == 1)
    made = motet.compile(model, devices=f"host{{cpu={level}}}", options={"precision": "int8"})
    found = np.asarray(motet.load(made)(x))
    (a, row), (b, column) = _rounded(x, -1), _rounded(weights, 0)
    step = np.abs(row * column) * 127  # one byte of one operand that is a tie and rounds the other way
    assert (np.abs(found - (a @ b * row * column + bias)) <= step * 2 + 1e-5 * np.abs(found)).all()
    exact = x.astype(np.float64) @ weights + bias
    assert np.abs(found - exact).max() <= 0.03 * np.abs(exact).max()


@pytest.mark.parametrize("size", [1e30, 1e-20, 1e-31, 1e-34, 1e-36])
def test_rows_of_any_size_keep_their_precision(size: float) -> None:
    random = np.random.default_rng(0)
    x = (random.standard_normal((3, 64)) * size).astype(np.float32)
    weights = random.standard_normal((64, 5)).astype(np.float32)
    made = motet.compile(_model([3, 64], weights, np.zeros(5, np.float32), False), options={"precision": "int8"})
    exact = x.astype(np.float64) @ weights
    assert np.abs(np.asarray(motet.load(made)(x)) - exact).max() <= 0.03 * np.abs(exact).max()


def test_a_level_without_instructions_is_refused_if_strict() -> None:
    model = _model([4, 32], np.ones((32, 8), np.float32), np.ones(8, np.float32), transposed=False)
    options = {"precision": "int8", "strict": True}
    with pytest.raises(OptionError, match="option precision=int8: aarch64: no instructions for it, and strict=true"):
        motet.compile(model, devices="host{cpu=aarch64}", options=options)
