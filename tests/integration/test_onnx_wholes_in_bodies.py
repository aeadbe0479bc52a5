"""Scans, sorts and scatters in the bodies of loops and branches, of which a call decides, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import motet

onnx: Any = pytest.importorskip("onnx", reason="needs ONNX: pip install 'motet[onnx]'")

node, info = onnx.helper.make_node, onnx.helper.make_tensor_value_info
Nodes = Sequence[Any]
ROWS, COLUMNS = 5, 7
HELD = np.random.default_rng(11)
CONSTANTS = {
    "seven": np.array([COLUMNS]), "five": np.array([ROWS]), "zero": np.array(0), "one": np.array(1),
    "places": np.array([[3, 0], [4, 6], [0, 0], [3, 0]]), "updates": np.array([1.5, -2, 0.25, 9], np.float32),
    "rows": HELD.integers(0, ROWS, (3, COLUMNS)), "given": HELD.standard_normal((3, COLUMNS)).astype(np.float32),
}  # fmt: skip


def scan(axis: str, **attributes: int) -> Nodes:
    return [node("CumSum", ["x", axis], ["y"], "sum", **attributes)]


# Each makes y of x, a matrix of f32.
BODIES: dict[str, Nodes] = {
    "sums of rows": scan("one"), "sums of columns": scan("zero"), "sums before": scan("zero", exclusive=1),
    "sums after": scan("one", reverse=1), "sums after others": scan("one", reverse=1, exclusive=1),
    "sorted rows": [node("TopK", ["x", "seven"], ["sorted", "order"], "top", axis=1),
                    node("Cast", ["order"], ["f"], to=1), node("Sub", ["sorted", "f"], ["y"])],
    "sorted columns": [node("TopK", ["x", "five"], ["y", "order"], "top", axis=0, largest=0)],
    "written elements": [node("ScatterND", ["x", "places", "updates"], ["y"], "write", reduction="add")],
    "written rows": [node("ScatterElements", ["x", "rows", "given"], ["y"], "write", axis=0, reduction="max")],
}  # fmt: skip


def loop(body: Nodes) -> bytes:
    """A model that calculates `body` as often as a call says, and collects the results."""
    nodes = [*body, node("Identity", ["go"], ["on"]), node("Identity", ["y"], ["each"])]
    matrix = [ROWS, COLUMNS]
    inner = onnx.helper.make_graph(
        nodes, "body", [info("turn", 7, []), info("go", 9, []), info("x", 1, matrix)],
        [info("on", 9, []), info("y", 1, matrix), info("each", 1, matrix)],
    )  # fmt: skip
    return model([node("Loop", ["turns", "", "begin"], ["last", "all"], "loop", body=inner)],
                 [info("turns", 7, []), info("begin", 1, matrix)],
                 [info("last", 1, matrix), info("all", 1, ["turns", *matrix])])  # fmt: skip


def branch(body: Nodes) -> bytes:
    """A model that calculates `body` or takes what it is given, as a call says."""
    matrix = [ROWS, COLUMNS]
    then = onnx.helper.make_graph(body, "then", [], [info("y", 1, matrix)])
    otherwise = onnx.helper.make_graph([node("Neg", ["x"], ["z"])], "else", [], [info("z", 1, matrix)])
    return model([node("If", ["condition"], ["result"], "choice", then_branch=then, else_branch=otherwise)],
                 [info("condition", 9, []), info("x", 1, matrix)], [info("result", 1, matrix)])  # fmt: skip


def model(nodes: Nodes, inputs: Nodes, outputs: Nodes) -> bytes:
    held = [onnx.numpy_helper.from_array(value, name) for name, value in CONSTANTS.items()]
    graph = onnx.helper.make_graph(nodes, "g", inputs, outputs, held)
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    return made.SerializeToString()


def agree(source: bytes, calls: list[dict[str, np.ndarray]]) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs ONNX Runtime: pip install 'motet[onnxruntime]'")
    runtime = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    with motet.load(motet.compile(source, cache=False)) as session:
        for given in calls:
            found = session.main(*given.values())
            expected = runtime.run(None, given)
            for one, other in zip(found if isinstance(found, tuple) else [found], expected, strict=True):
                assert np.asarray(one).shape == other.shape
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", BODIES)
def test_loops(name: str) -> None:
    x = HELD.integers(-4, 5, (ROWS, COLUMNS)).astype(np.float32)
    agree(loop(BODIES[name]), [{"turns": np.array(turns), "begin": x} for turns in (3, 1, 0)])


@pytest.mark.parametrize("name", BODIES)
def test_branches(name: str) -> None:
    x = HELD.standard_normal((ROWS, COLUMNS)).astype(np.float32)
    agree(branch(BODIES[name]), [{"condition": np.array(condition), "x": x} for condition in (True, False)])


def test_nan_is_the_largest_and_equals_keep_their_order() -> None:
    body = [node("TopK", ["x", "five"], ["sorted", "order"], "top", axis=0, largest=0),
            node("Cast", ["order"], ["y"], to=1)]  # fmt: skip
    x = np.array([[np.nan, 1, 1], [2, np.nan, 1], [1, 1, np.nan], [1, np.nan, 0], [2, 0, 1]], np.float32)
    x = np.concatenate([x, x[:, :1], x[:, 1:2], x[:, 2:], x[:, :1]], 1)
    with motet.load(motet.compile(branch(body), cache=False)) as session:
        found = session(np.array(True), x)
    np.testing.assert_array_equal(found, np.argsort(x, axis=0, kind="stable"))


def test_writes_outside_end_the_call_with_the_node() -> None:
    body = [node("ScatterND", ["x", "outside", "updates"], ["y"], "write")]
    source = onnx.ModelProto.FromString(branch(body))
    source.graph.input.append(info("outside", 7, [4, 2]))
    with motet.load(motet.compile(source.SerializeToString(), cache=False)) as session:
        x, places = np.zeros((ROWS, COLUMNS), np.float32), CONSTANTS["places"].copy()
        session(np.array(True), x, places)
        places[1, 0] = ROWS
        with pytest.raises(motet.CallError, match='ScatterND "write"'):
            session(np.array(True), x, places)


def greatest_so_far(dtype: type) -> bytes:
    """A Scan over four rows of three unsigned integers."""
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inner = onnx.helper.make_graph(
        [node("Max", ["s", "e"], ["t"]), node("Identity", ["t"], ["u"])], "body",
        [info("s", kind, [3]), info("e", kind, [3])], [info("t", kind, [3]), info("u", kind, [3])],
    )  # fmt: skip
    return model([node("Scan", ["begin", "x"], ["y", "z"], "scan", body=inner, num_scan_inputs=1)],
                 [info("begin", kind, [3]), info("x", kind, [4, 3])],
                 [info("y", kind, [3]), info("z", kind, [4, 3])])  # fmt: skip


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_unsigned_integers_are_carried(dtype: type) -> None:
    x = HELD.integers(0, np.iinfo(dtype).max, (4, 3), dtype, endpoint=True)
    begin = np.array([0, np.iinfo(dtype).max, 5], dtype)
    expected = np.maximum.accumulate(np.vstack([begin, x]))[1:]
    with motet.load(motet.compile(greatest_so_far(dtype), cache=False)) as session:
        last, every = session(begin, x)
    np.testing.assert_array_equal(last, expected[-1], strict=True)
    np.testing.assert_array_equal(every, expected, strict=True)


def mixed(form: str, dtype: type) -> bytes:
    """A loop that mixes unsigned integers into a state, and collects it as it is and converted."""
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    mix = [node("BitwiseXor", ["s", "e"], ["t"]), node("Identity", ["t"], ["u"]), node("Cast", ["t"], ["f"], to=11),
           node("Cast", ["t"], ["h"], to=5)]  # fmt: skip
    state, more = info("s", kind, [3]), [info("u", kind, [3]), info("f", 11, [3]), info("h", 5, [3])]
    results = [info("y", kind, [3]), *(info(f"all {n}", each, None) for n, each in enumerate((kind, 11, 5)))]
    names = [value.name for value in results]
    begin, x = info("begin", kind, [3]), info("x", kind, ["n", 3])
    if form.startswith("scan"):
        body = onnx.helper.make_graph(mix, "body", [state, info("e", kind, [3])], [info("t", kind, [3]), *more])
        ways = {"scan_input_directions": [1], "scan_output_directions": [1, 0, 1]} if "back" in form else {}
        made = node("Scan", ["begin", "x"], names, "loop", body=body, num_scan_inputs=1, **ways)
        return model([made], [begin, x], results)
    mix = [node("Gather", ["x", "turn"], ["e"]), *mix, node("Identity", ["go"], ["on"])]
    if "until" in form:
        mix[-1] = node("Less", ["turn", "one"], ["on"])
    if "state alone" in form:
        more, results, names = [], results[:1], names[:1]
    body = onnx.helper.make_graph(mix, "body", [info("turn", 7, []), info("go", 9, []), state],
                                  [info("on", 9, []), info("t", kind, [3]), *more])  # fmt: skip
    nodes = [node("Shape", ["x"], ["turns"], end=1), node("Squeeze", ["turns"], ["times"]),
             node("Loop", ["times", "", "begin"], names, "loop", body=body)]  # fmt: skip
    return model(nodes, [begin, x], results)


@pytest.mark.parametrize("dtype", [np.uint16, np.uint64])
@pytest.mark.parametrize("form", ["loop", "loop until", "loop of a state alone", "scan", "scan back"])
def test_unsigned_integers_of_all_bits_are_carried_and_collected(form: str, dtype: type) -> None:
    most = np.iinfo(dtype).max
    x = np.array([[0, most, most // 2], [most // 2 + 1, 1, most], [most, most - 1, 5]], dtype)
    agree(mixed(form, dtype), [{"begin": np.array([most, 0, 7], dtype), "x": x[:rows]} for rows in (3, 1)])
