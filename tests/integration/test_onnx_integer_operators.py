"""Operators of ONNX on integers of every type, at the ends of their ranges: one model has them all."""

from __future__ import annotations

import numpy as np
import pytest

import motet

onnx = pytest.importorskip("onnx")

INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
FLOATS = [np.float16, np.float32, np.float64]
UNARY = {"Neg": np.negative, "Abs": np.abs, "Sign": np.sign}


def _tensor(name: str, dtype: type, shape: list[int]) -> object:
    return onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)


def _run(nodes: list, inputs: dict[str, np.ndarray], results: dict[str, np.ndarray], constants: dict[str, np.ndarray]):
    graph = onnx.helper.make_graph(
        nodes, "main", [_tensor(name, array.dtype.type, list(array.shape)) for name, array in inputs.items()],
        [_tensor(name, array.dtype.type, list(array.shape)) for name, array in results.items()],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=9)
    session = motet.load(motet.compile(model, devices={"": "host{cpu=x86-64-v3}"}))
    found = session(*inputs.values())
    for (name, expected), array in zip(results.items(), found, strict=True):
        np.testing.assert_array_equal(array, expected, name)


def test_unary_operators_and_norms_of_integers_keep_every_bit():
    inputs, nodes, results = {}, [], {}
    for dtype in INTEGERS:
        ends = np.iinfo(dtype)
        middle = np.array(ends.max // 2, dtype)
        name = np.dtype(dtype).name
        inputs[name] = np.array([ends.min, ends.min + 1, 0, 1, middle, middle + 1, ends.max - 1, ends.max], dtype)
        for op, function in UNARY.items():
            if op == "Neg" and ends.min == 0:
                continue  # ONNX has it of signed numbers alone
            nodes.append(onnx.helper.make_node(op, [name], [f"{op}_{name}"]))
            results[f"{op}_{name}"] = function(inputs[name])
        if name in ("uint32", "uint64", "int32", "int64"):
            nodes.append(onnx.helper.make_node("ReduceL1", [name, "axes"], [f"l1_{name}"], keepdims=0))
            results[f"l1_{name}"] = np.abs(inputs[name]).sum(0, dtype=dtype)
    _run(nodes, inputs, results, {"axes": np.array([0], np.int64)})


def test_casts_of_floating_numbers_reach_both_ends_of_integers():
    inputs, nodes, results = {}, [], {}
    for source in FLOATS:
        largest = float(np.finfo(source).max)
        for target in INTEGERS:
            ends = np.iinfo(target)
            high = min(float(ends.max), largest)
            if int(high) > ends.max:
                high = float(np.nextafter(source(high), source(0)))  # the last one that is inside
            while int(source(high)) > ends.max or np.isinf(source(high)):
                high = float(np.nextafter(source(high), source(0)))
            low = max(float(ends.min), -largest)
            name = f"{np.dtype(source).name}_{np.dtype(target).name}"
            inputs[name] = np.array([low, low / 2, -0.0, 0.75, 100.9, high / 2, high], source)
            nodes.append(onnx.helper.make_node(
                "Cast", [name], [f"to_{name}"], to=onnx.helper.np_dtype_to_tensor_dtype(np.dtype(target))
            ))
            results[f"to_{name}"] = np.array([int(value) for value in inputs[name].astype(np.float64)], target)
    _run(nodes, inputs, results, {})


def test_sums_of_no_products_are_zeros():
    inputs = {"a": np.zeros((2, 0), np.int32), "b": np.zeros((2, 3, 0), np.int32)}
    results = {"y": np.zeros(2, np.int32), "z": np.zeros((2, 3), np.int32)}
    nodes = [
        onnx.helper.make_node("Einsum", ["a", "b"], ["y"], equation="ab,acb->a"),
        onnx.helper.make_node("Einsum", ["a", "b"], ["z"], equation="ab,acb->ac"),
    ]
    _run(nodes, inputs, results, {})


def test_scatters_of_no_updates_give_their_data():
    inputs = {
        "x": np.arange(6, dtype=np.float32).reshape(1, 2, 3), "i": np.zeros((1, 2, 0), np.int64),
        "u": np.zeros((1, 2, 0), np.float32), "j": np.zeros((0, 2), np.int64), "v": np.zeros((0, 3), np.float32),
    }
    nodes = [
        onnx.helper.make_node("ScatterElements", ["x", "i", "u"], ["y"], axis=2, reduction="min"),
        onnx.helper.make_node("ScatterND", ["x", "j", "v"], ["z"], reduction="add"),
    ]
    _run(nodes, inputs, {"y": inputs["x"], "z": inputs["x"]}, {})


def test_unsigned_constants_are_results():
    inputs, nodes, results, constants = {"x": np.array([3, 4], np.uint8)}, [], {}, {}
    for dtype in INTEGERS:
        for shape in ((3,), (), (0,), (2, 2)):
            name = f"{np.dtype(dtype).name}_{'x'.join(map(str, shape))}"
            constants[f"c_{name}"] = np.full(shape, np.iinfo(dtype).max, dtype)
            if shape == (3,):
                constants[f"c_{name}"][1:] = np.iinfo(dtype).min, 1
            nodes.append(onnx.helper.make_node("Identity", [f"c_{name}"], [name]))
            results[name] = constants[f"c_{name}"]
    _run(nodes, inputs, results, constants)


def _largest(x: np.ndarray, before: int) -> np.ndarray:
    """Of windows of two along each spatial axis, two apart, after so many places outside the first one."""
    wide = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *[(before, 0)] * (x.ndim - 2)], constant_values=-np.inf)
    for axis in range(2, x.ndim):
        pairs = np.moveaxis(wide, axis, -1)[..., : wide.shape[axis] // 2 * 2]
        wide = np.moveaxis(pairs.reshape(*pairs.shape[:-1], -1, 2).max(-1), -1, axis)
    return wide.astype(x.dtype)


@pytest.mark.parametrize("before", [0, 1])
def test_integers_are_pooled_over_any_number_of_axes(before: int):
    inputs, nodes, results = {}, [], {}
    for dtype in (np.int8, np.uint8):
        for rank in (1, 2, 3):
            name = f"{np.dtype(dtype).name}_{rank}"
            values = np.random.default_rng(rank).integers(0, 256, (1, 2, *[5] * rank), np.uint8)
            inputs[name] = values.view(dtype) if dtype is np.uint8 else (values // 2).view(dtype) - 127 - 1
            results[f"{name}_pooled"] = _largest(inputs[name], before)
            nodes.append(onnx.helper.make_node(
                "MaxPool", [name], [f"{name}_pooled"], kernel_shape=[2] * rank, strides=[2] * rank,
                pads=[before] * rank + [0] * rank,
            ))
    _run(nodes, inputs, results, {})
