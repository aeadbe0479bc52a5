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


@pytest.mark.parametrize("window", [3, 4])
def test_short_floats_of_dynamic_extents(window: int) -> None:
    """Sums are f32, and the image's border f16."""
    random = np.random.default_rng(5)
    x, w = (random.standard_normal(shape).astype(np.float16) for shape in ((2, 3, 4, 5), (3, 2, window, window)))
    graph = helper.make_graph(
        [helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, ["n", 3, "h", "w"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, None)], [numpy_helper.from_array(w, "w")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    expected = directly(x, w, [2, 2], [1, 1], 1)
    np.testing.assert_allclose(motet.load(motet.compile(proto), threads=1)(x), expected, rtol=2e-3, atol=4e-3)


def directly(x: np.ndarray, w: np.ndarray, strides: list[int], dilations: list[int], groups: int) -> np.ndarray:
    """The full result of one or two spatial axes by definition, in float64."""
    kernel = w.shape[2:]
    full = [(e - 1) * s + (k - 1) * d + 1 for e, s, k, d in zip(x.shape[2:], strides, kernel, dilations, strict=True)]
    image = x.astype(float).reshape(len(x), groups, -1, 1, *x.shape[2:])
    filters = w.astype(float).reshape(1, groups, image.shape[2], -1, *[1] * len(kernel), *kernel)
    found = np.zeros((len(x), groups, w.shape[1], *full))
    for tap in np.ndindex(kernel):
        where = [slice(t * d, t * d + (e - 1) * s + 1, s)
                 for t, d, e, s in zip(tap, dilations, x.shape[2:], strides, strict=True)]
        found[(..., *where)] += (image * filters[(..., *tap)]).sum(2)
    return found.reshape(len(x), -1, *full)


Form = tuple[list[int], list[int], list[int], int]  # strides, window, dilations, groups
FEW: list[Form] = [([2, 3], [3, 2], [1, 1], 1), ([3], [5], [1], 1)]
MANY: list[Form] = [
    *(([stride], [window], [1], 1) for stride in (1, 2, 3, 4) for window in (1, 2, 3, 4, 5)),
    ([2, 2], [3, 3], [1, 1], 1), ([3, 2], [5, 3], [1, 1], 1), ([2, 3], [2, 4], [1, 1], 1), ([4, 3], [1, 5], [1, 1], 1),
    ([4, 2], [3, 1], [1, 1], 1), ([2, 2], [3, 3], [2, 1], 1), ([2, 3], [3, 2], [1, 1], 3), ([3, 2], [2, 3], [1, 2], 3),
]


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("forms", [FEW, pytest.param(MANY, marks=pytest.mark.slow)], ids=["few", "many"])
def test_what_is_not_finite_reaches_its_windows_alone(forms: list[Form]) -> None:
    """Infinities and NaN in images of dynamic extents, whether the stride divides the window or not."""
    random = np.random.default_rng(4)
    nodes: list[onnx.NodeProto] = []
    given: dict[str, np.ndarray] = {}
    held: dict[str, np.ndarray] = {}
    for number, (strides, window, dilations, groups) in enumerate(forms):
        x = random.standard_normal((2, 3, *[random.integers(3, 7) for _ in strides])).astype(np.float32)
        places = random.choice(x.size, 4, replace=False)
        x.reshape(-1)[places] = np.inf, -np.inf, np.nan, np.inf
        given[f"x{number}"] = x
        held[f"w{number}"] = random.standard_normal((3, 2, *window)).astype(np.float32)
        held[f"b{number}"] = random.standard_normal(2 * groups).astype(np.float32)
        nodes.append(helper.make_node("ConvTranspose", [f"x{number}", f"w{number}", f"b{number}"], [f"y{number}"],
                                      strides=strides, dilations=dilations, group=groups))
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [f"{name}n", 3, *(
            f"{name}{axis}" for axis in range(x.ndim - 2))]) for name, x in given.items()],
        [helper.make_tensor_value_info(f"y{number}", TensorProto.FLOAT, None) for number in range(len(forms))],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    found = motet.load(motet.compile(proto, cache=False), threads=1)(**given)
    for number, (strides, window, dilations, groups) in enumerate(forms):
        bias = held[f"b{number}"].reshape(-1, *[1] * len(window))
        expected = directly(given[f"x{number}"], held[f"w{number}"], strides, dilations, groups) + bias
        np.testing.assert_allclose(found[number], expected, rtol=1e-4, atol=1e-4, err_msg=str(forms[number]))


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
