"""What is known to be wrong and is being mended: the fuzzer does not draw it.

An entry is taken out when its defect is mended. `--include all` draws everything.
"""

from __future__ import annotations

from tests.fuzz.registry import Rejected

KNOWN: set[str] = {
    "DepthToSpace CRD",
    "Pad that cancels",
    "Clip of unsigned with one bound",
    "dynamic extents that do not fit",
    "indices outside",
    "CumSum exclusive of floats",
    "Reshape of a scalar to a scalar",
    "Reshape with an extent of 0",
    "products with an extent of 0",
    "ScatterElements with an extent of 0",
    "Einsum of one dynamic extent twice",
    "functions of constants alone",
    "Equal of a value and itself",
    "MaxPool of integers in 3-D",
    "Neg of large integers",
    "Cast of floats to u8",
    "Abs of unsigned",
    "extents that share a name",
}


def avoid(name: str) -> None:
    """Says that what is drawn is what is known by `name`."""
    if name in KNOWN:
        raise Rejected(name)
