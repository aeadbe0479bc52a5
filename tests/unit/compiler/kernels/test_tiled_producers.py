"""Element-wise stages before split reductions loop as these do, and results stay as they were."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.compiler.codegen.cpu.harness import build, native_target
from tests.unit.compiler.codegen.cpu.kernels import at, kernel, op, softmax, stage, value

from motet.compiler.codegen.cpu.rows import loops
from motet.compiler.kernels.split_reductions import split_reductions
from motet.compiler.kernels.tiled_producers import tile_producers


def test_an_exponential_and_its_sum_run_together() -> None:
    split = split_reductions(softmax(1, 1 << 17))
    tiled = tile_producers(split)
    changed = [n for n, (a, b) in enumerate(zip(split.stages, tiled.stages, strict=True)) if a != b]
    (number,) = changed
    assert tiled.stages[number].sizes == tiled.stages[number + 1].sizes
    phases = loops.choose(loops.match(softmax(1, 1 << 17), native_target()), native_target())
    assert phases is not None and any(phase.by_rows and phase.stages == 2 for phase in phases.phases)


@pytest.mark.parametrize("rows, columns", [(1, 100_000), (3, 40_961), (2, 131_072), (1, 99_991), (5, 30_000)])
def test_softmax_of_few_long_rows(rows: int, columns: int) -> None:
    x = (np.random.default_rng(columns).standard_normal((rows, columns)) * 5).astype(np.float32)
    x[0, 7] = -np.inf
    (got,) = build(loops.CLASS.generate, softmax(rows, columns))(x, split=3)
    wide = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(got, wide / wide.sum(1, keepdims=True), rtol=2e-5, atol=1e-30)


@pytest.mark.parametrize("offset, read", [(1, 0), (0, 1)])
def test_other_points_stay_as_they_are(offset: int, read: int) -> None:
    """A reduction that reads other points than the stage before has written, and one that reads something else."""
    n = 1 << 17
    entry = (offset, {0: 1})
    found = kernel(
        [value((n,)), value((n + 1,)), value((), role="result"), value((n + 1,), role="temporary")],
        stage((n + 1,), "p", [at(1, 1, 0)], [at(3, 1, 0)], [op("math.exp", 0)]),
        stage((n,), "r", [at((3, 0)[read], 1, entry)], [at(2, 1)], [op("addf", 0, 1)], inits=[0.0]),
    )
    split = split_reductions(found)
    assert split is not found
    assert tile_producers(split) is split
