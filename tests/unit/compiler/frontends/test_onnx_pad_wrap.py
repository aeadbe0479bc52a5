"""Pad with mode wrap, written with gathers: the wheel's own lowering of it never ends."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import motet
from motet.errors import CompileError


def padded(pads: list[int], axes: list[int] | None, extents: list[int | str]) -> onnx.ModelProto:
    names, constants = ["x", "pads"], [helper.make_tensor("pads", TensorProto.INT64, [len(pads)], pads)]
    if axes is not None:
        names += ["", "axes"]
        constants.append(helper.make_tensor("axes", TensorProto.INT64, [len(axes)], axes))
    graph = helper.make_graph(
        [helper.make_node("Pad", names, ["y"], mode="wrap", name="pad")], "wrapped",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, extents)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])


@pytest.mark.parametrize(("pads", "axes"), [
    ([0, 1, 2, 0, 2, 1], None), ([1, 0, 0, 2, 3, 0], None), ([1, 2], [-1]), ([0, 5], [0]), ([0, 0], [1]),
])  # fmt: skip
def test_elements_come_round_again(pads: list[int], axes: list[int] | None) -> None:
    x = np.random.default_rng(1).standard_normal((3, 4, 5), np.float32)
    around = [(0, 0)] * 3
    for axis, before, after in zip(axes or range(3), *np.reshape(pads, (2, -1)), strict=True):
        around[axis] = (before, after)
    session = motet.load(motet.compile(padded(pads, axes, [3, 4, 5])))
    np.testing.assert_array_equal(session(x), np.pad(x, around, mode="wrap"))


def test_unknown_extents_are_refused() -> None:
    with pytest.raises(CompileError, match=r"node 'pad': Pad with mode wrap"):
        motet.compile(padded([0, 0, 1, 0, 0, 1], None, ["n", 4, 5]))
