"""ConvTranspose whose padding is not the same on both sides, with extents that only a call knows, against ONNX's
reference. Keras' layers of stride 2 become such."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import motet

CASES: list[tuple[list[int | str], dict[str, Any]]] = [
    (["n", 2, 4, 5], {"strides": [2, 2], "pads": [0, 0, 1, 1]}),
    (["n", 2, "h", "w"], {"strides": [2, 2], "pads": [0, 0, 1, 1]}),
    (["n", 2, "h", "w"], {"strides": [2, 3], "pads": [1, 0, 0, 2], "output_padding": [1, 1]}),
    (["n", 2, "h", "w"], {"strides": [3, 3], "pads": [0, 1, 0, 0], "output_padding": [2, 1], "dilations": [2, 1]}),
    (["n", 2, 4, 5], {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
]


@pytest.mark.parametrize(("extents", "attributes"), CASES, ids=str)
def test_what_is_cut_off_does_not_depend_on_extents(extents: list[int | str], attributes: dict[str, Any]) -> None:
    random = np.random.default_rng(2)
    held = {"w": random.standard_normal((2, 3, 3, 3)), "b": random.standard_normal(3)}
    graph = helper.make_graph(
        [helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], **attributes)], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, extents)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in held.items()],
    )
    proto: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    session, reference = motet.load(motet.compile(proto), threads=1), ReferenceEvaluator(proto)
    for n in (1, 3):
        shape = [{"n": n, "h": 3 + n, "w": 7 - n}.get(str(extent), extent) for extent in extents]
        x = random.standard_normal([int(extent) for extent in shape]).astype(np.float32)
        (expected,) = reference.run(None, {"x": x})
        assert isinstance(expected, np.ndarray)
        np.testing.assert_allclose(session(x), expected, atol=2e-5)


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_dequantised_filters_are_finite(kind: type) -> None:
    """Between quantised tensors, a transposed convolution is computed by phases, like one of constant filters."""
    random, info = np.random.default_rng(3), np.iinfo(kind)
    x, w = (
        random.integers(info.min, info.max + 1, shape).astype(kind) for shape in ((2, 6, 5, 7), (6, 4, 4, 3))
    )
    zero, step = np.array(3, kind), np.float32(0.013)
    held = {"w": w, "z": zero, "s": step, "t": np.float32(0.9), "u": np.array(info.max - 120, kind)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["wf"]),
        helper.make_node("ConvTranspose", ["xf", "wf"], ["c"], strides=[2, 3], pads=[1, 0, 1, 0]),
        helper.make_node("QuantizeLinear", ["c", "t", "u"], ["y"]),
    ]
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", element, x.shape)],
        [helper.make_tensor_value_info("y", element, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in held.items()])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    (expected,) = ReferenceEvaluator(proto).run(None, {"x": x})
    session = motet.load(motet.compile(proto), threads=1)
    assert isinstance(expected, np.ndarray)
    assert np.abs(np.asarray(session(x)).astype(int) - expected).max() <= 1
    kinds = [kernel.kind for variant in session.variants for kernel in variant.kernels]
    assert "convolution" in kinds and len(kinds) <= 6, kinds
