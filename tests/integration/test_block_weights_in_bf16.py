"""Weights of 4 bits stay stored with `precision=bf16` where a call may have few rows."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import motet

DEPTH, COLUMNS, BLOCK = 256, 130, 32


def _model(rows: int | str) -> tuple[onnx.ModelProto, np.ndarray]:
    """A product by 4-bit weights, and the weights in double precision."""
    random = np.random.default_rng(3)
    numbers = random.integers(0, 16, (COLUMNS, DEPTH))
    scales = (random.random((COLUMNS, DEPTH // BLOCK)) * 0.02 + 0.01).astype(np.float32)
    stored = (numbers[:, ::2] | numbers[:, 1::2] << 4).astype(np.uint8).reshape(COLUMNS, DEPTH // BLOCK, BLOCK // 2)
    node = helper.make_node(
        "MatMulNBits", ["x", "numbers", "scales"], ["y"], domain="com.microsoft", K=DEPTH, N=COLUMNS, bits=4,
        block_size=BLOCK,
    )
    graph = helper.make_graph(
        [node], "product", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, DEPTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, COLUMNS])],
        [numpy_helper.from_array(stored, "numbers"), numpy_helper.from_array(scales, "scales")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    weights = (numbers - 8) * np.repeat(scales.astype(np.float64), BLOCK, axis=1)
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), weights


@pytest.mark.parametrize("rows", [1, 7, "m"])
def test_weights_of_few_bits_are_kept(rows: int | str) -> None:
    model, weights = _model(rows)
    artifact = motet.compile(model, options={"precision": "bf16"})
    stored = sum(int(np.prod(each.shape)) for each in artifact.manifest.parameters if "i" in each.dtype)
    assert stored < DEPTH * COLUMNS * 2, "as many bytes as in bf16"
    for variant in artifact.manifest.variants:
        assert any("4-bit" in kernel.kind for kernel in variant.kernels), variant.target
    session = motet.load(artifact)
    for count in [rows] if isinstance(rows, int) else [1, 5, 33]:
        x = np.random.default_rng(count).standard_normal((count, DEPTH)).astype(np.float32)
        expected = x.astype(np.float64) @ weights.T
        np.testing.assert_allclose(session(x), expected, rtol=0.02, atol=0.01 * np.abs(expected).max())
