"""ReduceProd over extents and axes that only a call knows, and of shapes, against numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import motet


@dataclass(frozen=True)
class Product:
    """ReduceProd of `x` along `axes` (None: all of them), which an input gives where `given`."""

    axes: tuple[int, ...] | None
    keep: int = 1
    version: int = 18
    given: bool = False
    dtype: str = "float32"
    extents: tuple[int | str, ...] = ("a", "b", 4)

    def model(self) -> onnx.ModelProto:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        inputs = [helper.make_tensor_value_info("x", kind, self.extents)]
        held = list[onnx.TensorProto]()
        node = helper.make_node("ReduceProd", ["x"], ["y"], keepdims=self.keep)
        if self.axes is not None and self.version < 18:
            node.attribute.append(helper.make_attribute("axes", list(self.axes)))
        elif self.axes is not None:
            node.input.append("axes")
            if self.given:
                inputs.append(helper.make_tensor_value_info("axes", TensorProto.INT64, [len(self.axes)]))
            else:
                held.append(numpy_helper.from_array(np.array(self.axes), "axes"))
        graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", kind, None)], held)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.version)], ir_version=9)


CASES = [
    Product((1,), version=13), Product((1, 2), keep=0, version=13), Product(None, version=13),
    Product((0, 1)), Product((-2,), keep=0), Product(None, keep=0), Product((1,), dtype="int64"),
    Product((0, 2), dtype="int32", keep=0), Product((1,), dtype="float16"), Product((0,), dtype="float64"),
    Product((1,), given=True), Product((2,), given=True, keep=0), Product((0,), given=True, extents=(3, 5, 4)),
    Product((0, -1), given=True, extents=(3, 5, 4), keep=0, dtype="int64"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_products_are_those_of_numpy(case: Product) -> None:
    session = motet.load(motet.compile(case.model()), threads=1)
    for a, b in ((3, 5), (1, 40), (2, 0)):
        shape = tuple({"a": a, "b": b}.get(str(extent), extent) for extent in case.extents)
        x = np.random.default_rng(b).uniform(0.7, 1.4, [int(extent) for extent in shape])
        x = (x * 3 if "int" in case.dtype else x).astype(case.dtype)
        expected = np.prod(x.astype(np.float64), axis=case.axes, keepdims=bool(case.keep))
        if "int" in case.dtype:
            expected = np.prod(x, axis=case.axes, keepdims=bool(case.keep), dtype=case.dtype)
        own = session(x, np.array(case.axes)) if case.given else session(x)
        assert own.shape == expected.shape
        np.testing.assert_allclose(own, expected, rtol=2e-3 if case.dtype == "float16" else 1e-5)


def test_a_reshape_to_a_product_of_extents() -> None:
    """tf2onnx writes Einsum so."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "first"], ["chosen"]),
        helper.make_node("ReduceProd", ["chosen"], ["rows"], keepdims=1),
        helper.make_node("Gather", ["shape", "last"], ["columns"]),
        helper.make_node("Concat", ["rows", "rest", "columns"], ["sizes"], axis=0),
        helper.make_node("Reshape", ["x", "sizes"], ["y"]),
    ]
    held = {"first": [0, 1], "last": [3], "rest": [-1]}
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["a", 4, "b", "c"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(numbers), name) for name, numbers in held.items()],
    )
    session = motet.load(motet.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])))
    for a, b, c in ((2, 3, 5), (1, 7, 1)):
        x = np.random.default_rng(a).standard_normal((a, 4, b, c), np.float32)
        np.testing.assert_array_equal(session(x), x.reshape(a * 4, -1, c))
