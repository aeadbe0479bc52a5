"""`motet.onnxruntime` beside onnxruntime itself: what a model says of itself, calls with a callback, profiles."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import motet
import motet.onnxruntime as ours
from motet.errors import CallError, OptionError

theirs = pytest.importorskip("onnxruntime")
X = np.arange(6, dtype=np.float32).reshape(2, 3) - 3


def model(**about: Any) -> onnx.ModelProto:
    """y = relu(x · x), z = -x."""
    x, y, z = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xyz")
    nodes = [helper.make_node("Mul", ["x", "x"], ["t"], name="square"), helper.make_node("Relu", ["t"], ["y"]),
             helper.make_node("Neg", ["x"], ["z"], name="negative")]
    graph = helper.make_graph(nodes, "the graph", [x], [y, z], doc_string=about.pop("graph_description", None))
    properties = about.pop("properties", {})
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9, **about)
    helper.set_model_props(made, properties)
    return made


ABOUT = {
    "all": {"producer_name": "müller", "model_version": 7, "doc_string": "one\ntwo", "domain": "d.e",
            "graph_description": "of the graph", "properties": {"a": "b", "c": ""}},
    "a negative version": {"model_version": -3}, "nothing": {},
}  # fmt: skip


@pytest.mark.parametrize("about", ABOUT)
def test_metadata_are_those_of_onnxruntime(about: str, tmp_path: Path) -> None:
    made = model(**ABOUT[about])
    onnx.save(made, path := tmp_path / "model.onnx")
    expected = theirs.InferenceSession(path, providers=["CPUExecutionProvider"]).get_modelmeta()
    names = [name for name in dir(expected) if not name.startswith("_")]
    for source in (path, str(path), made.SerializeToString()):
        found = ours.InferenceSession(source).get_modelmeta()
        assert {name: getattr(found, name) for name in names} == {name: getattr(expected, name) for name in names}


def test_an_artifact_has_no_metadata() -> None:
    found = ours.InferenceSession(bytes(motet.compile(model(**ABOUT["all"])).data)).get_modelmeta()
    assert found.producer_name == found.description == "" and found.custom_metadata_map == {}


def asynchronous(session: Any, names: Any, feeds: Any) -> list[Any]:
    """The arguments of the callback."""
    ended, given = threading.Event(), list[Any]()

    def callback(*arguments: Any) -> None:
        given.extend(arguments)
        ended.set()

    assert session.run_async(names, feeds, callback, "the user's") is None
    assert ended.wait(30)
    return given


@pytest.fixture(scope="module")
def sessions() -> list[Any]:
    data = model().SerializeToString()
    return [ours.InferenceSession(data), theirs.InferenceSession(data, providers=["CPUExecutionProvider"])]


@pytest.mark.parametrize("names", [None, [], ["z"], ["z", "y"]], ids=str)
def test_callbacks_get_what_those_of_onnxruntime_get(sessions: list[Any], names: Any) -> None:
    (found, *others), (expected, *same) = (asynchronous(session, names, {"x": X}) for session in sessions)
    assert others == same == ["the user's", ""] and type(found) is type(expected) is list
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_errors_of_calls_go_to_the_callback(sessions: list[Any]) -> None:
    for session in sessions:
        results, user, error = asynchronous(session, None, {"x": X[:1]})
        assert results == [] and user == "the user's" and "x" in error


def test_wrong_names_and_callbacks_are_refused_at_once(sessions: list[Any]) -> None:
    with pytest.raises(CallError, match="no input 'w'"):
        sessions[0].run_async(None, {"w": X}, print, None)
    with pytest.raises(OptionError, match="callback: 5 given"):
        sessions[0].run_async(None, {"x": X}, 5, None)


def types(event: dict[str, Any]) -> dict[str, type]:
    return {key: type(value) for key, value in event.items()}


def run(session: Any) -> np.ndarray:
    return session.run(["z"], {"x": X})[0]


def run_bound(session: Any, memory: np.ndarray | None = None) -> np.ndarray:
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    if memory is None:
        binding.bind_output("z")
    else:
        binding.bind_output("z", "cpu", 0, np.float32, memory.shape, memory.ctypes.data)
    session.run_with_iobinding(binding)
    return binding.copy_outputs_to_cpu()[0]


def run_into_memory(session: Any) -> np.ndarray:
    memory = np.full_like(X, 7)
    run_bound(session, memory)
    return memory


@pytest.mark.parametrize("call", [run, run_bound, run_into_memory])
def test_profiles_have_the_form_of_onnxruntimes(
    call: Callable[[Any], np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written: list[list[dict[str, Any]]] = []
    for ort in (ours, theirs):
        options: Any = ort.SessionOptions()
        options.enable_profiling, options.profile_file_prefix = True, "profile"
        session = ort.InferenceSession(model().SerializeToString(), options, providers=["CPUExecutionProvider"])
        assert session.get_profiling_start_time_ns() > 0
        for _ in range(2):
            np.testing.assert_array_equal(call(session), -X)
        path = session.end_profiling()
        assert path.startswith("profile_") and path.endswith(".json")
        written.append(json.loads(Path(path).read_text()))
        assert session.end_profiling() == ""
        session.run(None, {"x": X})
    for category, name in (("Session", "model_run"), ("Node", "kernel_time")):
        one, other = ([each for each in events if each["cat"] == category and each["name"].endswith(name)]
                      for events in written)
        assert one and other
        assert types(one[0]) == types(other[0])
        for each in one:
            assert each["ph"] == "X" and each["dur"] >= 0 and each["ts"] >= 0
    assert [sum(each["name"] == "model_run" for each in events) for events in written] == [2, 2]
    kernels = [each for each in written[0] if each["cat"] == "Node"]
    assert {"op_name", "provider", "node_index"} <= {*kernels[0]["args"]}
    assert any("square" in each["name"] or "negative" in each["name"] for each in kernels)
    assert ours.InferenceSession(model().SerializeToString()).end_profiling() == ""
    options = theirs.SessionOptions()  # onnxruntime's own options are taken, too
    options.enable_profiling = True
    path = ours.InferenceSession(model().SerializeToString(), options).end_profiling()
    assert path.startswith("onnxruntime_profile_") and json.loads(Path(path).read_text()) == []
