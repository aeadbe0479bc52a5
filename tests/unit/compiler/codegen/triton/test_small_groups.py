"""Independent small kernels, and reductions of the same rows, are one launch, by Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from tests.unit.compiler.codegen.triton.building import generate, interpret, random

from motet import builder as mb
from motet.builder.graph import Tensor

Shape = tuple[int, ...]
SHAPES: list[Shape] = [(33, 7), (5,), (3000,), (2, 3, 4)]


def text_of(make: Callable[..., Sequence[Tensor]], shapes: Sequence[Shape]) -> str:
    with mb.Graph("main") as graph:
        inputs = [graph.input(f"x{number}", shape, "f32") for number, shape in enumerate(shapes)]
        for number, value in enumerate(make(*inputs)):
            graph.result(value, name=f"r{number}")
    return str(graph.program().module)


def step(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> list[Tensor]:
    m, v = m * 0.9 + g * 0.1, v * 0.999 + g * g * 0.001
    return [p - m / (mb.sqrt(v) + 1e-3), m, v]


def test_a_step_of_an_optimiser_is_one_launch() -> None:
    count = len(SHAPES)
    shapes = [shape for shape in SHAPES for _ in range(4)]
    made = generate(text_of(lambda *t: [r for n in range(count) for r in step(*t[4 * n : 4 * n + 4])], shapes))
    assert len(made.schedule.commands) == 1
    given = [abs(random(*shape, seed=number)) for number, shape in enumerate(shapes)]
    got = interpret(made, given)
    for n in range(count):
        p, g, m, v = (each.astype(np.float64) for each in given[4 * n : 4 * n + 4])
        m, v = m * 0.9 + g * 0.1, v * 0.999 + g * g * 0.001
        for one, expected in zip(got[3 * n :], [p - m / (np.sqrt(v) + 1e-3), m, v], strict=False):
            np.testing.assert_allclose(one, expected, rtol=1e-5, atol=1e-6)


def norms(*tensors: Tensor) -> list[Tensor]:
    sums = [mb.reshape(mb.sqrt(mb.reduce_sum(x * x, list(range(len(x.shape))))), (1,)) for x in tensors]
    return [mb.concat(sums, 0)]


@pytest.mark.parametrize("shapes, count", [(SHAPES, 1), ([*SHAPES, (300, 301), (70001,)], 2)])
def test_norms_of_tensors_are_one_launch_and_one_for_long_ones(shapes: list[Shape], count: int) -> None:
    made = generate(text_of(norms, shapes))
    assert len(made.schedule.commands) == count
    given = [random(*shape, seed=number) for number, shape in enumerate(shapes)]
    (got,) = interpret(made, given)
    np.testing.assert_allclose(got, [np.linalg.norm(x.astype(np.float64).ravel()) for x in given], rtol=1e-5)


def test_what_waits_for_another_is_a_later_launch() -> None:
    def sums_and_products(a: Tensor, b: Tensor) -> list[Tensor]:
        return [mb.reduce_sum(a, [0]) + 1.0, b * 2.0, mb.reduce_sum(a, [0]) * b]

    made = generate(text_of(sums_and_products, [(40, 6), (6,)]))
    a, b = random(40, 6), random(6, seed=1)
    sums = a.astype(np.float64).sum(0)
    for got, expected in zip(interpret(made, [a, b]), [sums + 1, b * 2, sums * b], strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape, count", [((40, 30), 1), ((3, 1), 1), ((70001,), 2)])
def test_extremes_of_one_tensor_are_read_at_once(shape: Shape, count: int) -> None:
    axes = [len(shape) - 1]
    made = generate(text_of(lambda x: [mb.reduce_min(x, axes), mb.reduce_max(x, axes)], [shape]))
    assert len(made.schedule.commands) == count
    x = random(*shape)
    low, high = interpret(made, [x])
    np.testing.assert_array_equal(low, x.min(-1))
    np.testing.assert_array_equal(high, x.max(-1))
