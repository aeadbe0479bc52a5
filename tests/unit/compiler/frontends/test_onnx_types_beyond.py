"""Element types and texts that ONNX or Motet has, at some of which the torch-mlir wheel dies, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import motet

onnx: Any = pytest.importorskip("onnx", reason="needs ONNX: pip install 'motet[onnx]'")
h = onnx.helper


def run(op: str, *operands: np.ndarray, fixed: tuple[int, ...] = (), opset: int = 20, **said: Any) -> np.ndarray:
    """The result of a model of one node, of which the operands at the places `fixed` are constants."""
    names = [f"x{place}" for place in range(len(operands))]
    inputs = [h.make_tensor_value_info(name, h.np_dtype_to_tensor_dtype(value.dtype), value.shape)
              for place, (name, value) in enumerate(zip(names, operands, strict=True)) if place not in fixed]
    constants = [onnx.numpy_helper.from_array(operands[place], names[place]) for place in fixed]
    graph = h.make_graph([h.make_node(op, names, ["y"], "n", **said)], "g", inputs,
                         [h.make_empty_tensor_value_info("y")], constants)  # fmt: skip
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", opset)], ir_version=9)
    session = motet.load(motet.compile(model, cache=False))
    return np.asarray(session(*(value for place, value in enumerate(operands) if place not in fixed)))


def same(found: np.ndarray, expected: np.ndarray) -> bool:
    return found.dtype == expected.dtype and found.shape == expected.shape and bool((found == expected).all())


@pytest.mark.parametrize("kind", ["uint16", "uint64"])
def test_unsigned_marks(kind: str) -> None:
    values = np.array([3, np.iinfo(kind).max], kind)
    found = run("OneHot", np.array([2, 0]), np.array(3), values, fixed=(1,))
    assert same(found, np.where(np.arange(3) == np.array([[2], [0]]), values[1], values[0]))
    assert same(run("EyeLike", np.zeros((2, 4), kind), k=1), np.eye(2, 4, 1, dtype=kind))
    code = h.np_dtype_to_tensor_dtype(np.dtype(kind))
    assert same(run("EyeLike", np.zeros((3, 2), np.float32), dtype=code), np.eye(3, 2, dtype=kind))


@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_bytes(kind: str) -> None:
    scalar, data = np.array(100, kind), np.arange(5, dtype=np.float32)
    assert same(run("Einsum", scalar, equation="->"), scalar)
    found = run("ScatterND", data, np.array([[3], [1]], kind), np.array([7, 8], np.float32))
    assert same(found, np.array([0, 8, 2, 7, 4], np.float32))


def test_types_that_no_version_of_onnx_has_are_compiled() -> None:
    left, right = np.arange(6, dtype=np.uint16).reshape(2, 3), np.arange(12, dtype=np.uint16).reshape(3, 4)
    assert same(run("MatMul", left, right), left @ right)
    flags = np.array([True, False, True])
    assert same(run("Add", flags, ~flags), flags | ~flags)


def test_an_empty_text_is_the_default() -> None:
    pads = np.array([1, 2])
    assert same(run("Pad", np.ones(2, np.float32), pads, fixed=(1,), mode=""), np.array([0, 1, 1, 0, 0], np.float32))


def test_results_of_a_split_may_be_left_out() -> None:
    assert same(run("Split", np.arange(6), num_outputs=3), np.arange(2))


def test_a_scatter_along_an_axis_from_the_end() -> None:
    data, places = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([[2, 0], [1, 2]])
    expected = data.copy()
    np.put_along_axis(expected, places, np.float32(9), -1)
    assert same(run("Scatter", data, places, np.full((2, 2), 9, np.float32), opset=10, axis=-1), expected)
