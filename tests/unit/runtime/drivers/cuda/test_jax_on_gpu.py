"""On a GPU: calls with arrays of JAX, which reuses the memory of an array as soon as nobody keeps it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.unit.runtime.drivers.cuda.handmade import affine_chain, expected_chain

from motet.runtime import load
from motet.runtime.device import probe

_GPUS = probe("cuda")
pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not _GPUS[0].available, reason=_GPUS[0].reason)]

jax: Any = pytest.importorskip("jax", reason="needs JAX: make frameworks") if _GPUS[0].available else None


@pytest.fixture(autouse=True)
def needs_jax_for_gpus() -> None:
    if jax.default_backend() != "gpu":
        pytest.skip("this JAX works on processors alone")


def vector(count: int, seed: int) -> Any:
    return jax.numpy.asarray(np.random.default_rng(seed).integers(-99, 99, count, np.int32))


@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("rows", [None, 1009])
def test_results_are_arrays_of_the_gpu(length: int, rows: int | None) -> None:
    with load(affine_chain(length, rows=rows), devices="cuda:0") as session:
        for turn in range(20):
            x = vector(rows or 1 + turn % 3 * 100, turn)
            y = session(x)
            assert isinstance(y, jax.Array) and y.devices() == x.devices() and y.dtype == np.int32
            np.testing.assert_array_equal(np.asarray(y + 1), expected_chain(np.asarray(x), length) + 1)
            assert isinstance(session.submit(x).result(), jax.Array)


def test_arrays_that_nobody_keeps_are_read_before_they_are_used_again() -> None:
    count, length = 1 << 22, 2
    with load(affine_chain(length, rows=count), devices="cuda:0") as session:
        x = vector(count, 0)
        results = []
        for turn in range(40):
            results.append(session(x + turn))  # the sum is in memory that JAX may give to the next one
            del results[:-4]
            _ = x * turn
        for turn, result in enumerate(results, start=36):
            np.testing.assert_array_equal(np.asarray(result), expected_chain(np.asarray(x) + turn, length))
