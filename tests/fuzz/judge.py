"""Whether results are what the reference allows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tests.fuzz.dtypes import DTYPES
from tests.fuzz.graph import Array
from tests.fuzz.tracked import Tracked


def fault(found: Sequence[Array], wanted: Sequence[Tracked]) -> str:
    """What is wrong with the first result that is; empty where all are right."""
    if len(found) != len(wanted):
        return f"{len(found)} results, expected {len(wanted)}"
    for number, (mine, want) in enumerate(zip(found, wanted, strict=True)):
        if mine.shape != want.shape or mine.dtype.itemsize != DTYPES[want.dtype].itemsize:
            return f"result {number}: {mine.dtype}{list(mine.shape)}, expected {want.dtype}{list(want.shape)}"
        typed = mine if mine.dtype == DTYPES[want.dtype] else mine.view(DTYPES[want.dtype])
        wrong = misses(typed, want)
        if wrong.any():
            place = tuple(int(i) for i in np.argwhere(wrong)[0])
            within = f" ± {want.error[place]:.2g}" if want.is_float else ""
            return (
                f"result {number}: {int(wrong.sum())} of {wrong.size} wrong, the first at {list(place)}: "
                f"{typed[place]}, expected {want.value[place]}{within}"
            )
    return ""


def misses(found: Array, wanted: Tracked) -> Array:
    """Which elements of `found`, of the type of `wanted`, are none of those that are right."""
    if not wanted.is_float:
        return (found != wanted.value) & ~wanted.unknown
    with np.errstate(all="ignore"):
        value = found.astype(np.float64)
        same = (value == wanted.value) | (np.isnan(value) & np.isnan(wanted.value))
        close = np.abs(value - wanted.value) <= wanted.error
        overflown = np.isinf(value) & (np.signbit(value) == np.signbit(wanted.value))
    return ~np.where(wanted.overflows, overflown, same | close | wanted.unknown)
