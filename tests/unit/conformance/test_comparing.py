"""The judge accepts what rounding explains, and nothing else."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from conformance.comparing import compare
from conformance.results import Wrong

ONE = np.ones(3, np.float32)
TOLERANCE = (1e-3, 1e-7)


@pytest.mark.parametrize(("result", "expected"), [
    (ONE, ONE), (ONE * np.float32(1 + 1e-6), ONE), (np.array([np.nan, np.inf]), np.array([np.nan, np.inf])),
    (np.zeros((0, 3)), np.zeros((0, 3))), ([ONE], [ONE]), (None, None),
    (np.array(0.404297, ml_dtypes.bfloat16), np.array(0.400391, ml_dtypes.bfloat16)),
    (np.array([1, -2], ml_dtypes.int4), np.array([1, -2], ml_dtypes.int4)),
    (np.array([1e-9, 1e3], np.float32), np.array([0, 1e3], np.float32)),
])
def test_equal_but_for_rounding(result: object, expected: object) -> None:
    assert compare([result], [expected], *TOLERANCE) == ""


def test_the_suites_tolerance_is_enough_and_noted() -> None:
    assert compare([ONE * np.float32(1.0005)], [ONE], *TOLERANCE) == "result 0: 3 of 3 elements within 0.001 only"


@pytest.mark.parametrize(("result", "expected", "text"), [
    (ONE, ONE.astype(np.float64), "type float32, expected float64"),
    (ONE, ONE.reshape(3, 1), "shape (3,), expected (3, 1)"),
    (ONE * np.float32(1.01), ONE, "3 of 3 elements differ, the first at [0]"),
    (np.array([np.nan]), np.array([1.0]), "1 of 1"),
    (np.array([np.inf]), np.array([-np.inf]), "1 of 1"),
    (np.array([3e38], np.float32), np.array([np.inf], np.float32), "1 of 1"),
    (np.array([1, 2]), np.array([1, 3]), "the first at [1]: 2, expected 3"),
    (np.array([1], ml_dtypes.uint4), np.array([2], ml_dtypes.uint4), "1 of 1"),
    (np.array([1.0], ml_dtypes.float8_e4m3fn), np.array([1.125], ml_dtypes.float8_e4m3fn), "1 of 1"),
    ([ONE], [ONE, ONE], "1 results, expected 2"), (ONE, [ONE], "a tensor, expected a sequence of 1"),
    (None, ONE, "nothing, expected a tensor"),
])
def test_what_differs(result: object, expected: object, text: str) -> None:
    with pytest.raises(Wrong) as difference:
        compare([result], [expected], *TOLERANCE)
    assert text in str(difference.value)
