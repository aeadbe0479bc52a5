"""Random elements: mostly small and whole, some of any size, rarely those that few think of."""

from __future__ import annotations

import numpy as np
from tests.fuzz.dtypes import DTYPES, LARGEST, TINY, is_float
from tests.fuzz.graph import Array


def draw_values(
    numbers: np.random.Generator, dtype: str, shape: tuple[int, ...], low: float | None = None,
    high: float | None = None,
) -> Array:
    """An array of `dtype`; between `low` and `high`, both included, where they are given."""
    if dtype == "bool":
        return numbers.integers(0, 2, shape).astype(bool)
    if not is_float(dtype):
        return _integers(numbers, dtype, shape, low, high)
    style = numbers.integers(0, 10)
    begin, end = -3.0 if low is None else low, 3.0 if high is None else high
    if style < 4:
        array = numbers.uniform(begin, end, shape)
    elif style < 8 and end - begin >= 2:
        array = np.rint(numbers.uniform(begin, end, shape))
    elif low is None and high is None:
        array = numbers.normal(0, 1, shape) * 2.0 ** numbers.integers(-9, 9, shape)
    else:
        array = numbers.uniform(begin, end, shape)
    if numbers.integers(0, 12) == 0 and low is None and high is None:
        special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, LARGEST[dtype], -LARGEST[dtype], TINY[dtype], 1.0])
        array = np.where(numbers.random(shape) < 0.15, numbers.choice(special, shape), array)
    with np.errstate(all="ignore"):
        return np.asarray(array).astype(DTYPES[dtype])


def _integers(
    numbers: np.random.Generator, dtype: str, shape: tuple[int, ...], low: float | None, high: float | None
) -> Array:
    info = np.iinfo(DTYPES[dtype])
    begin = max(int(info.min), -9 if low is None else int(low))
    end = min(int(info.max), 9 if high is None else int(high))
    array = numbers.integers(begin, max(begin, end), shape, endpoint=True).astype(DTYPES[dtype])
    if low is None and high is None and numbers.integers(0, 5) == 0:
        special = np.array([info.min, info.max, info.max // 2, info.max // 3, 0, 1], DTYPES[dtype])
        array = np.where(numbers.random(shape) < 0.2, numbers.choice(special, shape), array)
    return np.asarray(array, DTYPES[dtype])
