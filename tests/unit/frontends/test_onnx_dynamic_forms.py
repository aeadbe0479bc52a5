"""Forms of ONNX operators that are written with others, over extents that only a call knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import motet

RNG = np.random.default_rng(7)
Inputs = dict[str, tuple[np.ndarray, list[Any]]]


def model(
    op: str, inputs: Inputs, constants: dict[str, np.ndarray], order: list[str], result: list[Any], version: int,
    **attributes: Any,
) -> ModelProto:
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), shape)
        for name, (array, shape) in inputs.items()
    ]
    kind = helper.np_dtype_to_tensor_dtype(next(iter(inputs.values()))[0].dtype)
    graph = helper.make_graph(
        [helper.make_node(op, order, ["y"], name="node", **attributes)], "g", infos,
        [helper.make_tensor_value_info("y", kind, result)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=10)


def check(whole: ModelProto, inputs: Inputs, tolerance: float = 1e-5) -> None:
    """For the arrays, and for their first half: extents are those of each call."""
    session = motet.load(motet.compile(whole, cache=False))
    for count in (2, 1):
        feeds = {name: array[:count] for name, (array, _) in inputs.items()}
        (wanted,) = ReferenceEvaluator(whole).run(None, feeds)
        found = session(*feeds.values())
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, tolerance, tolerance)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_images_of_a_batch_are_resampled(mode: str) -> None:
    inputs = {"x": (RNG.standard_normal((2, 3, 5, 4)).astype(np.float32), ["n", 3, 5, 4])}
    scales = {"s": np.array([1, 1, 2, 1.5], np.float32)}
    whole = model("Resize", inputs, scales, ["x", "", "s"], ["n", 3, 10, 6], 19, mode=mode,
                  coordinate_transformation_mode="half_pixel_symmetric")
    check(whole, inputs)


def test_groups_of_a_batch_are_normalised_far_from_zero() -> None:
    x = (1000 + RNG.standard_normal((2, 4, 31))).astype(np.float32)
    inputs = {"x": (x, ["n", 4, 31])}
    constants = {"s": np.array([2, 0.5], np.float32), "b": np.array([1, -1], np.float32)}
    whole = model("GroupNormalization", inputs, constants, ["x", "s", "b"], ["n", 4, 31], 18, num_groups=2)
    parts = x.astype(np.float64).reshape(2, 2, -1)
    unit = (parts - parts.mean(2, keepdims=True)) / np.sqrt(parts.var(2, keepdims=True) + 1e-5)
    wanted = (unit * [[2.0], [0.5]] + [[1.0], [-1.0]]).reshape(x.shape)
    session = motet.load(motet.compile(whole, cache=False))
    np.testing.assert_allclose(session(x), wanted, rtol=0, atol=5e-4)
    np.testing.assert_allclose(session(x[:1]), wanted[:1], rtol=0, atol=5e-4)


def test_unsigned_numbers_of_a_batch_are_dequantised() -> None:
    inputs = {"x": (RNG.integers(0, 256, (2, 3, 5)).astype(np.uint8), ["n", 3, 5])}
    constants = {"s": np.array([0.5, 0.25, 2], np.float32), "z": np.array([0, 128, 255], np.uint8)}
    whole = model("DequantizeLinear", inputs, constants, ["x", "s", "z"], ["n", 3, 5], 21, axis=1)
    whole.graph.output[0].type.tensor_type.elem_type = 1
    check(whole, inputs)


def test_largest_unsigned_numbers_of_64_bits() -> None:
    x = np.array([[1, 2**63, 2**64 - 1, 5], [0, 2**63 - 1, 7, 2**63]], np.uint64)
    inputs = {"x": (x, ["n", 4])}
    whole = model("ReduceMax", inputs, {"a": np.array([1])}, ["x", "a"], ["n", 1], 20)
    session = motet.load(motet.compile(whole, cache=False))
    np.testing.assert_array_equal(session(x), [[2**64 - 1], [2**63]])


def test_averages_of_whole_windows_over_any_number_of_images() -> None:
    x = RNG.standard_normal((2, 3, 9, 8)).astype(np.float32)
    made = model(
        "AveragePool", {"x": (x, ["n", 3, 9, 8])}, {}, ["x"], [None] * 4, 19, kernel_shape=[2, 3], strides=[3, 2],
        pads=[1, 0, 0, 1], ceil_mode=1, count_include_pad=1,
    )
    (wanted,) = ReferenceEvaluator(made).run(None, {"x": x})
    got = motet.load(motet.compile(made, devices="host"))(x)
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op, attributes, what", [
    ("MaxPool", {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "strides": [2, 2]}, "auto_pad"),
    ("AveragePool", {"kernel_shape": [3, 3], "ceil_mode": 1, "count_include_pad": 1}, "ceil_mode"),
    ("ArgMax", {"axis": 2, "select_last_index": 1}, "select_last_index"),
    ("LRN", {"size": 3}, "LRN over extents"),
])
def test_forms_that_depend_on_extents_of_a_call_are_refused(op: str, attributes: dict[str, Any], what: str) -> None:
    x = np.zeros((2, 3, 9, 8), np.float32)
    made = model(op, {"x": (x, ["n", 3, "h", "w"])}, {}, ["x"], [None] * 4, 19, **attributes)
    if op == "ArgMax":
        made.graph.output[0].type.tensor_type.elem_type = 7
    with pytest.raises(motet.errors.CompileError, match=what):
        motet.compile(made, devices="host")


@pytest.mark.parametrize("start, axis", [(100, 1), (2**31 - 1, 2), (-1, 1), (4, 1)])
def test_slices_from_beyond_the_end_backwards(start: int, axis: int) -> None:
    x = RNG.standard_normal((3, 4, 5)).astype(np.float32)
    constants = {
        "s": np.array([start]), "e": np.array([-100]), "a": np.array([axis]), "t": np.array([-1]),
    }  # fmt: skip
    made = model("Slice", {"x": (x, ["n", 4, 5])}, constants, ["x", "s", "e", "a", "t"], [None] * 3, 13)
    got = motet.load(motet.compile(made, devices="host"))(x)
    np.testing.assert_array_equal(np.asarray(got), np.flip(x, axis))


def test_slices_backwards_that_may_begin_outside_are_refused() -> None:
    constants = {"s": np.array([7]), "e": np.array([-100]), "a": np.array([0]), "t": np.array([-1])}
    x = np.zeros((3, 4, 5), np.float32)
    made = model("Slice", {"x": (x, ["n", 4, 5])}, constants, ["x", "s", "e", "a", "t"], [None] * 3, 13)
    with pytest.raises(motet.errors.CompileError, match="from element 7 backwards"):
        motet.compile(made, devices="host")


@pytest.mark.parametrize("op, attributes", [
    ("InstanceNormalization", {"epsilon": 0.1}), ("GroupNormalization", {"num_groups": 3}),
])
@pytest.mark.parametrize("dims", [["n", 6, "h", "w"], [2, 6, 5, "w"]])
def test_normalisations_of_images_of_any_size(op: str, attributes: dict[str, Any], dims: list[Any]) -> None:
    x = RNG.standard_normal((2, 6, 5, 7)).astype(np.float32)
    constants = {name: RNG.standard_normal(6).astype(np.float32) for name in "sb"}
    made = model(op, {"x": (x, dims)}, constants, ["x", "s", "b"], [None] * 4, 21, **attributes)
    (wanted,) = ReferenceEvaluator(made).run(None, {"x": x})
    got = motet.load(motet.compile(made, devices="host"))(x)
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-4, atol=1e-5)
