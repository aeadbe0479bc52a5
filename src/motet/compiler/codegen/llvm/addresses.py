"""Addresses in bytes.

    %p = getelementptr inbounds half, ptr %x, i64 %i    →    %o = mul i64 %i, 2
                                                             %p = getelementptr inbounds i8, ptr %x, i64 %o

LLVM's code for SPIR-V derives types of pointers from such instructions. Where those of one pointer differ, it counts
bytes in elements of another type.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from motet.compiler.codegen.llvm.lines import Instruction, Kind, Typed, is_name, read_kind
from motet.compiler.codegen.llvm.parts import PartWriter

_ARRAY = re.compile(r"\[(\d+) x (.*)\]")
_OFFSET = Kind("i64")


def write_address(writer: PartWriter, made: Instruction, name: str, kind: Kind, operands: Sequence[Typed]) -> None:
    """Define `name` as the address that `made` computes of scalar `operands`, the first one a pointer."""
    base, *indices = operands
    offset, known, source = None, 0, made.rest
    for number, index in enumerate(indices):
        if number:
            match = _ARRAY.fullmatch(source)
            if match is None:
                raise NotImplementedError(f"an address in {source}")
            source = match[2]
        size = _bytes(source)
        if not is_name(index.text):
            known += size * int(index.text)
            continue
        part = _scaled(writer, index, size)
        offset = part if offset is None else writer.emit(_OFFSET, f"add {offset}, {part.text}")
    flags = f"{made.flags} " if "inbounds" in made.flags.split() else ""
    if known and offset is not None:
        offset = writer.emit(_OFFSET, f"add {offset}, {known}")
    words = offset if offset is not None else Typed(_OFFSET, str(known))
    writer.emit(kind, f"getelementptr {flags}i8, {base}, {words}", name)


def _scaled(writer: PartWriter, index: Typed, size: int) -> Typed:
    wide = index if index.kind == _OFFSET else writer.emit(_OFFSET, f"sext {index} to i64")
    return wide if size == 1 else writer.emit(_OFFSET, f"mul {wide}, {size}")


def _bytes(source: str) -> int:
    """The bytes that a value of type `source` takes in memory."""
    if match := _ARRAY.fullmatch(source):
        return int(match[1]) * _bytes(match[2])
    if source.startswith(("{", "%")):
        raise NotImplementedError(f"an address in {source}")
    kind = read_kind(source)[0]
    size = max(kind.bits * max(kind.lanes, 1) // 8, 1)
    return 1 << (size - 1).bit_length()
