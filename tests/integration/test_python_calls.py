"""Calls from Python: inputs by name, memory of other kinds, options, progress, notebooks, and mistakes."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import logging
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import motet
from motet.errors import CallError, DeviceError, OptionError
from motet.options import Options, option_help
from motet.runtime.pointer import Pointer

SUBTRACT = """
func.func @main(%x: tensor<2x3xf32>, %w: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %e = tensor.empty() : tensor<2x3xf32>
  %y = linalg.sub ins(%x, %w : tensor<2x3xf32>, tensor<2x3xf32>) outs(%e : tensor<2x3xf32>) -> tensor<2x3xf32>
  return %y : tensor<2x3xf32>
}
"""
X = np.arange(6, dtype=np.float32).reshape(2, 3)
W = np.full((2, 3), 0.5, np.float32)
HOST = "host"


@pytest.fixture(scope="module")
def session() -> motet.Session:
    return motet.load(motet.compile(SUBTRACT))


CALLS: dict[str, Callable[[motet.Session], Any]] = {
    "in order": lambda s: s(X, W),
    "a dict": lambda s: s({"arg1": W, "arg0": X}),
    "a dict of a function": lambda s: s.main({"arg1": W, "arg0": X}),
    "keywords": lambda s: s(arg1=W, arg0=X),
    "both": lambda s: s(X, arg1=W),
    "bound": lambda s: s.bind(arg1=W, arg0=X)(),
    "submitted": lambda s: s.submit({"arg1": W, "arg0": X}).result(),
    "awaited": lambda s: asyncio.run(s.acall(arg1=W, arg0=X)),
    "run": lambda s: s.run(None, {"arg1": W, "arg0": X})[0],
}


@pytest.mark.parametrize("way", CALLS)
def test_inputs_are_given_in_order_or_by_name(session: motet.Session, way: str) -> None:
    for _ in range(4):  # later calls take the native callable
        np.testing.assert_array_equal(CALLS[way](session), X - W)


def test_a_function_of_one_input_takes_a_dict_too() -> None:
    text = SUBTRACT.replace(", %w: tensor<2x3xf32>", "").replace("%w", "%x")
    with motet.load(motet.compile(text)) as session:
        for given in (X, {"arg0": X}, X, {"arg0": X}, X, {"arg0": X}):
            np.testing.assert_array_equal(session(given), X - X)


class Interface:
    """An object with an array interface alone."""

    def __init__(self, array: np.ndarray, **changed: Any) -> None:
        self.array = array
        self.__array_interface__ = {**array.__array_interface__, **changed}


def test_objects_with_an_array_interface_are_read_in_place(session: motet.Session) -> None:
    np.testing.assert_array_equal(session(Interface(X), Interface(W)), X - W)
    wide = np.arange(12, dtype=np.float32).reshape(2, 6)
    np.testing.assert_array_equal(session(Interface(wide[:, ::2]), W), wide[:, ::2] - W)
    with pytest.raises(CallError, match="Interface given, with an invalid __array_interface__"):
        session(Interface(X, shape="nonsense"), W)


def pointer(array: np.ndarray, dtype: str = "f32") -> Pointer:
    return Pointer(array.ctypes.data, array.shape, dtype, HOST, array)


def test_memory_of_the_host_is_given_by_address(session: motet.Session) -> None:
    out = np.zeros((2, 3), np.float32)
    for _ in range(4):
        out[:] = 0
        session(pointer(X), pointer(W), out=pointer(out))
        np.testing.assert_array_equal(out, X - W)
    values = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(pointer(values, "bf16").array("x"), values)
    np.testing.assert_array_equal(Pointer(0, (0, 3), "f32", HOST).array("x"), np.empty((0, 3), np.float32))


WRONG: dict[str, tuple[Callable[[motet.Session], Any], str]] = {
    "a name": (lambda s: s(X, arg2=W), r"main: no input 'arg2'; did you mean 'arg1'\? there are: arg0, arg1"),
    "twice": (lambda s: s(X, W, arg0=X), "input 'arg0' is given twice"),
    "missing": (lambda s: s({"arg0": X}), "inputs not given: arg1"),
    "a list": (lambda s: s([X, W]), r"give them one by one, f\(\*arrays\), or as a dict by name"),
    "null": (lambda s: s(Pointer(0, (2, 3), "f32", HOST), W), "a null pointer given for 24 bytes"),
    "unaligned": (lambda s: s(Pointer(X.ctypes.data + 1, (2, 3), "f32", HOST), W), "is not a multiple of 4"),
    "dtype": (lambda s: s(Pointer(X.ctypes.data, (2, 3), "f33", HOST), W), "a pointer to 'f33' given"),
    "negative": (lambda s: s(Pointer(X.ctypes.data, (2, -3), "f32", HOST), W), "may be negative"),
    "shape": (lambda s: s(Pointer(X.ctypes.data, (1, 3), "f32", HOST), W), "shape 1x3 given, 2x3 expected"),
    "fractions": (lambda s: s(Pointer(X.ctypes.data, (2.0, 3), "f32", HOST), W), "and a tuple of integers"),  # type: ignore[arg-type]
    "one extent": (lambda s: s(Pointer(X.ctypes.data, 6, "f32", HOST), W), "and a tuple of integers"),  # type: ignore[arg-type]
    "too large": (lambda s: s(Pointer(64, (1 << 62, 3), "f32", HOST), W), "which no process has"),
    "too far": (lambda s: s(Pointer(1 << 70, (2, 3), "f32", HOST), W), "which no process has"),
    "objects": (lambda s: s(Pointer(X.ctypes.data, (2, 3), "O", HOST), W), "a pointer to objects of Python given"),
    "a dict and more": (lambda s: s({"arg0": X}, W), r'argument 0 \("arg0"\): dict given; expected a tensor'),
    "dicts in a dict": (lambda s: s({"arg0": {}, "arg1": W}), r'argument 0 \("arg0"\): dict given'),
    "dicts to bind": (lambda s: s.bind({"arg0": X}, W), r'argument 0 \("arg0"\): dict given'),
    "feeds": (lambda s: s.run(None, [X, W]), "feeds: list given; expected a mapping"),
    "names": (lambda s: s.run("result0", {"arg0": X, "arg1": W}), r"expected a list of names, \['result0'\]"),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_wrong_calls_say_what_is_expected(session: motet.Session, mistake: str) -> None:
    call, said = WRONG[mistake]
    for used in (motet.load(session.artifact), session):  # before the first call, and after calls
        with pytest.raises(CallError, match=said):
            call(used)


NEAR_MISSES: dict[str, tuple[Callable[[motet.Artifact, Path], Any], str]] = {
    "a list": (lambda a, _: motet.load(a, devices=[HOST]), "for one device write devices='host'"),  # type: ignore[arg-type]
    "a list of two": (lambda a, _: motet.load(a, devices=[HOST, "cuda:0"]),  # type: ignore[arg-type]
                      "with the program's names"),
    "to compile": (lambda a, _: motet.compile(SUBTRACT, devices=[HOST]), "for one device write"),  # type: ignore[arg-type]
    "cpu": (lambda a, _: motet.load(a, devices="cpu"), "the processor is host"),
    "threads as text": (lambda a, _: motet.load(a, threads="4"), "threads: '4' given, of type str"),  # type: ignore[arg-type]
    "threads as truth": (lambda a, _: motet.load(a, threads=True), "expected a number such as 4"),
    "a fraction": (lambda a, _: motet.load(a, in_flight=1.5), "in_flight: 1.5 given"),  # type: ignore[arg-type]
    "nothing": (lambda a, _: motet.load(None), "source: None given, of type NoneType"),  # type: ignore[arg-type]
    "a text": (lambda a, _: motet.load(SUBTRACT), "it is the text of a program"),
    "a program": (lambda a, folder: motet.load(folder / "p.mlir"), "is a program, not an artifact"),
    "an underscore": (lambda a, _: motet.compile(SUBTRACT, options={"keep_source": True}), "did you mean keep-source"),
    "a number": (lambda a, _: motet.compile(SUBTRACT, options={"jobs": 2.5}), "2.5 is of type float"),  # type: ignore[dict-item]
    "a list of options": (lambda a, _: motet.compile(SUBTRACT, options=["strict"]),  # type: ignore[arg-type]
                          r"expected motet\.Options"),
    "a place as text": (lambda a, _: motet.compile(SUBTRACT, place="a=b"), "expected patterns of names"),  # type: ignore[arg-type]
    "progress": (lambda a, _: motet.compile(SUBTRACT, progress=3), "expected a function"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("mistake", NEAR_MISSES)
def test_near_misses_say_what_is_meant(session: motet.Session, mistake: str, tmp_path: Path) -> None:
    (tmp_path / "p.mlir").write_text(SUBTRACT)
    call, said = NEAR_MISSES[mistake]
    with pytest.raises((OptionError, DeviceError), match=said) as caught:
        call(session.artifact, tmp_path)
    assert "\n" not in str(caught.value)


def test_options_are_documented_and_are_those_of_the_command_line() -> None:
    assert [field.name.replace("_", "-") for field in dataclasses.fields(Options)] == list(option_help())
    assert all(len(text) > 20 for text in option_help().values())
    given = Options(keep_source=True, jobs=2, rates=Path("r.json"))
    assert given.pairs() == (("jobs", "2"), ("keep-source", "true"), ("rates", "r.json"))
    kept = motet.compile(SUBTRACT, options=Options(keep_source=True))
    assert len(kept.data) > len(motet.compile(SUBTRACT).data)
    assert bytes(kept.data) == bytes(motet.compile(SUBTRACT, options={"keep-source": True}).data)


def test_progress_is_called_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[tuple[str, float]] = []
    with caplog.at_level(logging.INFO, "motet"):
        artifact = motet.compile(SUBTRACT, cache=False, progress=lambda what, done: seen.append((what, done)))
        motet.load(artifact).close()
    fractions = [done for _, done in seen]
    assert len(seen) > 3 and fractions == sorted(fractions) and fractions[-1] <= 1
    said = [record.getMessage() for record in caplog.records]
    assert any("compiled <string>" in line for line in said) and any("loaded artifact" in line for line in said)


def test_notebooks_show_artifacts_and_sessions(session: motet.Session) -> None:
    for shown in (session.artifact._repr_html_(), session._repr_html_()):
        assert "main" in shown and "2×3" in shown and "host" in shown
    evil = motet.load(motet.compile(SUBTRACT.replace("@main", '@"<script>"')))
    assert "<script>" not in evil._repr_html_() + evil.artifact._repr_html_()


@pytest.mark.parametrize("what", ["session", "artifact", "function"])
def test_pickling_is_refused_with_advice(session: motet.Session, what: str) -> None:
    value = {"session": session, "artifact": session.artifact, "function": session.main}[what]
    for attempt in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled or copied; send"):
            attempt(value)
