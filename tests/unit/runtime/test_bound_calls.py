"""Calls bound to their arguments: the results, the checks and the life of ordinary calls."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import motet
from motet.errors import CallError

PROGRAM = """
func.func @main(%x: tensor<?x4xf32>, %y: tensor<?x4xf32>) -> (tensor<?x4xf32>, tensor<?x4xf32>) {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x4xf32>
  %e = tensor.empty(%n) : tensor<?x4xf32>
  %s = linalg.add ins(%x, %y : tensor<?x4xf32>, tensor<?x4xf32>) outs(%e : tensor<?x4xf32>) -> tensor<?x4xf32>
  %p = linalg.mul ins(%x, %y : tensor<?x4xf32>, tensor<?x4xf32>) outs(%e : tensor<?x4xf32>) -> tensor<?x4xf32>
  return %s, %p : tensor<?x4xf32>, tensor<?x4xf32>
}
"""


@pytest.fixture(scope="module")
def artifact() -> motet.Artifact:
    return motet.compile(PROGRAM, devices="host{cpu=native}")


def _arrays(rows: int) -> list[np.ndarray]:
    rng = np.random.default_rng(rows)
    return [rng.standard_normal((rows, 4)).astype(np.float32) for _ in range(4)]


@pytest.mark.parametrize("rows", [0, 1, 7, 1000])
def test_each_call_reads_and_writes_the_bound_arrays(artifact: motet.Artifact, rows: int) -> None:
    x, y, total, product = _arrays(rows)
    with motet.load(artifact) as session:
        fresh, into = session.bind(x, y), session.main.bind(x, y, out=(total, product))
        for value in (1.0, -2.5):
            x[:] = value
            into()
            for found in (fresh(), (total, product)):
                np.testing.assert_array_equal(found[0], x + y)
                np.testing.assert_array_equal(found[1], x * y)


def test_repeated_calls_take_memory_for_some_results_or_all(artifact: motet.Artifact) -> None:
    x, y, total, product = _arrays(6)
    refused = {
        "out: 1 given, 2 expected": (total,), "out: 3 given": (total, product, None),
        "out for result 1 shares memory with result 0": (total, total),
        "out for result 1 shares memory with argument 0": [None, x],
        r'result 0 \("result0"\): shape 5x4 given': (total[:5], None),
        r'result 1 \("result1"\): dtype f64 given': (total, product.astype(np.float64)),
    }
    with motet.load(artifact) as session:
        for value in (1.0, -2.5, 0.5, 3.0):
            x[:] = value
            for out in ((total, product), [total, product], (total, None), (None, product), (None, None), None):
                total[:] = product[:] = 0
                found = session(x, y, out=out)
                for index, given in enumerate(out or ()):
                    assert given is None or found[index] is given
                np.testing.assert_array_equal(found[0], x + y)
                np.testing.assert_array_equal(found[1], x * y)
            for message, out in refused.items():
                with pytest.raises(CallError, match=message):
                    session(x, y, out=out)


def test_other_extents_have_calls_of_their_own(artifact: motet.Artifact) -> None:
    with motet.load(artifact) as session:
        bound = {rows: session.bind(*_arrays(rows)[:2]) for rows in (3, 5, 8)}
        for _ in range(3):
            for rows, call in bound.items():
                x, y, *_ = _arrays(rows)
                np.testing.assert_array_equal(call()[1], x * y)


def test_strided_arrays_and_lists_of_destinations(artifact: motet.Artifact) -> None:
    x, y, total, product = _arrays(6)
    with motet.load(artifact) as session:
        strided = session.bind(x[::2], y[::2], out=[total[::2].copy(), None])
        np.testing.assert_array_equal(strided()[1], x[::2] * y[::2])
        other = session.bind(x[::2], y[::2], out=(total[:3], product[:3]))
        np.testing.assert_array_equal(other()[0], x[::2] + y[::2])
        np.testing.assert_array_equal(product[:3], x[::2] * y[::2])


def test_wrong_arguments_are_refused_when_bound(artifact: motet.Artifact) -> None:
    x, y, total, product = _arrays(6)
    with motet.load(artifact) as session:
        for arguments, out in (
            ((x,), None), ((x, y[:5]), None), ((x, y.astype(np.float64)), None), ((x, y), (total,)),
            ((x, y), (total[:4], product)), ((x, y), (x, product)), ((x, y), (total, total)),
        ):
            with pytest.raises(CallError):
                session.bind(*arguments, out=out)()


def test_a_bound_call_of_a_closed_session_is_an_error(artifact: motet.Artifact) -> None:
    x, y, total, product = _arrays(9)
    with motet.load(artifact) as session:
        calls = [session.bind(x, y), session.bind(x, y, out=(total, product)), session.main.bind(x, y)]
        for call in calls:
            call()
    for call in calls:
        with pytest.raises(CallError, match="main: the session is closed"):
            call()


def test_a_bound_call_outlives_a_session_that_nobody_closes(artifact: motet.Artifact) -> None:
    x, y, *_ = _arrays(9)
    call = motet.load(artifact).bind(x, y)
    gc.collect()
    np.testing.assert_array_equal(call()[0], x + y)
