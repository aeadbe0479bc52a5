"""Recognises Gluon programs that contain all fences (`fence_async_shared`) between the writes of threads to shared
memory and reads of it by TMA or tensor cores.

Triton otherwise searches for missing fences, in a fifth to a third of the time to compile such a program. The search is
unnecessary if every write is followed immediately by its fence, and threads do not read data that is copied in.
"""

from __future__ import annotations

import re

# `tl` and `gl` load and store tensors in global memory; `tma` starts copies and waits for them.
_READ = re.compile(r"(?<!\btl)(?<!\bgl)\.(?:load|gather)\(")
_WRITTEN = re.compile(r"(?<!\btl)(?<!\bgl)\.(?:store|scatter)\(|\ballocate_shared_memory\(.*\bvalue=")
_FENCE = "fence_async_shared()"


def fences_itself(source: str) -> bool:
    """Whether the program `source` contains all its fences."""
    if "gluon" not in source:
        return False
    lines = [line.strip() for line in source.splitlines() if line.strip()]
    return not any(
        _READ.search(line) or (_WRITTEN.search(line) and next_line != _FENCE)
        for line, next_line in zip(lines, [*lines[1:], ""], strict=True)
    )
