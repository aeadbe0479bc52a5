"""Models whose values, or the ways to them, double from node to node: compiled in time, or refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import motet
from motet.errors import OutOfMemoryError

onnx: Any = pytest.importorskip("onnx", reason="needs ONNX: pip install 'motet[onnx]'")


def doubled(op: str, count: int, **attributes: Any) -> bytes:
    """v[n + 1] = op(v[n], v[n])."""
    h = onnx.helper
    nodes = [h.make_node(op, [f"v{i}"] * 2, [f"v{i + 1}"], **attributes) for i in range(count)]
    first = h.make_tensor_value_info("v0", onnx.TensorProto.FLOAT, [4])
    last = h.make_tensor_value_info(f"v{count}", onnx.TensorProto.FLOAT, None)
    model = h.make_model(h.make_graph(nodes, "g", [first], [last]), opset_imports=[h.make_opsetid("", 18)])
    model.ir_version = 9
    return model.SerializeToString()


@pytest.mark.parametrize("count", [1, 5, 6, 17])
def test_concatenations_of_a_tensor_with_itself(count: int) -> None:
    x = np.arange(4, dtype=np.float32)
    found = motet.load(motet.compile(doubled("Concat", count, axis=0), cache=False))(x)
    np.testing.assert_array_equal(np.asarray(found), np.tile(x, 1 << count))


def test_sums_of_a_tensor_with_itself() -> None:
    x = np.array([1, -2, 0.5, 3], np.float32)
    found = motet.load(motet.compile(doubled("Add", 40), cache=False))(x)
    np.testing.assert_array_equal(np.asarray(found), x * 2.0**40)


def test_a_tensor_that_no_memory_holds_is_an_error_of_the_call() -> None:
    session = motet.load(motet.compile(doubled("Concat", 50, axis=0), cache=False))
    with pytest.raises(OutOfMemoryError):
        session(np.ones(4, np.float32))
