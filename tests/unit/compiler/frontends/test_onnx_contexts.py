"""Contexts of MLIR end with the programs that hold them, also where lowering a model took several attempts."""

from __future__ import annotations

import contextlib
import gc

import pytest
from onnx import TensorProto, helper

from motet.compiler.frontends.onnx.loading import load_onnx
from motet.compiler.ir._mlir import ir
from motet.errors import CompileError

ATTEMPTS = {
    "the first": (helper.make_node("Exp", ["x"], ["y"]), 21),
    "of the operator's function": (helper.make_node("Swish", ["x"], ["y"]), 24),
    "in another operator set": (helper.make_node("Softmax", ["x"], ["y"], axis=1), 12),
    "none": (helper.make_node("Einsum", ["x", "w"], ["y"], equation="aij,ajk->aik"), 20),
}


@pytest.mark.parametrize("name", ATTEMPTS)
def test_a_context_ends_with_its_program(name: str) -> None:
    node, version = ATTEMPTS[name]
    shapes = {"x": [2, 3, 3], "w": [4, 3, 3], "y": None}
    x, w, y = (helper.make_tensor_value_info(value, TensorProto.FLOAT, shape) for value, shape in shapes.items())
    graph = helper.make_graph([node], "g", [x, w], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=9)
    gc.collect()
    gc.disable()
    try:
        before = ir.Context._get_live_count()
        with contextlib.nullcontext() if name != "none" else pytest.raises(CompileError, match="no lowering"):
            load_onnx(model.SerializeToString(), "model.onnx")
        assert ir.Context._get_live_count() == before
    finally:
        gc.enable()
