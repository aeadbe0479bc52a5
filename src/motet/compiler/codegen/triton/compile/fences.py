"""Programs in Gluon that say themselves where what threads wrote to shared memory is read by the copy engine or by
tensor cores (`fence_async_shared`).

Triton looks for places without, in a fifth to a third of the time that such a program takes to compile. Where every
write is followed by its fence at once, and threads read nothing that is copied in, there is nothing to find.
"""

from __future__ import annotations

import re

# Of tensors in global memory `tl` and `gl` load and store, `tma` starts copies and waits for them.
_READ = re.compile(r"(?<!\btl)(?<!\bgl)\.(?:load|gather)\(")
_WRITTEN = re.compile(r"(?<!\btl)(?<!\bgl)\.(?:store|scatter)\(|\ballocate_shared_memory\(.*\bvalue=")
_FENCE = "fence_async_shared()"


def fences_itself(source: str) -> bool:
    """Whether `source`, the text of a program, is such a one."""
    if "gluon" not in source:
        return False
    lines = [line.strip() for line in source.splitlines() if line.strip()]
    return not any(
        _READ.search(line) or (_WRITTEN.search(line) and next_line != _FENCE)
        for line, next_line in zip(lines, [*lines[1:], ""], strict=True)
    )
