"""Kernels that write their result over what they read: only where they may, and with the same numbers."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from examples.models import Graph

import motet
from motet.artifact.schema import Schedule

pytestmark = pytest.mark.usefixtures("all_levels")

SHAPES = [(1, 1, 1), (3, 17, 5), (64, 64, 1031), (2, 33, 128), (300, 7, 2000)]


def softmax(y: np.ndarray) -> np.ndarray:
    e = np.exp(y - y.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def normalised(y: np.ndarray) -> np.ndarray:
    return (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-5)


def between(operation: str, rows: int, depth: int, columns: int) -> onnx.ModelProto:
    """A product, `operation` on it, and a product of that."""
    g = Graph("between")
    y = g.add("MatMul", ["x", "w"])
    if operation == "softmax":
        y = g.add("Abs", [g.add("Softmax", [y], axis=-1)])  # or all were one kernel of attention
    else:
        ones = [g.constant(np.full(columns, value, np.float32)) for value in (1.0, 0.0)]
        y = g.add("LayerNormalization", [y, *ones], axis=-1, epsilon=1e-5)
    z = g.add("MatMul", [y, "v"])
    return g.model(
        {"x": (rows, depth), "w": (depth, columns), "v": (columns, depth)}, {z: (rows, depth)}
    )


def updates(schedule: Schedule) -> int:
    """How many commands write a buffer that they read."""
    return sum(
        bool({*command.buffers[: command.reads]} & {*command.buffers[command.reads :]})
        for command in schedule.commands
    )


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
@pytest.mark.parametrize("operation", ["softmax", "layernorm"])
def test_rows_are_written_over_themselves(operation: str, shape: tuple[int, int, int]) -> None:
    rows, depth, columns = shape
    artifact = motet.compile(between(operation, *shape))
    random = np.random.default_rng(columns)
    x, w, v = (
        random.standard_normal(size).astype(np.float32) for size in ((rows, depth), (depth, columns), (columns, depth))
    )
    y = x.astype(np.float64) @ w
    wanted = (softmax(y) if operation == "softmax" else normalised(y)) @ v
    session = motet.load(artifact)
    for _ in range(2):
        np.testing.assert_allclose(session(x, w, v), wanted, rtol=1e-3, atol=2e-4 * np.abs(wanted).max())
    (schedule,) = artifact.manifest.variants[0].schedules.values()
    if shape == (64, 64, 1031):
        assert updates(schedule) == 1
        assert schedule.arena == -(-rows * columns * 4 // 64) * 64


def test_what_others_still_read_is_not_written_over() -> None:
    g = Graph("read_twice")
    y = g.add("MatMul", ["x", "x"])
    s = g.add("Softmax", [y], axis=-1)
    z = g.add("MatMul", [s, y])
    model = g.model({"x": (65, 65)}, {z: (65, 65)})
    artifact = motet.compile(model)
    x = np.random.default_rng(0).standard_normal((65, 65)).astype(np.float32)
    y64 = x.astype(np.float64) @ x
    wanted = softmax(y64) @ y64
    np.testing.assert_allclose(motet.load(artifact)(x), wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max())
    assert not any(updates(schedule) for schedule in artifact.manifest.variants[0].schedules.values())


def test_rows_that_need_other_rows_are_not_written_over_them() -> None:
    """Each row is divided by the sum of the row with its column's number: s[i, j] = y[i, j] / sum(y[j, :])."""
    g = Graph("crossed")
    y = g.add("MatMul", ["x", "w"])
    e = g.add("Exp", [y])
    total = g.add("ReduceSum", [e, g.constant(np.array([-1], np.int64))], keepdims=0)
    s = g.add("Div", [e, total])
    z = g.add("MatMul", [s, "w"])
    artifact = motet.compile(g.model({"x": (67, 67), "w": (67, 67)}, {z: (67, 67)}))
    random = np.random.default_rng(1)
    x, w = (random.standard_normal((67, 67)).astype(np.float32) / 8 for _ in range(2))
    e64 = np.exp(x.astype(np.float64) @ w)
    wanted = (e64 / e64.sum(-1)) @ w
    for _ in range(3):
        np.testing.assert_allclose(motet.load(artifact)(x, w), wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max())
