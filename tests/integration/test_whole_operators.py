"""Sorts, scans and scatters of ONNX models on the host, with extents that a call decides, against numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import motet

Shape = Sequence[int | str | None]
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def model(operator: str, inputs: Sequence[tuple[int, Shape]], results: Sequence[tuple[int, Shape]], *constants: int,
          **attributes: Any) -> ModelProto:
    names = [f"x{i}" for i in range(len(inputs))]
    outputs = [f"y{i}" for i in range(len(results))]
    values = [helper.make_tensor(f"c{i}", INT64, [1], [number]) for i, number in enumerate(constants)]
    node = helper.make_node(operator, [*names, *(value.name for value in values)], outputs, **attributes)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info(n, *one) for n, one in zip(names, inputs, strict=True)],
        [helper.make_tensor_value_info(n, *one) for n, one in zip(outputs, results, strict=True)], values,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32).round(1)


@pytest.mark.parametrize("axis, k, largest", [(1, 4, 1), (0, 2, 1), (1, 3, 0)])
def test_the_first_of_rows_and_columns(axis: int, k: int, largest: int) -> None:
    shape: list[int | str | None] = ["n", "m"]
    cut = [k if d == axis else size for d, size in enumerate(shape)]
    session = motet.load(motet.compile(
        model("TopK", [(FLOAT, shape)], [(FLOAT, cut), (INT64, cut)], k, axis=axis, largest=largest)
    ))
    for rows, columns in ((7, 50), (2, 5), (33, 1000)):
        x = random(rows, columns)
        values, positions = session(x)
        order = np.argsort(-x if largest else x, axis, kind="stable").take(range(k), axis)
        np.testing.assert_array_equal(positions, order)
        np.testing.assert_array_equal(values, np.take_along_axis(x, order, axis))


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("exclusive", [0, 1])
def test_sums_from_either_end(exclusive: int, reverse: int) -> None:
    proto = model("CumSum", [(FLOAT, ["n", 37])], [(FLOAT, ["n", 37])], 1, exclusive=exclusive, reverse=reverse)
    proto.graph.initializer[0].ClearField("dims")
    session = motet.load(motet.compile(proto))
    for rows in (1, 19):
        x = random(rows, 37)
        given = x[:, ::-1] if reverse else x
        total = np.cumsum(given.astype(np.float64), 1) - (given if exclusive else 0)
        np.testing.assert_allclose(session(x), total[:, ::-1] if reverse else total, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("axis", [2, 3])
def test_sums_along_extents_that_are_computed(axis: int) -> None:
    weights = random(1, 2, 3, 2)
    nodes = [helper.make_node("ConvTranspose", ["x", "w"], ["t"], strides=[3, 2], output_padding=[2, 1]),
             helper.make_node("CumSum", ["t", "axis"], ["y"], exclusive=1)]  # fmt: skip
    constants = [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(np.array(axis), "axis")]
    shapes = [1, 1, "n", "m"], [1, 2, None, None]
    x, y = (helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in zip("xy", shapes, strict=True))
    proto = helper.make_model(helper.make_graph(nodes, "g", [x], [y], constants),
                              opset_imports=[helper.make_opsetid("", 17)], ir_version=8)  # fmt: skip
    session = motet.load(motet.compile(proto))
    for extents in ((1, 1), (7, 5)):
        given = random(1, 1, *extents)
        wanted = ReferenceEvaluator(proto).run(None, {"x": given})[0]
        np.testing.assert_allclose(session(given), wanted, rtol=1e-5, atol=1e-5)


def test_updates_at_places_counted_from_both_ends() -> None:
    session = motet.load(motet.compile(
        model("ScatterND", [(FLOAT, [8, 5]), (INT64, [3, 1]), (FLOAT, [3, 5])], [(FLOAT, [8, 5])])
    ))
    x, updates = random(8, 5), random(3, 5)
    wanted = x.copy()
    wanted[[2, -1, 0]] = updates
    np.testing.assert_array_equal(session(x, np.array([[2], [-1], [0]]), updates), wanted)
