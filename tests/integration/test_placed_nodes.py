"""Nodes of ONNX models are placed by their names, whatever they are written out as."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import motet

onnx: Any = pytest.importorskip("onnx", reason="needs ONNX: pip install 'motet[onnx]'")

DEVICES = {"a": "host", "b": "host"}
SOME = 40  # of the operators, one of so many in `make test`; the last ones are pools
# Sequences and optional values have no fixed shapes; what is left of the others are no operations.
LEFT_OUT = ("Sequence", "Optional", "Identity")


@functools.cache
def cases(pools: bool) -> Mapping[str, Any]:
    """A model of one node for each operator of ONNX's node tests."""
    from conformance.onnx_cases import NODE, POOLS, node_cases
    from conformance.ratchet import passing

    known = {name for name in passing(NODE) if name.startswith(POOLS) == pools}
    found: dict[str, Any] = {}
    for case in node_cases(pools).values():
        nodes = case.model.graph.node if case.name in known else ()
        if len(nodes) == 1 and not any(word in nodes[0].op_type for word in LEFT_OUT):
            found.setdefault(nodes[0].op_type, case.model)
    return found


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, SOME))])
def test_a_node_of_each_operator(part: int) -> None:
    wrong: list[str] = []
    pools = part == SOME - 1
    for operator in sorted(cases(pools))[0 if pools else part :: 1 if pools else SOME - 1]:
        model = onnx.ModelProto()
        model.CopyFrom(cases(pools)[operator])
        model.graph.node[0].name = "this one"
        try:
            motet.compile(model, devices=DEVICES, place={"this one": "b"}, cache=False)
        except motet.OptionError as error:
            wrong.append(f"{operator}: {error}")
        except motet.CompileError as error:  # in a call, the values of some inputs decide extents
            assert "depend on data" in str(error), operator
    assert not wrong, "\n".join(wrong)


def placed(model: Any, **places: str) -> list[int]:
    """The devices of the steps that run something."""
    artifact = motet.compile(model, devices=DEVICES, place=places, cache=False)
    return [step.device for plan in artifact.manifest.plans.values() for step in plan.steps if step.op == "run"]


def model_of(nodes: list[Any], **more: Any) -> Any:
    h = onnx.helper
    x, y = (h.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4, 5]) for name in ("x", "y"))
    imports = [h.make_opsetid("", 20), h.make_opsetid("own", 1)]
    return h.make_model(h.make_graph(nodes, "g", [x], [y]), opset_imports=imports, ir_version=9, **more)


def test_what_a_function_does_goes_with_its_call() -> None:
    h = onnx.helper
    body = [h.make_node("Exp", ["a"], ["b"], name="inner"), h.make_node("Softmax", ["b"], ["c"])]
    function = h.make_function("own", "F", ["a"], ["c"], body, [h.make_opsetid("", 20)])
    calls = [h.make_node("F", ["x"], ["t"], name="first", domain="own"),
             h.make_node("F", ["t"], ["y"], name="second", domain="own")]
    model = model_of(calls, functions=[function])
    assert placed(model, first="b", second="a") == [1, 0]
    assert placed(model, first="a", second="b") == [0, 1]
    assert placed(model, **{"*/inner": "b", "*": "a"}) == [1, 0, 1, 0]


def test_a_name_that_is_nowhere_is_an_error_and_one_that_was_folded_is_not() -> None:
    h = onnx.helper
    nodes = [h.make_node("Constant", [], ["two"], name="number", value_float=2.0),
             h.make_node("Mul", ["x", "two"], ["y"], name="product")]
    with pytest.raises(motet.OptionError, match="place numbers=b: no operation has such a name; there are: product"):
        placed(model_of(nodes), numbers="b")
    assert placed(model_of(nodes), number="b") == [0]


@pytest.mark.parametrize(
    "kind", ["INT4", "UINT4", "INT2", "FLOAT8E4M3FN", "FLOAT8E5M2", "FLOAT4E2M1", "UINT8", "BFLOAT16", "BOOL"],
)
def test_tensors_of_any_type_go_to_a_node(kind: str) -> None:
    h, element = onnx.helper, onnx.TensorProto.DataType.Value(kind)
    x = h.make_tensor_value_info("x", element, [3, 7])
    y = h.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [3, 7])
    graph = h.make_graph([h.make_node("Cast", ["x"], ["y"], to=onnx.TensorProto.FLOAT, name="cast")], "g", [x], [y])
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 25)], ir_version=13)
    artifact = motet.compile(model, devices={"a": "host", "b": "null"}, place={"cast": "b"}, cache=False)
    given = np.arange(21).reshape(3, 7).astype(h.tensor_dtype_to_np_dtype(element))
    with motet.load(artifact) as session:
        np.testing.assert_array_equal(np.asarray(session(given)), given.astype(np.float32))
