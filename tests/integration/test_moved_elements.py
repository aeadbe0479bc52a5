"""Pads, reversals and scans of random shapes, and functions of elements, against numpy in f64."""

from __future__ import annotations

import math
import random

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from tests.seeds import seeds

import motet

EXTENTS = (1, 2, 3, 5, 7, 8, 9, 13, 15, 16, 17, 31, 33, 40, 65)
NUMBERS = ("float16", "float32", "float64", "int8", "int16", "int32", "int64")
LEVELS = ("x86-64-v3", "x86-64-v4")


def run(node: onnx.NodeProto, x: np.ndarray, given: dict[str, np.ndarray], target: str = "host", dynamic: bool = False,
        ) -> np.ndarray:
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    declared = [f"d{axis}" if dynamic else size for axis, size in enumerate(x.shape)]
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", kind, declared)],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(array, name) for name, array in given.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    artifact = motet.compile(model.SerializeToString(), devices=target, cache=False)
    return np.asarray(motet.load(artifact)(x))


def draw(rng: random.Random, most: int) -> tuple[int, ...]:
    while True:
        shape = tuple(rng.choice(EXTENTS) for _ in range(rng.randint(1, 4)))
        if math.prod(shape) <= most:
            return shape


@pytest.mark.parametrize("seed", seeds(14))
def test_pad(seed: int) -> None:
    rng = random.Random(seed)
    shape, mode = draw(rng, 30_000), rng.choice(("reflect", "reflect", "edge", "wrap", "constant"))
    most = [size - 1 if mode == "reflect" else size for size in shape]
    sides = [(rng.randint(0, min(limit, 6)), rng.randint(0, min(limit, 6))) for limit in most]
    x = np.random.default_rng(seed).integers(-99, 99, shape).astype(rng.choice(NUMBERS))
    pads = np.array([low for low, _ in sides] + [high for _, high in sides], np.int64)
    node = helper.make_node("Pad", ["x", "pads"], ["y"], mode=mode)
    got = run(node, x, {"pads": pads}, f"host{{cpu={LEVELS[seed % 2]}}}")
    np.testing.assert_array_equal(got, np.pad(x, sides, mode), err_msg=f"{mode} {shape} {sides}")


@pytest.mark.parametrize("seed", range(3))
def test_pad_by_reflection_of_special_numbers(seed: int) -> None:
    rng = random.Random(seed)
    shape = (rng.choice((1, 2, 3)), rng.choice((1, 4)), rng.choice((5, 16, 33)), rng.choice((6, 17, 57)))
    x = np.random.default_rng(seed).choice([np.nan, np.inf, -np.inf, -0.0, 1.5], shape).astype(np.float32)
    sides = [(0, 0), (0, 0), (rng.randint(0, 4), rng.randint(0, 4)), (rng.randint(0, 5), rng.randint(0, 5))]
    pads = np.array([low for low, _ in sides] + [high for _, high in sides], np.int64)
    got = run(helper.make_node("Pad", ["x", "pads"], ["y"], mode="reflect"), x, {"pads": pads})
    np.testing.assert_array_equal(got.view(np.uint32), np.pad(x, sides, "reflect").view(np.uint32))


@pytest.mark.parametrize("seed", seeds(8))
def test_cumulative_sums(seed: int) -> None:
    rng = random.Random(seed)
    shape, dtype = draw(rng, 60_000), rng.choice(("float32", "float64", "int32", "int64"))
    axis, exclusive, reverse = rng.randrange(len(shape)), rng.randint(0, 1), rng.randint(0, 1)
    x = np.random.default_rng(seed).integers(-9, 9, shape).astype(dtype)
    node = helper.make_node("CumSum", ["x", "axis"], ["y"], exclusive=exclusive, reverse=reverse)
    got = run(node, x, {"axis": np.array(axis, np.int64)}, f"host{{cpu={LEVELS[seed % 2]}}}", dynamic=seed % 3 == 0)
    ordered = np.flip(x, axis) if reverse else x
    expected = np.cumsum(ordered, axis, dtype=dtype) - (ordered if exclusive else 0)
    np.testing.assert_array_equal(got, np.flip(expected, axis) if reverse else expected, err_msg=f"{shape} {axis}")


@pytest.mark.every  # each level has instructions of its own
@pytest.mark.parametrize("level", [*LEVELS, "x86-64-v4-bf16"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_every_number_of_16_bits_keeps_them(dtype: str, level: str) -> None:
    bits = np.random.default_rng(5).permutation(1 << 16).astype(np.uint16).reshape(256, 256)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    row, places = np.arange(255, -1, -1), np.random.default_rng(6).integers(-256, 256, (256, 256))
    points = np.stack(np.meshgrid(row, row, indexing="ij"), -1)
    flags = places % 2 == 0
    constants = {"row": row, "places": places, "points": points, "flags": flags, "first": np.array([-1, -1]),
                 "least": np.array([-999, -999]), "both": np.array([0, 1]), "back": np.array([-1, -1])}
    expected = {
        ("Gather", "x row", ""): bits[row], ("GatherElements", "x places", "axis"): np.take_along_axis(bits, places, 1),
        ("GatherND", "x points", ""): bits[::-1, ::-1], ("ScatterND", "x points x", ""): bits[::-1, ::-1],
        ("Transpose", "x", ""): bits.T, ("Concat", "x x", "axis"): np.concatenate([bits, bits], 1),
        ("Where", "flags x t", ""): np.where(flags, bits, bits.T),
        ("Slice", "x first least both back", ""): bits[::-1, ::-1],
    }  # fmt: skip
    nodes = [helper.make_node("Transpose", ["x"], ["t"])]
    nodes += [
        helper.make_node(op, names.split(), [f"{op}0"], **({"axis": 1} if axis else {})) for op, names, axis in expected
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", kind, bits.shape)],
        [helper.make_tensor_value_info(f"{op}0", kind, None) for op, _, _ in expected],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    session = motet.load(motet.compile(model, devices=f"host{{cpu={level}}}", cache=False))
    for (op, _, _), found, wanted in zip(expected, session(bits.view(dtype)), expected.values(), strict=True):
        np.testing.assert_array_equal(np.asarray(found).view(np.uint16), wanted, err_msg=op)


SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3e38, -3e38, 19.0, 20.0, 20.5, -20.0, 88.8, -88.8, -104.0)


OPERATORS = ("Mish", "Softplus", "Sin", "Cos", "Erf", "Gelu")


def expected_of(x: np.ndarray) -> dict[str, np.ndarray]:
    wide = x.astype(np.longdouble)
    with np.errstate(all="ignore"):
        plus = np.maximum(wide, 0) + np.log1p(np.exp(-np.abs(wide)))
        error = np.array([math.erf(float(each)) for each in wide])
        half = np.array([math.erf(float(each) / math.sqrt(2)) for each in wide])
        return {"Mish": wide * np.tanh(plus), "Softplus": plus, "Sin": np.sin(wide), "Cos": np.cos(wide),
                "Erf": error, "Gelu": wide * (1 + half) / 2}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("level", LEVELS)
def test_functions_of_elements(dtype: str, level: str) -> None:
    numbers = np.random.default_rng(7)
    x = np.concatenate([SPECIAL, numbers.normal(0, 5, 3001), numbers.uniform(-1e3, 1e3, 999)])
    with np.errstate(over="ignore"):
        x = x.astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [helper.make_node(name, ["x"], [name]) for name in OPERATORS], "g",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info(name, kind, x.shape) for name in OPERATORS],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    artifact = motet.compile(model.SerializeToString(), devices=f"host{{cpu={level}}}", cache=False)
    rtol = 2e-6 if dtype == "float32" else 2e-15
    for (name, expected), got in zip(expected_of(x).items(), motet.load(artifact)(x), strict=True):
        atol = 3 * rtol if name == "Gelu" else 1e-38  # 1 + erf cancels
        np.testing.assert_allclose(got, expected.astype(dtype), rtol=rtol, atol=atol, err_msg=name)
