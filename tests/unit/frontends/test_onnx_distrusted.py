"""Forms of operators whose lowering is wrong are refused; their neighbours, which are right, are not."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from motet.compiler.frontends.onnx import load_onnx
from motet.errors import CompileError


def model(op: str, kinds: list[tuple[int, list[int]]], result: tuple[int, list[int]], **attributes: object) -> bytes:
    names = [f"x{i}" for i in range(len(kinds))]
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], name="node", **attributes)], "g",
        [helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in zip(names, kinds, strict=True)],
        [helper.make_tensor_value_info("y", *result)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9).SerializeToString()


F, I8 = TensorProto.FLOAT, TensorProto.INT8


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (model("GridSample", [(F, [1, 1, 3, 2]), (F, [1, 2, 4, 2])], (F, [1, 1, 2, 4]), mode="nearest"),
         "mode nearest"),
        (model("GRU", [(F, [5, 1, 3]), (F, [1, 6, 3]), (F, [1, 6, 2])], (F, [5, 1, 1, 2]), hidden_size=2,
               activations=["Tanh", "Tanh"]), "activations"),
    ],
    ids=["nearest", "activations"],
)
def test_forms_with_wrong_lowerings_are_refused(data: bytes, what: str) -> None:
    with pytest.raises(CompileError, match=f"node 'node': .*{what}.*wrong numbers"):
        load_onnx(data, "m.onnx")


def test_signed_integers_are_taken() -> None:
    program = load_onnx(model("DequantizeLinear", [(I8, [3, 2]), (F, []), (I8, [])], (F, [3, 2])), "m.onnx")
    assert np.prod(program.module.body.operations[0].type.results[0].shape) == 6
