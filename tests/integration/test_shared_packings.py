"""Levels of a processor share packed weights: an artifact for several holds them once, and each computes with them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.unit.compiler.building import TARGETS

import motet
from motet.compiler.targets.cpu import CpuTarget

pytestmark = pytest.mark.usefixtures("all_levels")

# Rows (a name for an unknown number), depth and columns of products.
STATIC = [(1, 300, 70), (3, 65, 33), (5, 127, 129), (17, 64, 100), (64, 31, 1), (70, 1, 96), (130, 200, 255)]
DYNAMIC = [("m", 40, 17), ("m", 1300, 150), ("m", 33, 64)]
SHAPES = [*STATIC, *DYNAMIC]


def products(shapes: list[tuple[int | str, int, int]]) -> tuple[onnx.ModelProto, list[np.ndarray]]:
    """A product by constant weights for each of `shapes`, and the weights."""
    random = np.random.default_rng(0)
    weights = [random.standard_normal((k, n)).astype(np.float32) for _, k, n in shapes]
    inputs = [helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, [m, k]) for i, (m, k, _) in enumerate(shapes)]
    results = [helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, [m, n]) for i, (m, _, n) in enumerate(shapes)]
    nodes = [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"y{i}"]) for i in range(len(shapes))]
    constants = [numpy_helper.from_array(array, f"w{i}") for i, array in enumerate(weights)]
    graph = helper.make_graph(nodes, "products", inputs, results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), weights


def test_artifact_for_all_levels_has_weights_once() -> None:
    model, weights = products([(64, 256, 512), (1, 512, 128), (16, 128, 256), ("m", 256, 1024)])
    artifact = motet.compile(model, cache=False)
    assert len({variant.target for variant in artifact.manifest.variants}) == 2
    large = [each for each in artifact.manifest.parameters if np.prod(each.shape) > 1000]
    assert len(large) == len(weights), [each.key for each in large]
    assert len(bytes(artifact.data)) < 1.1 * sum(array.nbytes for array in weights) + (200 << 10)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("rows", [1, 2, 6, 7, 16, 50])
def test_products_by_shared_panels(target: CpuTarget, rows: int) -> None:
    shapes = STATIC if rows == 1 else DYNAMIC
    model, weights = products(list(shapes))
    session = motet.load(motet.compile(model, devices=f"host{{cpu={target.name}}}"))
    random = np.random.default_rng(rows)
    inputs = [random.standard_normal((m if isinstance(m, int) else rows, k)).astype(np.float32) for m, k, _ in shapes]
    for given, weight, result in zip(inputs, weights, session(*inputs), strict=True):
        expected = given.astype(np.float64) @ weight.astype(np.float64)
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
