"""Resizing: every position, rounding and filter, by extents that are known and by those of a call."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import motet

onnx = pytest.importorskip("onnx", reason="needs ONNX: pip install 'motet[onnx]'")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from motet.compiler.operators.resize import MODES, POSITIONS, ROUNDINGS  # noqa: E402

ALIKE = [name for name in POSITIONS if name.startswith(("half", "pytorch", "align", "asym"))]
FORMS = [
    *({"mode": mode, "coordinate_transformation_mode": position} for mode, position in itertools.product(MODES, ALIKE)),
    *({"mode": "nearest", "nearest_mode": rounding} for rounding in ROUNDINGS if rounding != "simple"),
    *({"mode": mode, "exclude_outside": 1, "cubic_coeff_a": -0.5} for mode in MODES[1:]),
]
EXTENTS = [(5, 4), (1, 7), (8, 3)]


@pytest.mark.parametrize("known", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("by", "part"), [
    ("sizes", 0), ("scales", 1), pytest.param("sizes", 1, marks=pytest.mark.slow),
    pytest.param("scales", 0, marks=pytest.mark.slow),
])  # fmt: skip
def test_results_are_those_of_the_reference(by: str, part: int, *, known: bool) -> None:
    forms = FORMS[part::2]
    spatial = list(EXTENTS[0]) if known else ["h", "w"]
    given = ["x", "", "numbers"] if by == "scales" else ["x", "", "", "numbers"]
    numbers = np.array([1, 1, 1.7, 2], np.float32) if by == "scales" else np.array([1, 2, 7, 3])
    graph = helper.make_graph(
        [helper.make_node("Resize", given, [f"y{k}"], **form) for k, form in enumerate(forms)], "resized",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, *spatial])],
        [helper.make_tensor_value_info(f"y{k}", TensorProto.FLOAT, [1, 2, None, None]) for k in range(len(forms))],
        [numpy_helper.from_array(numbers, "numbers")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    session = motet.load(motet.compile(model, cache=False))
    for extents in EXTENTS[:1] if known else EXTENTS:
        x = np.random.default_rng(0).standard_normal((1, 2, *extents)).astype(np.float32)
        for form, found, wanted in zip(forms, session(x), ReferenceEvaluator(model).run(None, {"x": x}), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5, err_msg=str(form))


def test_elements_are_repeated_by_whole_scales_as_numpy_repeats_them() -> None:
    forms = [form for form in FORMS if form["mode"] == "nearest"]
    graph = helper.make_graph(
        [helper.make_node("Resize", ["x", "", "scales"], [f"y{k}"], **form) for k, form in enumerate(forms)],
        "repeated",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [1, 2, "h", "w"])],
        [helper.make_tensor_value_info(f"y{k}", TensorProto.UINT8, [1, 2, None, None]) for k in range(len(forms))],
        [numpy_helper.from_array(np.array([1, 1, 3, 7], np.float32), "scales")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    session = motet.load(motet.compile(model, cache=False))
    for extents in ((1, 1), (5, 131)):
        x = np.random.default_rng(0).integers(0, 256, (1, 2, *extents), np.uint8)
        for form, found, wanted in zip(forms, session(x), ReferenceEvaluator(model).run(None, {"x": x}), strict=True):
            np.testing.assert_array_equal(found, wanted, err_msg=str(form))


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_left_of_extents_of_a_call_by_a_scale_of_0(mode: str) -> None:
    graph = helper.make_graph(
        [helper.make_node("Resize", ["x", "", "scales"], ["y"], mode=mode)], "emptied",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["h", "w"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, None])],
        [numpy_helper.from_array(np.array([0, 2], np.float32), "scales")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    assert motet.load(motet.compile(model, cache=False))(np.ones((4, 5), np.float32)).shape == (0, 10)


@pytest.mark.parametrize("given", [[3, 4], None])
def test_filters_are_antialiased_for_any_batch(given: list[int] | None) -> None:
    """By sizes of the model for both last axes, or by sizes of the call for all."""
    inputs, axes = [("x", TensorProto.FLOAT, ["n", 3, 8, 9])], {"axes": [2, 3]} if given else {}
    inputs += [] if given else [("sizes", TensorProto.INT64, [4])]
    graph = helper.make_graph(
        [helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear", antialias=1, **axes)], "antialiased",
        [helper.make_tensor_value_info(*each) for each in inputs],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3, 3, 4])],
        [numpy_helper.from_array(np.array(given), "sizes")] if given else [],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    session = motet.load(motet.compile(model, cache=False))
    for count in (1, 5):
        feeds = {"x": np.random.default_rng(0).standard_normal((count, 3, 8, 9)).astype(np.float32)}
        feeds |= {} if given else {"sizes": np.array([count, 3, 3, 4])}
        (wanted,) = ReferenceEvaluator(model).run(None, feeds)
        np.testing.assert_allclose(session(*feeds.values()), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_integers_at_the_ends_of_their_type_stay_there(dtype: type[np.integer]) -> None:
    """Linear sums and extrapolated numbers are clamped to the last numbers of f64 that the type has."""
    least, most = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    x = np.array([[most, most - 511, most, most - 4096, most // 3, least + 511, least, least]], dtype)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [helper.make_node("Resize", ["x", "", "", "sizes"], ["doubled"], mode="linear",
                          coordinate_transformation_mode="asymmetric"),
         helper.make_node("Resize", ["x", "region", "", "sizes"], ["outside"], mode="linear",
                          coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=1e30)],
        "ends",
        [helper.make_tensor_value_info("x", kind, [1, 8])],
        [helper.make_tensor_value_info(name, kind, [1, 16]) for name in ("doubled", "outside")],
        [numpy_helper.from_array(np.array([1, 16]), "sizes"),
         numpy_helper.from_array(np.array([0, 2, 1, 3], np.float32), "region")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    doubled, outside = motet.load(motet.compile(model, cache=False))(x)
    last = np.nextafter(float(most), 0)
    np.testing.assert_array_equal(doubled[:, ::2], np.minimum(x.astype(np.float64), last).astype(dtype))
    np.testing.assert_array_equal(outside, np.full((1, 16), last).astype(dtype))
