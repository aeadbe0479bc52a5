"""Operators of many operands, against numpy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import helper

import motet
from motet.compiler.frontends.onnx import many_operands
from motet.compiler.frontends.onnx.model import OnnxModel
from motet.compiler.frontends.onnx.writing import ModelFacts

RANDOM = np.random.default_rng(5)


def model_of(op: str, operands: Sequence[str], arrays: dict[str, np.ndarray], **attributes: int) -> onnx.ModelProto:
    kind = helper.np_dtype_to_tensor_dtype(next(iter(arrays.values())).dtype)
    graph = helper.make_graph(
        [helper.make_node(op, operands, ["y"], "n", **attributes)], "g",
        [helper.make_tensor_value_info(name, kind, array.shape) for name, array in arrays.items()],
        [helper.make_tensor_value_info("y", kind, None)],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def run(op: str, operands: Sequence[str], arrays: dict[str, np.ndarray], **attributes: int) -> np.ndarray:
    session = motet.load(motet.compile(model_of(op, operands, arrays, **attributes)))
    return np.asarray(session(*arrays.values()))


def named(*arrays: np.ndarray) -> dict[str, np.ndarray]:
    return {f"x{number}": array for number, array in enumerate(arrays)}


def random(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("op", "reference"), [("Sum", np.sum), ("Max", np.max), ("Min", np.min), ("Mean", np.mean)])
@pytest.mark.parametrize("count", [4, 33, 100])
def test_operands_of_several_shapes(op: str, reference: np.ufunc, count: int) -> None:
    arrays = named(*(random(*[(3, 4), (4,), (3, 1), (1, 1, 4)][number % 4]) for number in range(count)))
    wide = np.stack([np.broadcast_to(array, (1, 3, 4)).astype(np.float64) for array in arrays.values()])
    np.testing.assert_allclose(run(op, list(arrays), arrays), reference(wide, axis=0), rtol=1e-5, atol=1e-5)


def test_a_mean_of_narrow_numbers_does_not_overflow() -> None:
    arrays = named(*[np.full(4, 30000, np.float16)] * 5)
    np.testing.assert_array_equal(run("Mean", list(arrays), arrays), arrays["x0"])


def test_repeated_operands() -> None:
    arrays = named(random(4), random(4))
    operands = ["x0", "x1", "x0"] * 700
    expected = 1400 * arrays["x0"].astype(np.float64) + 700 * arrays["x1"].astype(np.float64)
    np.testing.assert_allclose(run("Sum", operands, arrays), expected, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_a_concatenation_of_repeated_operands(axis: int) -> None:
    arrays = named(random(2, 3), random(2, 3))
    operands = ["x0"] * 200 + ["x1", "x0"] * 40
    expected = np.concatenate([arrays[name] for name in operands], axis)
    np.testing.assert_array_equal(run("Concat", operands, arrays, axis=axis), expected)


def test_a_concatenation_of_different_operands() -> None:
    arrays = named(*(random(1 + number % 5) for number in range(150)))
    np.testing.assert_array_equal(run("Concat", list(arrays), arrays, axis=0), np.concatenate([*arrays.values()]))


@pytest.mark.parametrize(("distinct", "most"), [(1, 8), (7, 120), (100_000, 3300)])
def test_nodes_of_a_sum_of_very_many_operands(distinct: int, most: int) -> None:
    operands = [f"x{number % distinct}" for number in range(100_000)]
    proto = model_of("Sum", operands, dict.fromkeys(operands, random(4)))
    facts = ModelFacts(OnnxModel(proto, "sum.onnx"), {}, {}, {})
    made = many_operands.RULES["Sum"](proto.graph.node[0], facts)
    assert made is not None and len(made) <= most
    assert max(len(node.input) for node in made) <= 32
