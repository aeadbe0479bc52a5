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


def test_equal_numbers_are_scanned_and_sorted() -> None:
    same = numpy_helper.from_array(np.full((2, 37), 0.1, np.float32), "same")
    model = helper.make_model(helper.make_graph(
        [
            helper.make_node("Identity", ["same"], ["s"]), helper.make_node("CumSum", ["s", "axis"], ["sums"]),
            helper.make_node("TopK", ["s", "k"], ["first", "places"]),
            helper.make_node("Add", ["x", "sums"], ["y"]), helper.make_node("Add", ["first", "sums"], ["z"]),
        ], "same", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "yz"]
        + [helper.make_tensor_value_info("places", TensorProto.INT64, None)],
        [same, numpy_helper.from_array(np.array(1), "axis"), numpy_helper.from_array(np.array([37]), "k")],
    ), opset_imports=[helper.make_opsetid("", 17)], ir_version=10)  # fmt: skip
    x = np.arange(2, dtype=np.float32).reshape(2, 1)
    expected = ReferenceEvaluator(model).run(None, {"x": x})
    for got, wanted in zip(motet.load(motet.compile(model))(x), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5)
