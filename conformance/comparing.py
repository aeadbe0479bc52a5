"""Compares results with expected ones: type, shape and values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from conformance.results import Wrong

# Relative to an element, or to a twentieth of the largest element, for sums with cancellation.
CLOSE = {"float64": 1e-6, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2, "complex64": 1e-5, "complex128": 1e-6}
SMALL = 1e-7  # errors up to this never count
EXACT_KINDS = "biuOSUT"


def compare(results: Sequence[Any], expected: Sequence[Any], relative: float, absolute: float) -> str:
    """Raises Wrong unless `results` equal `expected` up to `absolute` plus `relative` times an element, or up to what
    the type's precision explains (`CLOSE`), if that is more. Returns a note if an error is more than the precision
    explains, else "". Lists of arrays represent sequences, None an absent value."""
    if len(results) != len(expected):
        raise Wrong(f"{len(results)} results, expected {len(expected)}")
    notes = [
        _compare_value(f"result {index}", result, wanted, relative, absolute)
        for index, (result, wanted) in enumerate(zip(results, expected, strict=True))
    ]
    return next(filter(None, notes), "")


def _compare_value(where: str, result: Any, wanted: Any, relative: float, absolute: float) -> str:
    if wanted is None or result is None:
        if wanted is not result:
            raise Wrong(f"{where}: {_kind(result)}, expected {_kind(wanted)}")
        return ""
    if isinstance(wanted, (list, tuple)):
        if not isinstance(result, (list, tuple)):
            raise Wrong(f"{where}: {_kind(result)}, expected a sequence of {len(wanted)}")
        try:
            return compare(result, wanted, relative, absolute)
        except Wrong as difference:
            raise Wrong(f"{where}: {difference}") from None
    return compare_arrays(where, np.asarray(result), np.asarray(wanted), relative, absolute)


def compare_arrays(where: str, result: np.ndarray, wanted: np.ndarray, relative: float, absolute: float) -> str:
    """`compare` for one array, named `where` in messages."""
    if result.dtype != wanted.dtype:
        raise Wrong(f"{where}: type {result.dtype}, expected {wanted.dtype}")
    if result.shape != wanted.shape:
        raise Wrong(f"{where}: shape {result.shape}, expected {wanted.shape}")
    name = wanted.dtype.name
    if wanted.dtype.kind in EXACT_KINDS or name.removeprefix("u").startswith("int"):
        _refuse(where, result, wanted, result != wanted)
        return ""
    a, b = _wide(result), _wide(wanted)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(all="ignore"):
        error = np.where(same, 0.0, np.abs(a - b))
    error = np.where(np.isnan(error), np.inf, error)
    size = np.where(np.isfinite(b), np.abs(b), 0.0)
    close = SMALL + CLOSE.get(name, relative) * np.maximum(size, 0.05 * size.max(initial=0.0))
    _refuse(where, result, wanted, error > np.maximum(close, absolute + relative * size))
    loose = error > close
    return f"{where}: {loose.sum()} of {loose.size} elements within {relative:g} only" if loose.any() else ""


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _refuse(where: str, result: np.ndarray, wanted: np.ndarray, differs: np.ndarray) -> None:
    differs = np.asarray(differs)
    if differs.any():
        at = tuple(int(i) for i in np.argwhere(differs)[0])
        raise Wrong(f"{where}: {differs.sum()} of {differs.size} elements differ, the first at {list(at)}: "
                    f"{result[at]}, expected {wanted[at]}")


def _kind(value: Any) -> str:
    return "nothing" if value is None else "a sequence" if isinstance(value, (list, tuple)) else "a tensor"
