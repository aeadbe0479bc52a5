"""Arguments of wrong kinds, in every place of the public calls: each is refused in one line, or means something."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import motet
import motet.onnxruntime as ort
from motet import builder
from motet.artifact import Artifact
from motet.errors import MotetError

DOUBLE = """func.func @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %out = tensor.empty() : tensor<2x3xf32>
  %y = linalg.add ins(%x, %x : tensor<2x3xf32>, tensor<2x3xf32>) outs(%out : tensor<2x3xf32>) -> tensor<2x3xf32>
  return %y : tensor<2x3xf32>
}
"""
X = np.ones((2, 3), np.float32)
WRONG: list[Any] = [None, 5, -1, 1.5, 1j, True, "none", "two\nlines", "a\0b", b"none", [], [5], ["none"], [[1], [1, 2]],
                    {}, {5: 5}, {"none": 5}, {"none": [5]}, (), ((),), object(), int, np.ones((3, 3)),
                    np.ones((3, 3), object)]


@dataclasses.dataclass
class Given:
    """What the calls are made on."""

    artifact: motet.Artifact
    session: motet.Session
    ort: ort.InferenceSession
    binding: ort.IOBinding


@pytest.fixture(scope="module")
def given() -> Given:
    artifact = motet.compile(DOUBLE)
    session = ort.InferenceSession(bytes(artifact.data))
    return Given(artifact, motet.load(artifact), session, session.io_binding())


def with_threads(value: Any) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = value
    return options


Call = Callable[[Given, Any], Any]
COMPILE: dict[str, Call] = {
    "source": lambda _, value: motet.compile(value),
    "inputs": lambda _, value: motet.compile(DOUBLE, inputs=value),
    "dynamic_shapes": lambda _, value: motet.compile(DOUBLE, dynamic_shapes=value),
    "devices": lambda _, value: motet.compile(DOUBLE, devices=value),
    "options": lambda _, value: motet.compile(DOUBLE, options=value),
    "an option": lambda _, value: motet.compile(DOUBLE, options={"jobs": value}),
    "Options": lambda _, value: motet.compile(DOUBLE, options=motet.Options(memory_limit=value)),
    "cache": lambda _, value: motet.compile(DOUBLE, cache=value),
    "format": lambda _, value: motet.compile(DOUBLE, format=value),
    "placement": lambda _, value: motet.compile(DOUBLE, placement=value),
    "place": lambda _, value: motet.compile(DOUBLE, place=value),
    "mesh": lambda _, value: motet.compile(DOUBLE, mesh=value),
    "shard": lambda _, value: motet.compile(DOUBLE, shard=value),
    "progress": lambda _, value: motet.compile(DOUBLE, progress=value),
}  # fmt: skip
LOAD: dict[str, Call] = {
    "source": lambda _, value: motet.load(value),
    "devices": lambda g, value: motet.load(g.artifact, devices=value),
    "threads": lambda g, value: motet.load(g.artifact, threads=value),
    "in_flight": lambda g, value: motet.load(g.artifact, in_flight=value),
    "copy": lambda g, value: motet.load(g.artifact, copy=value),
}
ARTIFACT: dict[str, Call] = {
    "save": lambda g, value: g.artifact.save(value),
    "open": lambda _, value: Artifact.open(value),
    "from_bytes": lambda _, value: Artifact.from_bytes(value),
    "member": lambda g, value: g.artifact.member(value),
    "parameter": lambda g, value: g.artifact.parameter(value),
}
SESSION: dict[str, Call] = {
    "call": lambda g, value: g.session(value),
    "out": lambda g, value: g.session(X, out=value),
    "stream": lambda g, value: g.session(X, stream=value),
    "function": lambda g, value: g.session[value],
    "run": lambda g, value: g.session.run(value, {"x": X}),
    "feeds": lambda g, value: g.session.run(None, value),
    "bind": lambda g, value: g.session.bind(value)(),
    "submit": lambda g, value: g.session.submit(value).result(),
    "submit out": lambda g, value: g.session.submit(X, out=value).result(),
    "enqueue": lambda g, value: g.session.enqueue(value),
    "profile": lambda g, value: g.session.profile(value),
    "put": lambda g, value: g.session.put(value),
    "put on": lambda g, value: g.session.put(X, value),
    "wrap": lambda g, value: g.session.wrap(value),
    "empty": lambda g, value: g.session.empty(value, "f32"),
    "dtype": lambda g, value: g.session.empty((2,), value),
    "empty on": lambda g, value: g.session.empty((2,), "f32", value),
}
ORT: dict[str, Call] = {
    "source": lambda _, value: ort.InferenceSession(value),
    "options": lambda g, value: ort.InferenceSession(bytes(g.artifact.data), value),
    "threads": lambda g, value: ort.InferenceSession(bytes(g.artifact.data), with_threads(value)),
    "providers": lambda g, value: ort.InferenceSession(bytes(g.artifact.data), providers=value),
    "provider": lambda g, value: ort.InferenceSession(bytes(g.artifact.data), providers=[value]),
    "provider_options": lambda g, value: ort.InferenceSession(bytes(g.artifact.data), provider_options=value),
    "names": lambda g, value: g.ort.run(value, {"x": X}),
    "feeds": lambda g, value: g.ort.run(None, value),
    "a feed": lambda g, value: g.ort.run(None, {"arg0": value}),
    "bind_cpu_input": lambda g, value: g.binding.bind_cpu_input(value, X),
    "bind_output": lambda g, value: g.binding.bind_output("result0", value),
    "bind_ortvalue_input": lambda g, value: g.binding.bind_ortvalue_input("arg0", value),
    "bind_ortvalue_output": lambda g, value: g.binding.bind_ortvalue_output("result0", value),
    "iobinding": lambda g, value: g.ort.run_with_iobinding(value),
    "from_numpy": lambda _, value: ort.OrtValue.ortvalue_from_numpy(value),
    "on": lambda _, value: ort.OrtValue.ortvalue_from_numpy(X, value),
    "shape": lambda _, value: ort.OrtValue.ortvalue_from_shape_and_type(value, np.float32),
    "dtype": lambda _, value: ort.OrtValue.ortvalue_from_shape_and_type([2], value),
}
LLM: dict[str, Call] = {
    "path": lambda _, value: motet.llm.load(value),
    "context": lambda _, value: motet.llm.load("none", context=value),
    "folder": lambda _, value: motet.huggingface.from_pretrained(value),
}
GROUPS = {"compile": COMPILE, "load": LOAD, "artifact": ARTIFACT, "session": SESSION, "onnxruntime": ORT, "llm": LLM}
PLACES = {f"{group} {name}": call for group, calls in GROUPS.items() for name, call in calls.items()}


def check_all(call: Callable[[Any], Any]) -> None:
    """Each wrong value is accepted, or refused in one line that is Motet's own."""
    for value in WRONG:
        try:
            call(value)
        except MotetError as error:
            text = str(error)
            assert text.isprintable(), (value, text)
            assert len(text) > 20 and "the compiler died" not in text, (value, text)


@pytest.fixture
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For `save`, to which a text is the name of a file."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.usefixtures("in_empty_folder")
def test_wrong_kinds_are_refused_in_one_line(place: str, given: Given) -> None:
    check_all(lambda value: PLACES[place](given, value))


def test_extents_of_graphs() -> None:
    check_all(lambda value: builder.Graph("main").input("x", value))
    check_all(lambda value: builder.Graph("main").input("x", (value,)))
    check_all(lambda value: builder.Graph("main").input("x", (2,), value))


def test_what_has_a_meaning_is_still_taken(given: Given, tmp_path: Path) -> None:
    given.artifact.save(str(tmp_path / "a.motet"))
    motet.load(tmp_path / "a.motet", threads=np.int64(1), in_flight=np.array(2)).close()
    assert given.session.empty([np.int32(2), 3], "bf16").shape == (2, 3)
    assert given.session.empty(7, np.float64).numpy().shape == (7,)
    assert given.session.put(np.arange(3).astype(">i4")).numpy().tolist() == [0, 1, 2]
    assert ort.OrtValue.ortvalue_from_numpy(memoryview(X)).numpy().ctypes.data == X.ctypes.data  # type: ignore[arg-type]
    assert ort.InferenceSession(bytes(given.artifact.data), providers=[("CPUExecutionProvider", {})]).get_providers()
    assert builder.Graph("main").input("x", (6 / 2, np.int64(2), "n")).shape == (3, 2, "n")  # type: ignore[arg-type]
