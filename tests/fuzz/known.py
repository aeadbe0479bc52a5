"""What is known to be wrong and is being mended: the fuzzer does not draw it.

An entry is taken out when its defect is mended. `--include all` draws everything.
"""

from __future__ import annotations

KNOWN: set[str] = {
    "DepthToSpace CRD",
    "Pad that cancels",
    "Clip of unsigned with one bound",
    "dynamic extents that do not fit",
    "indices outside",
}
