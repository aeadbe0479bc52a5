"""Models that break ONNX's rules are refused with the node and the value, and nodes are brought into order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import motet
from motet.compiler.frontends.onnx.reading import read_model
from motet.compiler.frontends.onnx.well_formed import check_graph, refuse_recursion
from motet.errors import CompileError

FLOAT = TensorProto.FLOAT
node = helper.make_node


def model(
    nodes: list[onnx.NodeProto], outputs: tuple[str, ...] = ("y",), inputs: tuple[str, ...] = ("x",),
    constants: dict[str, Any] | None = None, functions: list[onnx.FunctionProto] | None = None,
) -> onnx.ModelProto:
    values = [[helper.make_tensor_value_info(name, FLOAT, [4]) for name in names] for names in (inputs, outputs)]
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", *values, tensors)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, functions=functions or [])


def checked(proto: onnx.ModelProto) -> onnx.ModelProto:
    read = read_model(proto.SerializeToString(), "model.onnx")
    refuse_recursion(read)
    check_graph(read)
    return read.proto


def body(nodes: list[onnx.NodeProto], output: str) -> onnx.GraphProto:
    return helper.make_graph(nodes, "body", [], [helper.make_tensor_value_info(output, FLOAT, None)])


def choice(then: onnx.GraphProto, otherwise: onnx.GraphProto) -> onnx.NodeProto:
    return node("If", ["c"], ["y"], name="choice", then_branch=then, else_branch=otherwise)


def function(name: str, *called: str) -> onnx.FunctionProto:
    nodes = [node(other, ["a"], ["b"], domain="own") for other in called] or [node("Relu", ["a"], ["b"])]
    return helper.make_function("own", name, ["a"], ["b"], nodes, [helper.make_opsetid("own", 1),
                                                                   helper.make_opsetid("", 18)])


SQUARE = np.ones((2, 3, 3, 3), np.float32)

WRONG: dict[str, tuple[Callable[[], onnx.ModelProto], tuple[str, ...]]] = {
    "input nobody makes": (lambda: model([node("Add", ["x", "nowhere"], ["y"], name="sum")]), ("'sum'", "'nowhere'")),
    "output nobody makes": (lambda: model([node("Relu", ["x"], ["y"])], ("q",)), ("output 'q'", "made are 'y'")),
    "two inputs of one name": (lambda: model([node("Relu", ["x"], ["y"])], inputs=("x", "x")), ("input 'x'", "once")),
    "two values of one name": (
        lambda: model([node("Relu", ["x"], ["y"], name="a"), node("Neg", ["x"], ["y"], name="b")]),
        ("node 'b'", "'y'", "node 'a'"),
    ),
    "circle": (
        lambda: model([node("Add", ["x", "b"], ["a"], name="one"), node("Neg", ["a"], ["b"], name="two"),
                       node("Relu", ["a"], ["y"])]),
        ("waits for its own result", "'one'", "'two'"),
    ),
    "own result": (lambda: model([node("Add", ["x", "y"], ["y"], name="self")]), ("'self'", "own result")),
    "operands of two types": (
        lambda: model([node("Add", ["x", "k"], ["y"], name="sum")], constants={"k": np.ones(4)}),
        ("'sum'", "Add", "'x' is float", "'k' is double"),
    ),
    "operands of two types behind nodes": (
        lambda: model([node("Relu", ["x"], ["a"]), node("Cast", ["x"], ["b"], to=TensorProto.FLOAT16),
                       node("Concat", ["a", "b"], ["y"], name="join", axis=0)]),
        ("'join'", "Concat", "'a' is float", "'b' is float16"),
    ),
    "no groups": (
        lambda: model([node("Conv", ["x", "w"], ["y"], name="conv", group=0)], constants={"w": SQUARE}),
        ("'conv'", "group is 0"),
    ),
    "strides of minus one": (
        lambda: model([node("MaxPool", ["x"], ["y"], name="pool", kernel_shape=[2], strides=[-1])]),
        ("'pool'", "strides is [-1]"),
    ),
    "value of a body that nobody makes": (
        lambda: model([choice(body([node("Relu", ["gone"], ["t"], name="inside")], "t"),
                              body([node("Neg", ["x"], ["e"])], "e"))], inputs=("x", "c")),
        ("'choice'", "'gone'"),
    ),
    "two types in a body": (
        lambda: model([choice(body([node("Mul", ["x", "k"], ["t"], name="inside")], "t"),
                              body([node("Neg", ["x"], ["e"])], "e"))], inputs=("x", "c"),
                      constants={"k": np.ones(4, np.int64)}),
        ("'inside'", "Mul", "int64"),
    ),
    "function that calls itself": (
        lambda: model([node("f", ["x"], ["y"], domain="own")], functions=[function("f", "f")]), ("'f'", "calls itself")
    ),
    "functions that call each other": (
        lambda: model([node("f", ["x"], ["y"], domain="own")], functions=[function("f", "g"), function("g", "f")]),
        ("calls itself",),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_broken_rules_are_refused(name: str) -> None:
    make, words = WRONG[name]
    with pytest.raises(CompileError) as refused:
        checked(make())
    assert all(word in str(refused.value) for word in words), refused.value
    assert "\n" not in str(refused.value)


def test_what_has_several_types_by_definition_is_taken() -> None:
    k = {"k": np.array(2, np.int64), "i": np.array([0], np.int64), "s": np.array(0.5, np.float32)}
    nodes = [
        node("Pow", ["x", "k"], ["a"]), node("Gather", ["a", "i"], ["b"]), node("QuantizeLinear", ["a", "s"], ["q"]),
        node("DequantizeLinear", ["q", "s"], ["d"]), node("Greater", ["d", "x"], ["g"]),
        node("Where", ["g", "a", "d"], ["y"]),
    ]
    checked(model(nodes, constants=k))


def test_functions_that_are_called_twice_are_no_recursion() -> None:
    functions = [function("f", "g", "h"), function("g", "h"), function("h")]
    checked(model([node("f", ["x"], ["y"], domain="own")], functions=functions))


CHAIN = [
    node("Relu", ["x"], ["a"]), node("Neg", ["a"], ["b"]), node("Add", ["a", "b"], ["c"]), node("Abs", ["c"], ["d"]),
    node("Mul", ["d", "a"], ["y"]),
]


@given(st.permutations(range(len(CHAIN))))
def test_nodes_are_sorted(order: list[int]) -> None:
    found = checked(model([CHAIN[index] for index in order]))
    x = np.array([1, -2, 3, -4], np.float32)
    [wanted] = ReferenceEvaluator(model(CHAIN)).run(None, {"x": x})
    [given_back] = ReferenceEvaluator(found).run(None, {"x": x})
    np.testing.assert_array_equal(given_back, wanted)
    if order == list(range(len(CHAIN))):
        assert [each.op_type for each in found.graph.node] == [each.op_type for each in CHAIN]


@pytest.mark.parametrize("renamed", ["x", "y", "relu", "Relu"])
def test_names_are_utf8(renamed: str) -> None:
    data = model([node("Relu", ["x"], ["y"], name="relu")]).SerializeToString()
    name = renamed.encode()
    data = data.replace(bytes([len(name)]) + name, bytes([len(name)]) + b"\xff" * len(name))
    with pytest.raises(CompileError, match=r"the name of an? .* is not UTF-8: b'.*xff"):
        motet.compile(data)


@pytest.mark.parametrize("rank", [65, 3000])
def test_tensors_of_too_many_axes_are_refused(rank: int) -> None:
    proto = model([node("Relu", ["x"], ["y"])])
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.CopyFrom(helper.make_tensor_type_proto(FLOAT, [1] * rank))
    with pytest.raises(CompileError, match=f"input 'x': {rank} axes; expected at most 64"):
        motet.compile(proto)


def test_nodes_out_of_order_compile() -> None:
    proto = model(CHAIN[::-1])
    x = np.array([1, -2, 3, -4], np.float32)
    [wanted] = ReferenceEvaluator(model(CHAIN)).run(None, {"x": x})
    np.testing.assert_allclose(motet.load(motet.compile(proto))(x), wanted)


def test_a_long_chain_out_of_order_is_sorted() -> None:
    count = 5000
    nodes = [node("Relu", [f"v{index}"], [f"v{index + 1}"]) for index in range(count)]
    found = checked(model(nodes[::-1], (f"v{count}",), ("v0",)))
    assert [each.output[0] for each in found.graph.node] == [f"v{index + 1}" for index in range(count)]


@pytest.mark.parametrize("levels", [17, 41, 99])
def test_functions_that_stand_for_too_many_nodes_are_refused(levels: int) -> None:
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    functions = [helper.make_function("local", "f0", ["a"], ["b"], [node("Neg", ["a"], ["b"])], opsets)]
    for level in range(levels):
        twice = [node(f"f{level}", ["a"], ["t"], domain="local"), node(f"f{level}", ["t"], ["b"], domain="local")]
        functions.append(helper.make_function("local", f"f{level + 1}", ["a"], ["b"], twice, opsets))
    proto = model([node("Relu", ["x"], ["r"]), node(f"f{levels}", ["r"], ["y"], name="n", domain="local")])
    proto.functions.extend(functions)
    del proto.opset_import[:]
    proto.opset_import.extend(opsets)
    with pytest.raises(CompileError, match=r"node 'n': .* more than 100,000 nodes; expected at most 100,000$"):
        motet.compile(proto)


def test_functions_that_call_each_other_in_a_long_row_are_refused() -> None:
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    functions = [helper.make_function("own", "f0", ["a"], ["b"], [node("Neg", ["a"], ["b"])], opsets)]
    functions += [
        helper.make_function("own", f"f{n}", ["a"], ["b"], [node(f"f{n - 1}", ["a"], ["b"], domain="own")], opsets)
        for n in range(1, 101)
    ]
    proto = model([node("f100", ["x"], ["y"], domain="own")], functions=functions)
    with pytest.raises(CompileError, match=r"function 'f100': 101 functions call each other; expected at most 100$"):
        motet.compile(proto)


@pytest.mark.parametrize("op", ["Concat", "Split"])
def test_joining_and_splitting_into_too_many_tensors_is_refused(op: str) -> None:
    names = [f"p{n}" for n in range(4097)]
    parts = node("Concat", names, ["y"], axis=0) if op == "Concat" else node("Split", ["x"], names, axis=0)
    whole, each = ("y", 1, [4097]), [(name, 1, [1]) for name in names]
    sides = (each, [whole]) if op == "Concat" else ([("x", 1, [4097])], each)
    graph = helper.make_graph([parts], "g", *([helper.make_tensor_value_info(*v) for v in side] for side in sides))
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(CompileError, match=f"operator {op} of 4,097 parts; expected at most 4,096"):
        motet.compile(proto)


def nested(levels: int) -> bytes:
    """A model with nodes in bodies of nodes, without anything else."""
    def field(number: int, content: bytes) -> bytes:
        size, length = bytearray(), len(content)
        while length > 127:
            size.append(length & 127 | 128)
            length >>= 7
        return bytes([number << 3 | 2, *size, length]) + content

    graph = b""
    for _ in range(levels):
        graph = field(1, field(5, field(6, graph)))
    return field(7, graph)


@pytest.mark.parametrize("levels", [40, 3000])
def test_bodies_that_are_nested_too_deep_are_refused(levels: int) -> None:
    with pytest.raises(CompileError, match="bodies of nodes are nested too deep; expected at most 31 inside"):
        motet.compile(nested(levels), format="onnx")
