"""Places blocks in clusters of two, on neighbouring SMs that share a path to the second-level cache, so that data read
by both at the same time arrives faster.

The program's text is that of one block, and blocks do not communicate. Triton's own clusters are one program each.
Source: PTX ISA, ".explicitcluster", ".reqnctapercluster".
"""

from __future__ import annotations

import re

_REGISTERS = re.compile(r"^\.maxnreg \d+\n", re.MULTILINE)  # the last launch directive of an entry


def clustered(ptx: str, blocks: int) -> str:
    """Make launches of the only kernel in `ptx` clusters of `blocks`. Raises ValueError if the kernel does not declare
    its registers per thread (`.maxnreg`)."""
    found = _REGISTERS.search(ptx)
    if found is None:
        raise ValueError("PTX of a kernel of clusters has no .maxnreg")
    return f"{ptx[: found.end()]}.explicitcluster\n.reqnctapercluster {blocks}\n{ptx[found.end() :]}"
