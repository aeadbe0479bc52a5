"""Moves bfloat16 numbers as the 16 bits that they are.

    %x = load bfloat, ptr %p               →    %x = load i16, ptr %p
    %y = select i1 %c, bfloat %x, bfloat 0xR0000    →    %y = select i1 %c, i16 %x, i16 0

Arithmetic on them is written with floats and integers before (`arith-expand`). For the rest LLVM would take a `float`,
and convert it back by an instruction, where there is one, that makes zeros of subnormal numbers and quiets NaN.
"""

from __future__ import annotations

import re

_COMPUTED = re.compile(
    r"^.*(?: = (?:f\w+|[su]itofp|\w*fpto\w+)\b|\b(?:call|invoke)\b)(?=.*\bbfloat\b)", re.MULTILINE
)
_CONSTANT = re.compile(r"\b0xR([0-9A-F]{4})\b")


def move_as_bits(text: str) -> str:
    """The LLVM IR `text`, of llvmlite's spelling, without the type bfloat, unless something computes with it."""
    if "bfloat" not in text or _COMPUTED.search(text):
        return text
    return re.sub(r"\bbfloat\b", "i16", _CONSTANT.sub(lambda found: str(int(found[1], 16)), text))
