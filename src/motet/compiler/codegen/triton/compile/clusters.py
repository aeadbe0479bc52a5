"""Programs whose blocks are placed in pairs, clusters of two: beside each other, on processors that share a way to the
second-level cache, so that what both read at a time comes faster.

The text is that of one block, as without; blocks tell one another nothing. Triton's own clusters are one program each.
Source: PTX ISA, ".explicitcluster", ".reqnctapercluster".
"""

from __future__ import annotations

import re

_REGISTERS = re.compile(r"^\.maxnreg \d+\n", re.MULTILINE)  # the last of what an entry says of its launch


def clustered(ptx: str, blocks: int) -> str:
    """The text of a module with one kernel, whose launches are clusters of `blocks`. Raises ValueError for one that
    does not say how many registers its threads have."""
    found = _REGISTERS.search(ptx)
    if found is None:
        raise ValueError("PTX of a kernel of clusters has no .maxnreg")
    return f"{ptx[: found.end()]}.explicitcluster\n.reqnctapercluster {blocks}\n{ptx[found.end() :]}"
