"""Reshapes of several dynamic extents: which of them belong together is never guessed."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import motet

Shape = list[int | str]


def transpose_and_reshape(shape: list[int], extents: Shape, order: list[int]) -> onnx.ModelProto:
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=order), helper.make_node("Reshape", ["t", "s"], ["y"])]
    return model(nodes, extents, [helper.make_tensor("s", TensorProto.INT64, [len(shape)], shape)])


def model(nodes: list[onnx.NodeProto], extents: Shape, constants: list[onnx.TensorProto]) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes, "reshapes", [helper.make_tensor_value_info("x", TensorProto.FLOAT, extents)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def check(proto: onnx.ModelProto, shapes: list[tuple[int, ...]]) -> None:
    session = motet.load(motet.compile(proto))
    for shape in shapes:
        x = np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)
        (expected,) = ReferenceEvaluator(proto).run(None, {"x": x})
        np.testing.assert_array_equal(session(x), expected)


CASES: list[tuple[list[int], Shape, list[int]]] = [
    ([-1, 16], ["b", 2, "n", 8], [2, 0, 1, 3]),
    ([-1, 8], ["b", 2, "n", 4], [0, 2, 1, 3]),
    ([0, -1, 16], ["b", "n", "m", 16], [0, 1, 2, 3]),
    ([0, 0, -1], ["b", "n", "m", 4], [0, 1, 2, 3]),
    ([0, -1], ["b", "n", "m", 4], [0, 2, 1, 3]),
    ([-1, 0, 4], ["b", "n", 2, 4], [1, 0, 2, 3]),
    ([-1], ["b", "n", 2, 4], [3, 0, 2, 1]),
    ([0, 0, 2, 2, -1], ["b", "n", 8, 1], [1, 0, 2, 3]),
    ([1, -1, 0, 2], ["b", "n", 4, 2], [1, 0, 2, 3]),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case[0]))
def test_sizes_that_are_numbers_or_copied(case: tuple[list[int], Shape, list[int]]) -> None:
    shape, extents, order = case
    values = [
        {"b": b, "n": n, "m": m} for b, n, m in ((3, 5, 2), (1, 1, 1), (1, 7, 3), (4, 1, 5))
    ]  # fmt: skip
    shapes = [tuple(v[e] if isinstance(e, str) else e for e in extents) for v in values]
    check(transpose_and_reshape(shape, extents, order), shapes)


@pytest.mark.parametrize("last", [-1, 16])
def test_sizes_that_are_another_tensors(last: int) -> None:
    """As exporters write x.view(b, n, heads, d), with b and n of a tensor long before."""
    nodes = [
        helper.make_node("Shape", ["x"], ["extents"]),
        helper.make_node("Gather", ["extents", "zero"], ["b"]),
        helper.make_node("Gather", ["extents", "one"], ["n"]),
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        helper.make_node("Abs", ["t"], ["a"]),
        helper.make_node("Concat", ["n", "b", "two", "last"], ["s"], axis=0),
        helper.make_node("Reshape", ["a", "s"], ["split"]),
        helper.make_node("Transpose", ["split"], ["u"], perm=[1, 2, 0, 3]),
        helper.make_node("Mul", ["b", "two"], ["twice"]),
        helper.make_node("Concat", ["twice", "n", "last"], ["r"], axis=0),
        helper.make_node("Reshape", ["u", "r"], ["y"]),
    ]
    numbers = {"zero": 0, "one": 1, "two": 2, "last": last}
    constants = [helper.make_tensor(name, TensorProto.INT64, [1], [value]) for name, value in numbers.items()]
    check(model(nodes, ["b", "n", 32], constants), [(3, 5, 32), (1, 1, 32), (1, 4, 32), (6, 1, 32)])


def test_a_shape_whose_length_is_known_once_constants_are_folded() -> None:
    """PyTorch's exporter writes `unflatten` of the last axis so: an empty slice follows, from a place that it computes.
    """
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Reshape", ["three", "one"], ["start"]),
        helper.make_node("Slice", ["shape", "zero", "two"], ["before"]),
        helper.make_node("Slice", ["shape", "start", "end"], ["after"]),
        helper.make_node("Concat", ["before", "split", "after"], ["sizes"], axis=0),
        helper.make_node("Reshape", ["x", "sizes"], ["y"]),
    ]
    numbers = {"zero": [0], "two": [2], "end": [2**31 - 1], "one": [1], "split": [3, 4]}
    constants = [helper.make_tensor(name, TensorProto.INT64, [len(n)], n) for name, n in numbers.items()]
    constants.append(helper.make_tensor("three", TensorProto.INT64, [], [3]))
    check(model(nodes, [17, "b", 12], constants), [(17, 3, 12), (17, 1, 12)])
