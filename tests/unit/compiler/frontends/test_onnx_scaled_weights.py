"""Factors that are folded into constant weights never push these beyond their type's range; against numpy in f64."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import motet

LARGEST = float(np.finfo(np.float32).max)


def run(nodes: list, constants: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    with motet.load(motet.compile(model.SerializeToString())) as session:
        return session.main(x)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize(
    ("alpha", "weight", "factor"),
    [(0.3, 1.4e-45, np.inf), (0.3, -1e-45, -np.inf), (4.0, LARGEST, 1e-30), (-2.0, LARGEST, 0.0), (0.5, 3.0, 2.0)],
)
def test_alpha_of_gemm_takes_no_weight_out_of_range(
    alpha: float, weight: float, factor: float, transposed: int, bias: bool
) -> None:
    weights = np.full((4, 5), 1.0, np.float32)
    weights[2, 3] = weight
    x = np.full((3, 4), 0.25, np.float32)
    x[:, 2] = factor
    constants = {"w": weights.T.copy() if transposed else weights}
    if bias:
        constants["b"] = np.arange(5, dtype=np.float32)
    node = helper.make_node("Gemm", ["x", *constants], ["y"], alpha=alpha, transB=transposed)
    with np.errstate(invalid="ignore"):
        products = x.astype(np.float64) @ weights.astype(np.float64)
    expected = np.float64(np.float32(alpha)) * products + (np.arange(5) if bias else 0)
    np.testing.assert_allclose(run([node], constants, x), expected.astype(np.float32), rtol=1e-6)


@pytest.mark.parametrize("weight", [LARGEST, 2.0])
def test_a_normalisation_takes_no_weight_of_a_convolution_out_of_range(weight: float) -> None:
    weights = np.ones((2, 1, 1, 1), np.float32)
    weights[1] = weight
    one = np.ones(2, np.float32)
    constants = {"w": weights, "scale": 8 * one, "shift": one, "mean": 0 * one, "variance": one}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "variance"], ["y"], epsilon=0.0),
    ]
    x = np.full((1, 1, 3, 3), 1e-30, np.float32)
    expected = 8 * weights.astype(np.float64).reshape(1, 2, 1, 1) * x.astype(np.float64) + 1
    np.testing.assert_allclose(run(nodes, constants, x), expected, rtol=1e-6)
