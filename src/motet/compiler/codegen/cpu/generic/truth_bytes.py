"""Loads and stores truth values as bytes: LLVM's vectorisers take no loop that loads an `i1`.

    %5 = load i1, ptr %4, align 1          →    %truth.1 = load i8, ptr %4, align 1
                                                %5 = trunc i8 %truth.1 to i1
    store i1 %5, ptr %6, align 1           →    %truth.2 = zext i1 %5 to i8
                                                store i8 %truth.2, ptr %6, align 1
"""

from __future__ import annotations

import itertools
import re

_MOVE = re.compile(r"^(\s*)(?:(%[\w.]+) = load i1|store i1 ([^,]+)), (ptr .*)$", re.MULTILINE)


def load_truth_as_bytes(text: str) -> str:
    """The LLVM IR `text` with the bytes in memory that truth values are: 0 and 1."""
    numbers = itertools.count(1)

    def moved(found: re.Match[str]) -> str:
        indent, loaded, stored, place = found.groups()
        byte = f"%truth.{next(numbers)}"
        if loaded is not None:
            return f"{indent}{byte} = load i8, {place}\n{indent}{loaded} = trunc i8 {byte} to i1"
        return f"{indent}{byte} = zext i1 {stored} to i8\n{indent}store i8 {byte}, {place}"

    return _MOVE.sub(moved, text)
