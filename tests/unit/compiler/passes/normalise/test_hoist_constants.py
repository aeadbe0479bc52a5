"""Constants without a name never take the place of those that have one."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import motet


def test_constants_whose_names_look_like_those_that_are_given() -> None:
    random = np.random.default_rng(1)
    large = [random.standard_normal((64, 64), np.float32) for _ in range(3)]
    small = [random.standard_normal(64, np.float32) for _ in range(3)]
    nodes, constants, value = [], [], "x"
    for number, (weight, bias) in enumerate(zip(large, small, strict=True)):
        constants += [
            numpy_helper.from_array(weight, f"constant_{5 - number}"), numpy_helper.from_array(bias, f"bias_{number}"),
        ]  # fmt: skip
        nodes += [
            helper.make_node("MatMul", [value, f"constant_{5 - number}"], [f"p{number}"]),
            helper.make_node("Add", [f"p{number}", f"bias_{number}"], [f"v{number}"]),
        ]
        value = f"v{number}"
    graph = helper.make_graph(
        nodes, "named", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 64])],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, [3, 64])], constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    x = random.standard_normal((3, 64), np.float32)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(motet.load(motet.compile(model))(x), expected, rtol=1e-4, atol=1e-3)
