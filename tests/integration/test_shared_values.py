"""Values that several operations read, many times in a row: no pass may read each way to them."""

from __future__ import annotations

import time

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import TensorProto, helper

import motet

_ROUNDS = 24  # 2^24 ways to the input
_SECONDS = 60  # of a compilation that takes two
FORMS = {  # the nodes of a round from value %i to value %o
    "products": [("Mul", ["%i", "%i"], {})],
    "sums": [("Relu", ["%i"], {}), ("Add", ["%i", "last"], {})],
    "transposed": [("Transpose", ["%i"], {"perm": [1, 0]}), ("Mul", ["%i", "last"], {})],
    "differences": [("Tanh", ["%i"], {}), ("Sub", ["last", "%i"], {}), ("Mul", ["last", "%i"], {})],
    "joined": [("Concat", ["%i", "%i"], {"axis": 0}), ("Slice", ["last", "begin", "end"], {})],
}


def rounds(form: str, extents: list[int | str]) -> onnx.ModelProto:
    nodes: list[onnx.NodeProto] = []
    value = "x"
    for number in range(_ROUNDS):
        last = value
        for place, (op, inputs, attributes) in enumerate(FORMS[form]):
            named = [{"%i": value, "last": last}.get(name, name) for name in inputs]
            last = f"v{number}.{place}"
            nodes.append(helper.make_node(op, named, [last], **attributes))
        value = last
    nodes.append(helper.make_node("Tanh", [value], ["y"]))
    bounds = [helper.make_tensor(name, TensorProto.INT64, [1], [at]) for name, at in (("begin", 2), ("end", 10))]
    make = helper.make_tensor_value_info
    values = [make("x", TensorProto.FLOAT, extents)], [make("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "rounds", *values, bounds)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize(
    ("form", "extents"),
    [(form, extents) for form in FORMS for extents in ([8, 8], ["n", "n"]) if form != "joined" or 8 in extents],
)
def test_each_value_is_read_once(form: str, extents: list[int | str]) -> None:
    model = rounds(form, extents)
    begin = time.monotonic()
    with motet.load(motet.compile(model, cache=False), threads=1) as session:
        assert time.monotonic() - begin < _SECONDS
        x = np.random.default_rng(0).uniform(0.2, 0.9, (8, 8)).astype(np.float32)
        expected = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x})[0]
        np.testing.assert_allclose(session(x), expected, rtol=1e-4, atol=1e-5)
