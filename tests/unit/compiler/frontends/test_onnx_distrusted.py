"""Forms of operators whose lowering is wrong are refused; their neighbours, which are right, are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from motet.compiler.frontends.onnx.loading import load_onnx
from motet.compiler.ir.program import Program
from motet.errors import CompileError


def model(op: str, kinds: list[tuple[int, list[Any]]], result: tuple[int, list[Any]], results: tuple[str, ...] = ("y",),
          **attributes: object) -> bytes:
    names = [f"x{i}" for i in range(len(kinds))]
    graph = helper.make_graph(
        [helper.make_node(op, names, results, name="node", **attributes)], "g",
        [helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in zip(names, kinds, strict=True)],
        [helper.make_tensor_value_info("y", *result)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9).SerializeToString()


F, I8, U8, I64 = TensorProto.FLOAT, TensorProto.INT8, TensorProto.UINT8, TensorProto.INT64


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (model("STFT", [(F, [1, 32, 1]), (I64, [])], (F, [1, None, 9, 2])), "STFT is supported where frame_step"),
        (model("Det", [(F, [33, 33])], (F, [])), "Det is supported for matrices of at most 32 rows"),
        (model("Unique", [(F, [0])], (F, [None]), axis=0), "Unique with an operand .* without elements"),
        (model("LSTM", [(F, ["t", 1, 3]), (F, [1, 8, 3]), (F, [1, 8, 2]), (F, [1, 16]), (TensorProto.INT32, [1])],
               (F, ["t", 1, 1, 2]), hidden_size=2), "LSTM of this form, for a number of steps that only a call knows"),
        (model("Einsum", [(F, [2, 2, 3]), (F, [4, 3, 2])], (F, [4, 2, 2]), equation="aij,ajk->aik"),
         r"operator Einsum \(operator set 20\) has no lowering for inputs of float\[2, 2, 3\], .*equation=aij,"),
        (model("Clip", [(U8, []), (U8, [1, 2])], (U8, [])), r"operator Clip: operand 1 has the extents \[1, 2\]"),
        (model("HannWindow", [(U8, [1, 8])], (F, [None])), r"operator HannWindow: operand 0 has the extents \[1, 8\]"),
        (model("Tile", [(F, [4]), (I64, [])], (F, [None])), r"operator Tile: operand 1 has the extents \[\]"),
    ],
    ids=["step", "rows", "of-data", "lengths", "form", "limit", "size", "repeats"],
)
def test_operators_that_are_not_known_are_named(data: bytes, what: str) -> None:
    with pytest.raises(CompileError, match=f"node 'node': {what}"):
        load_onnx(data, "m.onnx")


def test_signed_integers_are_taken() -> None:
    program = load_onnx(model("DequantizeLinear", [(I8, [3, 2]), (F, []), (I8, [])], (F, [3, 2])), "m.onnx")
    assert np.prod(program.module.body.operations[0].type.results[0].shape) == 6


def test_operators_of_other_domains_are_named() -> None:
    node = helper.make_node("CategoryMapper", ["x"], ["y"], name="node", domain="ai.onnx.ml")
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", F, [4])],
                              [helper.make_tensor_value_info("y", F, [4])])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 3)]
    data = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    what = r"node 'node': operator CategoryMapper of domain 'ai.onnx.ml' is not supported: it maps strings"
    with pytest.raises(CompileError, match=what):
        load_onnx(data, "m.onnx")


@pytest.mark.parametrize(("kind", "bits"), [(F, 2), (TensorProto.DOUBLE, 3), (I8, 0)])
@pytest.mark.parametrize("count", [60, 100])
def test_values_of_too_many_bytes_are_refused(kind: int, bits: int, count: int) -> None:
    nodes = [helper.make_node("Concat", [f"v{i}"] * 2, [f"v{i + 1}"], name=f"c{i}", axis=0) for i in range(count)]
    nodes.append(helper.make_node("Slice", [f"v{count}", "zero", "one"], ["y"]))
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("v0", kind, [1]), *(
            helper.make_tensor_value_info(name, I64, [1]) for name in ("zero", "one"))],
        [helper.make_tensor_value_info("y", kind, [None])],
    )
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9).SerializeToString()
    first = 56 - bits
    message = (f"node 'c{first}': operator Concat: its result 'v{first + 1}' of extents [{2 << first}] has "
               f"{1 << 57:,} bytes; expected at most {1 << 56:,}")
    with pytest.raises(CompileError) as caught:
        load_onnx(data, "doubled.onnx")
    assert str(caught.value) == f"doubled.onnx: {message}"


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("op", "indices"), [
    ("Gather", [0, -3]), ("GatherElements", [[0, 1, 0], [0, 0, 2]]), ("GatherND", [[0, 1], [-3, 0]]),
    ("ScatterElements", [[0, 1, 0], [0, 0, 2]]), ("ScatterND", [[0, 1], [1, 3]]),
])  # fmt: skip
def test_constant_indices_outside_of_an_axis_are_named(op: str, indices: list[Any], *, known: bool) -> None:
    def load(indices: np.ndarray, *, inside: bool = False) -> Program:
        updates = [len(indices)] if op == "ScatterND" else [*indices.shape]
        x, u = helper.make_tensor_value_info("x", F, [2, 3]), helper.make_tensor_value_info("u", F, updates)
        constants = [numpy_helper.from_array(indices, "i")]
        constants += [numpy_helper.from_array(np.ones((2, 3), np.float32), "x")] if known else []
        nodes = [helper.make_node(op, ["x", "i", "u"][: 3 if "Scatter" in op else 2], ["y"], "node")]
        inputs, results = [u] if known else [x, u], [helper.make_tensor_value_info("y", F, None)]
        if inside:
            branch = helper.make_graph(nodes, "branch", [], results)
            nodes = [helper.make_node("If", ["flag"], ["z"], then_branch=branch, else_branch=branch)]
            inputs, results = [*inputs, helper.make_tensor_value_info("flag", TensorProto.BOOL, [])], [
                helper.make_tensor_value_info("z", F, None)]  # fmt: skip
        graph = helper.make_graph(nodes, "g", inputs, results, constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
        return load_onnx(made.SerializeToString(), "m.onnx")

    wrong = np.array(indices)
    with pytest.raises(CompileError, match=rf"node 'node': operator {op}: index .* is outside of axis [01] of extent"):
        load(wrong)
    assert load(np.clip(wrong, -2, 1)).module
    if not known:
        assert load(wrong, inside=True).module  # of a branch that no call may take
