"""Models with bodies, of If and Scan: what is rewritten in a graph is rewritten in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import motet
from motet.errors import CompileError

onnx = pytest.importorskip("onnx", reason="needs onnx: pip install 'motet[onnx]'")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

RNG = np.random.default_rng(5)


def info(name: str, shape: Sequence[int | None], kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def body(name: str, nodes: list[Any], inputs: list[Any], outputs: list[Any], **constants: np.ndarray) -> Any:
    initializers = [numpy_helper.from_array(array, key) for key, array in constants.items()]
    return helper.make_graph(nodes, name, inputs, outputs, initializers)


def model(
    nodes: list[Any], inputs: list[Any], outputs: list[Any], functions: Sequence[Any] = (), **constants: Any
) -> Any:
    graph = body("main", nodes, inputs, outputs, **constants)
    sets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=sets, functions=list(functions), ir_version=10)


def choice(then: Any, other: Any, result: str = "y", name: str = "choice") -> Any:
    return helper.make_node("If", ["c"], [result], name, then_branch=then, else_branch=other)


def check(made: Any, *inputs: np.ndarray, same: Any = None) -> None:
    """Against ONNX's reference, of `same` where that is a model that it knows better."""
    onnx.checker.check_model(made, full_check=True)
    names = [value.name for value in made.graph.input]
    session = motet.load(motet.compile(made.SerializeToString(), cache=False))
    kept = [np.array(array) for array in inputs]
    for condition in (True, False) if names[0] == "c" else (None,):
        given = kept if condition is None else [np.array(condition), *kept]
        wanted: Any = ReferenceEvaluator(same or made).run(None, dict(zip(names, given, strict=True)))
        found = session(*given)
        found = found if isinstance(found, (tuple, list)) else [found]
        for mine, want in zip(found, wanted, strict=True):
            np.testing.assert_allclose(mine, want, rtol=2e-5, atol=1e-6)


X = info("x", [3, 4])
CONDITION = info("c", [], TensorProto.BOOL)


def array(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def test_branches_are_rewritten_and_have_constants_of_their_own() -> None:
    then = body("then", [
        helper.make_node("Constant", [], ["b"], value=numpy_helper.from_array(array(4))),
        helper.make_node("Gemm", ["x", "w", "b"], ["p"], alpha=0.5, beta=2.0),
        helper.make_node("Gelu", ["p"], ["r"], "named", approximate="tanh"),
    ], [], [info("r", [3, 4])], w=array(4, 4))  # fmt: skip
    other = body("else", [
        helper.make_node("Gemm", ["x", "w"], ["p"], alpha=-3.0), helper.make_node("Gelu", ["p"], ["r"], "named"),
    ], [], [info("r", [3, 4])], w=array(4, 4))  # fmt: skip
    x = array(3, 4)
    check(model([choice(then, other)], [CONDITION, X], [info("y", [3, 4])]), x)


def test_bodies_in_bodies_read_what_is_around_them() -> None:
    inner = choice(
        body("a", [helper.make_node("Gemm", ["h", "w"], ["r"], alpha=0.25)], [], [info("r", [3, 4])]),
        body("b", [helper.make_node("Sign", ["h"], ["r"])], [], [info("r", [3, 4])], w2=array(1)), "s", "inner",
    )  # fmt: skip
    then = body("then", [helper.make_node("Tanh", ["x"], ["h"]), inner], [], [info("s", [3, 4])], w=array(4, 4))
    other = body("else", [helper.make_node("Sign", ["x"], ["s"])], [], [info("s", [3, 4])])
    x = array(3, 4)
    x[0, 0] = np.nan
    check(model([choice(then, other)], [CONDITION, X], [info("y", [3, 4])]), x)


def test_results_that_are_constants_or_from_outside() -> None:
    then = body("then", [helper.make_node("Identity", ["x"], ["r"])], [], [info("r", [3, 4])])
    other = body("else", [], [], [info("k", [3, 4])], k=array(3, 4))
    check(model([choice(then, other)], [CONDITION, X], [info("y", [3, 4])]), array(3, 4))


@pytest.mark.parametrize("kind", [np.int8, np.int64, np.float16, np.float32, bool])
def test_branches_that_only_choose(kind: type) -> None:
    x = array(2, 3).astype(kind)
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    then = body("then", [helper.make_node("Identity", ["x"], ["r"])], [], [info("r", [2, 3], element)])
    other = body("else", [helper.make_node("Identity", ["z"], ["k"])], [], [info("k", [2, 3], element)])
    given = [CONDITION, info("x", [2, 3], element), info("z", [2, 3], element)]
    check(model([choice(then, other)], given, [info("y", [2, 3], element)]), x, x[::-1].copy())


def test_a_scan_over_rows() -> None:
    step = body("step", [
        helper.make_node("Gemm", ["s", "w", "r"], ["p"], alpha=0.5), helper.make_node("Sign", ["p"], ["q"]),
        helper.make_node("Add", ["p", "q"], ["t"]), helper.make_node("Identity", ["t"], ["o"]),
    ], [info("s", [2, 4]), info("r", [4])], [info("t", [2, 4]), info("o", [2, 4])])  # fmt: skip
    node = helper.make_node("Scan", ["s0", "x"], ["last", "all"], "scan", body=step, num_scan_inputs=1)
    outputs = [info("last", [2, 4]), info("all", [5, 2, 4])]
    made = model([node], [info("s0", [2, 4]), info("x", [5, 4])], outputs, w=array(4, 4) / 4)
    check(made, array(2, 4), array(5, 4))


@pytest.mark.parametrize("turns, condition", [(3, True), (1, False), (7, False)])
def test_a_loop_of_known_turns(turns: int, condition: bool) -> None:
    turn = body("turn", [
        helper.make_node("Gemm", ["v", "w"], ["p"], alpha=0.5), helper.make_node("Cast", ["i"], ["f"], to=1),
        helper.make_node("Add", ["p", "f"], ["n"]), helper.make_node("Identity", ["go"], ["on"]),
        helper.make_node("ReduceSum", ["n", "axes"], ["o"], keepdims=0),
    ], [info("i", [], TensorProto.INT64), info("go", [], TensorProto.BOOL), info("v", [3, 4])],
        [info("on", [], TensorProto.BOOL), info("n", [3, 4]), info("o", [3])], axes=np.array([1]))  # fmt: skip
    def whole(condition: str) -> Any:
        node = helper.make_node("Loop", ["m", condition, "x"], ["y", "all"], "loop", body=turn)
        return model([node], [X], [info("y", [3, 4]), info("all", [turns, 3])], w=weight, m=np.array(turns),
                     yes=np.array(True))  # fmt: skip

    weight = array(4, 4) / 4
    check(whole("yes" if condition else ""), array(3, 4), same=whole("yes"))


def test_functions_of_the_model_in_bodies_and_bodies_in_functions() -> None:
    scaled = helper.make_function(
        "own", "Scaled", ["v", "m"], ["u"], [helper.make_node("Gemm", ["v", "m"], ["u"], alpha=0.125)],
        [helper.make_opsetid("", 20)],
    )  # fmt: skip
    choosing = helper.make_function("own", "Choosing", ["c", "v", "m"], ["u"], [
        choice(
            body("a", [helper.make_node("Scaled", ["v", "m"], ["r"], domain="own")], [], [info("r", [3, 4])]),
            body("b", [helper.make_node("Gelu", ["v"], ["r"])], [], [info("r", [3, 4])]), "u",
        ),
    ], [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)])  # fmt: skip
    nodes = [helper.make_node("Choosing", ["c", "x", "w"], ["y"], domain="own")]
    check(model(nodes, [CONDITION, X], [info("y", [3, 4])], [scaled, choosing], w=array(4, 4)), array(3, 4))


def test_what_is_refused_is_named_in_a_body() -> None:
    then = body("then", [helper.make_node("Unique", ["x"], ["r"], "inside")], [], [info("r", [None])])
    other = body("else", [helper.make_node("Flatten", ["x"], ["r"])], [], [info("r", [None, None])])
    made = model([choice(then, other)], [CONDITION, X], [info("y", None)])
    with pytest.raises(CompileError, match="'inside': operator Unique is not supported"):
        motet.compile(made.SerializeToString(), cache=False)
