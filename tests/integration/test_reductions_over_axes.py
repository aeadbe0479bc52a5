"""Reductions and normalisations over any axes, at odd and dynamic extents, against numpy in f64."""

from __future__ import annotations

import random

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.seeds import seeds

import motet

pytestmark = pytest.mark.usefixtures("all_levels")

DTYPES = {"f32": (np.float32, TensorProto.FLOAT), "f64": (np.float64, TensorProto.DOUBLE)}
EXTENTS = (1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 33, 65, 130)
REDUCTIONS = {
    "ReduceSum": np.sum, "ReduceMean": np.mean, "ReduceMax": np.max, "ReduceMin": np.min,
    "ReduceL1": lambda x, axis: np.abs(x).sum(axis), "ReduceL2": lambda x, axis: np.sqrt((x * x).sum(axis)),
}


def build(nodes: list, x: np.ndarray, kind: int, given: dict[str, np.ndarray], declared: list) -> bytes:
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", kind, declared)],
        [helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(np.dtype(np.int64))
                                       if nodes[-1].op_type.startswith("Arg") else kind, None)],
        [numpy_helper.from_array(array, name) for name, array in given.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9).SerializeToString()


def draw(rng: random.Random, most: int) -> tuple[int, ...]:
    while True:
        shape = tuple(rng.choice(EXTENTS) for _ in range(rng.randint(1, 5)))
        if np.prod(shape) <= most:
            return shape


@pytest.mark.parametrize("seed", seeds(16))
def test_reduction(seed: int) -> None:
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    shape, dtype = draw(rng, 200_000), rng.choice(("f32", "f64"))
    axes = tuple(sorted(rng.sample(range(len(shape)), rng.randint(1, len(shape)))))
    name = rng.choice(sorted(REDUCTIONS))
    x = numbers.standard_normal(shape).astype(DTYPES[dtype][0])
    declared = [f"d{axis}" if rng.random() < 0.25 else extent for axis, extent in enumerate(shape)]
    node = helper.make_node(name, ["x", "axes"], ["y"], keepdims=0)
    source = build([node], x, DTYPES[dtype][1], {"axes": np.array(axes, np.int64)}, declared)
    got = motet.load(motet.compile(source, cache=False))(x)
    expected = REDUCTIONS[name](x.astype(np.float64), axis=axes)
    tolerance = 1e-4 if dtype == "f32" else 1e-9
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=10 * tolerance, err_msg=f"{shape} {axes}")


@pytest.mark.parametrize("name", ["ReduceMax", "ReduceLogSumExp", "ReduceProd", "ReduceSum"])
def test_an_axis_that_is_given_twice_is_reduced_once(name: str) -> None:
    x = np.random.default_rng(1).standard_normal((3, 5)).astype(np.float32)
    node = helper.make_node(name, ["x", "axes"], ["y"], keepdims=0)
    source = build([node], x, TensorProto.FLOAT, {"axes": np.array([1, -1])}, [3, 5])
    expected = {
        "ReduceMax": np.max, "ReduceSum": np.sum, "ReduceProd": np.prod, "ReduceLogSumExp": np.logaddexp.reduce,
    }[name](x, axis=1)  # fmt: skip
    np.testing.assert_allclose(motet.load(motet.compile(source, cache=False))(x), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", seeds(10))
def test_standardised_and_scaled(seed: int) -> None:
    """(x - mean) / sqrt(variance + 1e-5) * scale + shift over some axes, scale and shift along others."""
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    shape = draw(rng, 60_000)
    axes = tuple(sorted(rng.sample(range(len(shape)), rng.randint(1, len(shape)))))
    own = [extent if rng.random() < 0.5 else 1 for extent in shape]
    x = (numbers.standard_normal(shape) * 3 + 5).astype(np.float32)
    scale, shift = (numbers.standard_normal(own).astype(np.float32) for _ in range(2))
    nodes = [
        helper.make_node("ReduceMean", ["x", "axes"], ["m"]),
        helper.make_node("Sub", ["x", "m"], ["c"]),
        helper.make_node("Pow", ["c", "two"], ["s"]),
        helper.make_node("ReduceMean", ["s", "axes"], ["v"]),
        helper.make_node("Add", ["v", "epsilon"], ["e"]),
        helper.make_node("Sqrt", ["e"], ["r"]),
        helper.make_node("Div", ["c", "r"], ["n"]),
        helper.make_node("Mul", ["n", "scale"], ["g"]),
        helper.make_node("Add", ["g", "shift"], ["y"]),
    ]
    given = {"axes": np.array(axes, np.int64), "two": np.array(2, np.int64), "epsilon": np.array(1e-5, np.float32),
             "scale": scale, "shift": shift}
    got = motet.load(motet.compile(build(nodes, x, TensorProto.FLOAT, given, list(shape)), cache=False))(x)
    wide = x.astype(np.float64)
    normal = (wide - wide.mean(axes, keepdims=True)) / np.sqrt(wide.var(axes, keepdims=True) + 1e-5)
    np.testing.assert_allclose(got, normal * scale + shift, rtol=2e-3, atol=2e-3, err_msg=f"{shape} {axes}")


@pytest.mark.parametrize("groups, shape", [
    (3, (2, 12, 9, 11)), (32, (1, 64, 16, 16)), (1, (3, 5, 17)), (7, (2, 7, 3, 5, 4)), (4, (1, 8, 1, 1)),
    (16, (1, 16, 40, 41)),
])
def test_group_normalisation_is_one_kernel(groups: int, shape: tuple[int, ...]) -> None:
    numbers = np.random.default_rng(groups)
    x = (numbers.standard_normal(shape) * 2 + 1).astype(np.float32)
    per_group = shape[1] // groups
    scale, shift = (numbers.standard_normal((shape[1], *[1] * (len(shape) - 2))).astype(np.float32) for _ in range(2))
    nodes = [
        helper.make_node("Reshape", ["x", "grouped"], ["t"]),
        helper.make_node("InstanceNormalization", ["t", "ones", "zeros"], ["i"], epsilon=1e-5),
        helper.make_node("Reshape", ["i", "whole"], ["n"]),
        helper.make_node("Mul", ["n", "scale"], ["g"]),
        helper.make_node("Add", ["g", "shift"], ["y"]),
    ]
    given = {"grouped": np.array([shape[0], groups, -1], np.int64), "whole": np.array(shape, np.int64),
             "ones": np.ones(groups, np.float32), "zeros": np.zeros(groups, np.float32), "scale": scale, "shift": shift}
    artifact = motet.compile(build(nodes, x, TensorProto.FLOAT, given, list(shape)), cache=False)
    got = motet.load(artifact)(x)
    wide = x.astype(np.float64).reshape(shape[0], groups, -1)
    normal = (wide - wide.mean(2, keepdims=True)) / np.sqrt(wide.var(2, keepdims=True) + 1e-5)
    np.testing.assert_allclose(got, normal.reshape(shape) * scale + shift, rtol=1e-3, atol=1e-3)
    if per_group * int(np.prod(shape[2:])) >= 64:
        assert all(len(variant.schedules["main"].commands) == 1 for variant in artifact.manifest.variants)
