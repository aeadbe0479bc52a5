"""Chains of element-wise work that meet in one operation: one kernel, and the right numbers."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.compiler.building import TARGETS, random

from motet import builder as mb
from motet.artifact.writer import write_artifact
from motet.compiler import pipeline
from motet.compiler.ir._mlir import ir
from motet.compiler.targets.cpu import CpuTarget
from motet.runtime import Session, load

pytestmark = pytest.mark.usefixtures("all_levels")


def compiled(graph: mb.Graph, target: CpuTarget) -> tuple[Session, list[str]]:
    """A session, and the classes that the kernels took."""
    program = graph.program()
    with program.module.context, ir.Location.unknown():
        built = pipeline.build(program, [target], 1, lambda what, fraction: None)
    kernels = built.manifest.variants[0].kernels
    return load(write_artifact(built.manifest, built.members, built.parameters)), [kernel.kind for kernel in kernels]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(9, 100), (1, 33), (17, 1)])
def test_chains_that_meet_are_one_kernel(target: CpuTarget, shape: tuple[int, int]) -> None:
    with mb.Graph("gate") as graph:
        x, y, z = (graph.input(name, shape, "f32") for name in "xyz")
        gate = mb.sigmoid(y)
        graph.result(mb.relu(x * x + y) * gate - mb.tanh(z), name="r")
        graph.result(gate, name="gate")
    session, kinds = compiled(graph, target)
    assert len(kinds) == 1
    a, b, c = (random(*shape, seed=seed) for seed in range(3))
    result, gated = session(a, b, c)
    wide = [array.astype(np.float64) for array in (a, b, c)]
    expected = np.maximum(wide[0] ** 2 + wide[1], 0) * sigmoid(wide[1]) - np.tanh(wide[2])
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(gated, sigmoid(wide[1]), rtol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_a_chain_that_meets_a_softmax_is_part_of_it(target: CpuTarget) -> None:
    with mb.Graph("gated") as graph:
        x, y = (graph.input(name, (7, 53), "f32") for name in "xy")
        graph.result(mb.softmax(x, axis=-1) * mb.sigmoid(y), name="r")
    session, kinds = compiled(graph, target)
    assert kinds == ["rows"]
    a, b = random(7, 53, seed=1), random(7, 53, seed=2)
    e = np.exp(a.astype(np.float64) - a.max(-1, keepdims=True))
    np.testing.assert_allclose(session(a, b), e / e.sum(-1, keepdims=True) * sigmoid(b), rtol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_chains_of_which_one_waits_for_the_other_stay_apart(target: CpuTarget) -> None:
    """The second chain reads a product of the first one: one kernel of both would wait for itself."""
    weights = random(5, 5, seed=3)
    with mb.Graph("waits") as graph:
        x, y = (graph.input(name, (5, 5), "f32") for name in "xy")
        first = mb.tanh(x)
        second = mb.sigmoid(first @ graph.constant(weights) + y) * y
        graph.result(first * second, name="r")
    a, b = random(5, 5, seed=1), random(5, 5, seed=2)
    wide = np.tanh(a.astype(np.float64))
    expected = wide * (sigmoid(wide @ weights.astype(np.float64) + b) * b)
    np.testing.assert_allclose(compiled(graph, target)[0](a, b), expected, rtol=1e-4, atol=1e-5)
