"""Moves the variables in workgroup memory of a block to the dynamic memory that the launch requests.

    @a = internal addrspace(3) global [64 x float] undef        @motet_shared = external addrspace(3) global [0 x i8]
    … ptr addrspace(3) @a …                                  →  … ptr addrspace(3) getelementptr (i8, …, i64 256) …

Static variables are limited to 48 KiB together; dynamic memory is limited by the GPU.
"""

from __future__ import annotations

import math
import re

_GLOBAL = re.compile(
    r"^(@[\w.$-]+) = (?:internal|private) (?:unnamed_addr )?addrspace\(3\) global (.+?) undef(?:, align (\d+))?$",
    re.MULTILINE,
)
_COUNT = re.compile(r"\[(\d+) x ")
_VECTOR = re.compile(r"<(\d+) x (\w+)>")
_BYTES = {"i1": 1, "i8": 1, "i16": 2, "half": 2, "bfloat": 2, "i32": 4, "float": 4, "i64": 8, "double": 8, "ptr": 8}
_ALIGNMENT = 16
_NAME = "@motet_shared"


def gather_shared(text: str, dynamic: int) -> tuple[str, int]:
    """The LLVM IR `text` with all its workgroup variables in one buffer, and the bytes that it takes; the launch's own
    `dynamic` bytes follow all variables."""
    places: dict[str, int] = {}
    begin = end = 0
    for name, kind, alignment in _GLOBAL.findall(text):
        size = _size(kind)
        step = max(_ALIGNMENT, int(alignment or 0))
        begin = -(-end // step) * step
        places[name] = begin
        end = begin + size
    if not places:
        return text, dynamic
    unsized = [name for name, kind, _ in _GLOBAL.findall(text) if not _size(kind)]
    rest = -(-end // _ALIGNMENT) * _ALIGNMENT if unsized else end
    places.update(dict.fromkeys(unsized, rest))
    text = _GLOBAL.sub("", text)
    names = "|".join(re.escape(name) for name in sorted(places, key=len, reverse=True))
    text = re.sub(
        rf"(?:{names})(?![\w.$-])",
        lambda match: f"getelementptr (i8, ptr addrspace(3) {_NAME}, i64 {places[match[0]]})", text,
    )
    declaration = f"\n{_NAME} = external addrspace(3) global [0 x i8], align {_ALIGNMENT}\n"
    return text + declaration, rest + dynamic


def _size(kind: str) -> int:
    """The size in bytes of a variable of an array type, given in LLVM's syntax."""
    count = math.prod(int(number) for number in _COUNT.findall(kind))
    element = _COUNT.sub("", kind).rstrip("]")
    if vector := _VECTOR.fullmatch(element):
        return count * int(vector[1]) * _BYTES[vector[2]]
    return count * _BYTES[element]
