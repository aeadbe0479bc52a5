"""Products of tensors of many dimensions by parameters: one kernel with what follows, and no copy of a parameter."""

from __future__ import annotations

import random

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.seeds import seeds

import motet


def _draw(seed: int) -> tuple[bytes, list[np.ndarray], np.ndarray]:
    """A product by a parameter that may be broadcast, its bias and relu; the input; the result in f64."""
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    leading = [rng.choice((1, 2, 3, 5, 8)) for _ in range(rng.randint(0, 3))]
    m, k, n = (rng.choice((1, 3, 7, 16, 17, 33)) for _ in range(3))
    # The parameter has some of the leading dimensions, others are 1 or left out.
    own = [rng.choice((1, extent)) for extent in leading] if rng.random() < 0.5 else []
    own = own[rng.randint(0, len(own)) :]
    x = numbers.standard_normal((*leading, m, k), np.float32)
    w = numbers.standard_normal((*own, k, n), np.float32)
    bias = numbers.standard_normal(n, np.float32)
    shared = [1] * (len(leading) - len(own)) + own + [1]  # an extent that both must have is known
    declared = [
        f"d{axis}" if rng.random() < 0.3 and shared[axis] == 1 else extent for axis, extent in enumerate(x.shape[:-1])
    ]
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["p"], "product"),
            helper.make_node("Add", ["p", "b"], ["s"], "bias"),
            helper.make_node("Relu", ["s"], ["y"], "relu"),
        ],
        "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [*declared, k])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(bias, "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    expected = np.maximum(x.astype(np.float64) @ w.astype(np.float64) + bias, 0)
    return model.SerializeToString(), [x], expected


@pytest.mark.parametrize("seed", seeds(24))
def test_products_by_parameters(seed: int) -> None:
    source, inputs, expected = _draw(seed)
    artifact = motet.compile(source, cache=False)
    found = motet.load(artifact)(*inputs)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    for variant in artifact.manifest.variants:
        for command in variant.schedules["main"].commands:
            read = [variant.schedules["main"].buffers[number].kind for number in command.buffers[: command.reads]]
            assert set(read) != {"parameter"}, f"{command.kernel} moves parameters alone"


@pytest.mark.parametrize("shapes", [
    ((1, 1, 2, 2), (2,)), ((3, 2, 5, 4), (4,)), ((5,), (2, 3, 5, 4)), ((2, 3, 1, 4), (2, 3, 4, 1)),
])
def test_products_of_inputs_and_by_vectors(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    numbers = np.random.default_rng(0)
    inputs = [numbers.standard_normal(shape, np.float32) for shape in shapes]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["y"], "product")], "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in zip("ab", shapes, strict=True)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    found = motet.load(motet.compile(model.SerializeToString(), cache=False))(*inputs)
    np.testing.assert_allclose(found, inputs[0].astype(np.float64) @ inputs[1], rtol=1e-5, atol=1e-5)
