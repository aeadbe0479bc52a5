"""Whether numbers are as near to exact ones as their type allows."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

_UNITS = {"float16": 2.0**-9, "bfloat16": 2.0**-6}  # two of the last place
_TINY = {"float16": 2.0**-23, "bfloat16": 1e-38, "float32": 1e-37}


def misses(found: np.ndarray, exact: np.ndarray, relative: float, mixed: bool) -> np.ndarray:
    """Which elements of `found`, floats of any type, are too far from `exact`, in float64.

    Narrow types may be wrong in two units of the last place, float32 in `relative`, float64 in a millionth of it and
    1e-12 more; of each element, or with `mixed` of the largest. What does not fit the type may be an infinity, or the
    largest number there is.
    """
    kind = found.dtype.name
    with np.errstate(all="ignore"):
        value, target = found.astype(np.float64), exact.astype(np.float64)
        size = np.abs(np.where(np.isfinite(target), target, 0))
        if mixed and size.size:
            size = np.maximum(size, size.max())
        units = _UNITS.get(kind, relative if kind == "float32" else 1e-12 + relative * 1e-6)
        close = np.abs(value - target) <= units * size + _TINY.get(kind, 1e-300)
        same = (value == target) | (np.isnan(value) & np.isnan(target))
        limit = _largest(found.dtype)
        over = (np.abs(target) > limit) & (np.abs(value) >= limit * 0.99) & (np.sign(value) == np.sign(target))
    return ~(close | same | over)


def _largest(dtype: np.dtype[Any]) -> float:
    return float(ml_dtypes.finfo(dtype).max)
