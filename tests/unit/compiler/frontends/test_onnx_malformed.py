"""Models that break ONNX's rules are errors of the model, in one line with the node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import motet

onnx: Any = pytest.importorskip("onnx", reason="needs ONNX: pip install 'motet[onnx]'")
h = onnx.helper


def model(
    op: str, inputs: list[str], outputs: list[str] | None = None, shape: tuple[int, ...] = (2, 3), *, kind: int = 1,
    opset: int = 18, held: np.ndarray | None = None, change: Callable[[Any], object] = lambda node: None, **said: Any,
) -> bytes:  # fmt: skip
    """A model of one node, changed by `change`, of inputs x, of `shape`, and the constant c, `held`."""
    outputs = outputs or ["y"]
    node = h.make_node(op, inputs, outputs, "n", **said)
    change(node)
    constants = [] if held is None else [onnx.numpy_helper.from_array(held, "c")]
    graph = h.make_graph([node], "g", [h.make_tensor_value_info("x", kind, shape)],
                         [h.make_value_info(name, onnx.TypeProto()) for name in outputs], constants)  # fmt: skip
    made = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9)
    made.opset_import[0].version = opset
    return made.SerializeToString()


def mixed(op: str, source: str, *, kind: int = 1, first: bool = True, **said: Any) -> bytes:
    """A model of a node of x and a value of a type that is known once it is inferred: of bytes, by `source`."""
    made = {
        "result": [h.make_node("DynamicQuantizeLinear", ["f"], ["b", "s", "z"])],
        "constant": [h.make_node("Constant", [], ["b"], value=onnx.numpy_helper.from_array(np.ones(3, np.uint8)))],
        "branch": [h.make_node("If", ["q"], ["b"], **{
            f"{name}_branch": h.make_graph([h.make_node("Cast", ["f"], [name], to=3)], name, [],
                                           [h.make_tensor_value_info(name, 3, [3])]) for name in ("then", "else")})],
    }[source]  # fmt: skip
    node = h.make_node(op, [*["q"] * (op == "Where"), *(["b", "x"] if first else ["x", "b"])], ["y"], "n", **said)
    inputs = [h.make_tensor_value_info(*each) for each in (("x", kind, [3]), ("f", 1, [3]), ("q", 9, []))]
    graph = h.make_graph([*made, node], "g", inputs, [h.make_value_info("y", onnx.TypeProto())])
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9).SerializeToString()


def declared(data: bytes, kind: int, extent: str = "") -> bytes:
    """The model with an output of a type, and of an extent with a name."""
    made = onnx.ModelProto.FromString(data)
    made.graph.output[0].CopyFrom(h.make_tensor_value_info("y", kind, [extent, None] if extent else None))
    return made.SerializeToString()


def untyped(node: Any) -> None:
    node.attribute.add().name = "axis"


MODELS: dict[str, tuple[bytes, str]] = {
    "few operands": (model("Gemm", ["x"]), "node 'n': operator Gemm: its number of operands is 1; expected 2 to 3"),
    "many operands": (model("Relu", ["x", "x"]), "its number of operands is 2; expected 1$"),
    "no operands": (model("Sum", []), "its number of operands is 0; expected 1 or more"),
    "many results": (model("Relu", ["x"], ["y", "z"]), "its number of results is 2; expected 1"),
    "operand left out": (model("MatMul", ["x", ""]), r"operand 1 \(B\) is left out; expected one"),
    "attribute missing": (model("Cast", ["x"]), "attribute to is missing; expected one of type int"),
    "attribute of another type": (model("Softmax", ["x"], axis="last"), "axis is of type string; expected int"),
    "attribute without type": (model("Softmax", ["x"], change=untyped), "attribute 'axis' has no type"),
    "attribute of a later version": (
        model("GatherND", ["x", "c"], opset=11, held=np.zeros((2, 1), int), batch_dims=1),
        "node 'n': operator GatherND: attribute 'batch_dims' is unknown in operator set 11; expected none"),
    "attribute of another operator": (model("Dropout", ["x"], mode="nearest"), "'mode' is unknown .*; expected seed"),
    "attribute of OpenVINO's operator": (model("Resize", ["x", "", "c"], held=np.ones(2, np.float32), single=1),
                                         "operator Resize: attribute 'single' is unknown"),
    "result of another type": (declared(model("Less", ["x", "x"]), 3),
                               "output 'y' is declared as int8, but is of type bool"),
    "result of another rank": (declared(model("Relu", ["x"], shape=(2, 3, 4)), 1, "a"),
                               "output 'y' is declared with 2 axes, but has 3"),
    "more axes than there are": (model("ReduceMax", ["c", "x"], kind=7, shape=(2,), held=np.ones(5, np.float32)),
                                 "node 'n': ReduceMax along 2 axes; expected at most 1, those of its operand"),
    "extent in another encoding": (declared(model("Relu", ["x"]), 1, "qq").replace(b"qq", b"\xe3q"),
                                   "the name of an extent of 'y' is not UTF-8"),
    "axis beyond": (model("Softmax", ["x"], axis=2), r"axis is \[2\]; expected axes from -2 to 1, for an operand of 2"),
    "axis far beyond": (model("Concat", ["x", "x"], axis=2**40), "expected axes from -2 to 1"),
    "neither true nor false": (model("ArgMax", ["x"], keepdims=64), "keepdims is 64; expected 0 or 1"),
    "parts of a split": (model("Split", ["x", "c"], held=np.array(-1)), "its parts are -1; expected a number from 0"),
    "terms of an equation": (model("Einsum", ["x"], equation="ab,b->a"), "node 'n': operator Einsum cannot be read"),
    "a rounding": (model("Resize", ["x", "", "c"], held=np.array([1, 2], np.float32), nearest_mode="\0"),
                   "node 'n': operator Resize cannot be read"),
    "no scale": (model("Resize", ["x", "", "c"], held=np.array([1, -1], np.float32)),
                 r"its result 'y' has the extents \[2, -3\]; expected none below 0"),
    "nothing to resize": (model("Resize", ["x", "", "", "c"], held=np.array([3, 2]), shape=(0, 2)),
                          r"a tensor of extents \[0, 2\] to \[3, 2\]; expected elements"),
    "no scale for an axis": (model("Resize", ["x", "", "c"], held=np.ones(1, np.float32)),
                             "1 scales or sizes; expected one for each of 2 axes"),
    "an axis twice": (model("Resize", ["x", "", "c"], held=np.ones(2, np.float32), axes=[1, -1]),
                      r"axes=\[1, -1\]; expected each axis once"),
    "a long axis": (model("Resize", ["x", "", "", "c"], held=np.array([2, 2**31])),
                    r"its result 'y' has the extents \[2, 2147483648\]; expected at most 268,435,456"),
    "sum of parts": (model("Split", ["x", "c"], ["y", "z"], held=np.array([1, 2])),
                     r"its parts are \[1, 2\]; expected numbers that add up to 2, the extent"),
    "sum of parts by attribute": (model("Split", ["x"], ["y", "z"], opset=11, axis=1, split=[1, 1]),
                                  r"its parts are \[1, 1\]; expected numbers that add up to 3, the extent"),
    "number of parts": (model("Split", ["x"], num_outputs=2**31 - 1),
                        "num_outputs is .*; expected numbers from 1 to 4,096"),
    "more results than parts": (model("Split", ["x"], ["y", "z"], num_outputs=1),
                                "num_outputs is 1; expected at least 2"),
    "batch axes below 0": (model("GatherND", ["x", "c"], held=np.zeros((2, 1), int), batch_dims=-1),
                           "batch_dims is -1; expected numbers from 0"),
    "batch axes far below 0": (model("GatherND", ["x", "c"], held=np.zeros((2, 1), int), batch_dims=-(2**63)),
                               "batch_dims is -9223372036854775808; expected numbers from 0"),
    "indices of no axis": (model("GatherND", ["x", "c"], held=np.zeros(0, int)), r"its indices have the extents \[0\]"),
    "axis of a norm": (model("LayerNormalization", ["x", "c"], held=np.ones(3, np.float32), axis=2**31),
                       "axis is 2147483648; expected numbers from -64 to 64"),
    "pads far below 0": (model("AveragePool", ["x"], shape=(1, 1, 4), kernel_shape=[2], pads=[-(2**31) - 1, 0]),
                         "pads is .*; expected numbers from -2,147,483,647 to 2,147,483,647"),
    "size of a window": (model("LRN", ["x"], shape=(1, 3, 2), size=2**40), "size is .*; expected numbers from 1 to"),
    "grams outside the pool": (model("TfIdfVectorizer", ["x"], kind=7, max_gram_length=1, min_gram_length=1, mode="TF",
                                     max_skip_count=0, ngram_counts=[2**31], ngram_indexes=[0], pool_int64s=[1]),
                               "ngram_counts is .*; expected ascending numbers from 0 to 1, the length of the pool"),
    "a mode": (model("Pad", ["x", "c"], held=np.ones(4, int), mode="\n"),
               "mode is .* expected one of constant, reflect"),
    "automatic pads": (model("MaxPool", ["x"], shape=(1, 1, 4), kernel_shape=[2], auto_pad="SAME"),
                       "auto_pad is 'SAME'; expected one of NOTSET, SAME_UPPER, SAME_LOWER, VALID"),
    "no direction": (model("BitShift", ["x", "x"], kind=2, direction=""),
                     "direction is ''; expected one of LEFT, RIGHT"),
    "an equation": (model("Einsum", ["x"], equation="\n"), "equation is .*; expected terms of letters"),
    "no axis of a sum": (model("CumSum", ["x", "c"], held=np.zeros(0, int)),
                         r"operand 1 has the extents \[0\]; expected one element"),
    "axes that are no vector": (model("ReduceMean", ["x", "c"], held=np.array(0)),
                                r"operand 1 has the extents \[\]; expected a vector"),
    "classes that are no vector": (model("SoftmaxCrossEntropyLoss", ["x", "c"], held=np.array(0)),
                                   r"operand 1 has the extents \[\]; expected a vector"),
    "modes of training": (model("Dropout", ["x", "", "c"], held=np.ones(4, bool)),
                          r"operand 2 has the extents \[4\]; expected one element"),
    "elements of none": (model("Reshape", ["x", "c"], shape=(2, 0), held=np.array([3, 2])),
                         r"operand 0 has the extents \[2, 0\]; expected as many elements as \[3, 2\]"),
    "pooled bits": (model("MaxPool", ["x"], shape=(1, 1, 4), kind=9, kernel_shape=[2]),
                    r"MaxPool: operand 0 \(X\) is of type bool; expected"),
    "diagonal that is no integer": (model("Trilu", ["x", "c"], held=np.ones((), np.float32)),
                                    r"Trilu: operand 1 \(k\) is of type float; expected one of int64"),
    "pooled bytes": (model("AveragePool", ["x"], shape=(1, 1, 4), kind=2, kernel_shape=[2]),
                     r"AveragePool: operand 0 \(X\) is of type uint8; expected one of .*float16"),
    "activated words": (model("HardSwish", ["x"], kind=13),
                        r"HardSwish: operand 0 \(X\) is of type uint64; expected"),
    "product of bytes": (model("MatMul", ["x", "x"], shape=(2, 2), kind=3),
                         r"operand 0 \(A\) is of type int8; expected"),
    "indices that are floats": (model("GatherElements", ["c", "x"], held=np.ones((2, 3), np.float32)),
                                r"operand 1 \(indices\) is of type float; expected one of int32, int64"),
    "sizes that are not int64": (model("Resize", ["x", "", "", "c"], held=np.ones(2, np.int32)),
                                 r"operand 3 \(sizes\) is of type int32; expected one of int64"),
    "bytes with floats": (mixed("Min", "result"), "Min takes operands of one type: 'b' is uint8, 'x' is float"),
    "constant bytes": (mixed("Where", "constant", kind=7), "takes operands of one type: 'b' is uint8, 'x' is int64"),
    "bytes of a branch": (mixed("Concat", "branch", axis=0), "takes operands of one type: 'b' is int8, 'x' is float"),
    "bits with bytes": (mixed("Less", "result", kind=9, first=False), "of one type: 'x' is bool, 'b' is uint8"),
    "element type": (model("Relu", ["x"], kind=99), "input 'x': element type 99; expected one that ONNX has"),
    "complex operand": (model("HardSigmoid", ["x"], kind=14), "'x' is complex64; expected one of .*, float"),
    "complex operands": (model("Add", ["x", "x"], kind=15), "'x' is complex128; expected one of .*, float"),
    "negative extent": (model("Relu", ["x"], shape=(2, -(2**63))), "input 'x': extents .* expected none below 0"),
    "enormous extents": (model("Relu", ["x"], shape=(2**40, 2**40)), "input 'x': extents .* and at most"),
    "operator set 0": (model("Relu", ["x"], opset=0), "operator set 0 of domain 'ai.onnx' does not exist"),
    "operator set far beyond": (model("Elu", ["x"], opset=2**40, alpha=1.0),
                                "operator set 1099511627776 .* does not exist"),
    "a name of two lines": (model("Re\nlu", ["x"]), r"unknown operator Re\\nlu"),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_what_breaks_the_rules_is_named(name: str) -> None:
    source, expected = MODELS[name]
    with pytest.raises(motet.CompileError, match=expected) as caught:
        motet.compile(source, cache=False)
    assert "\n" not in str(caught.value)
