"""Addresses in bytes.

    %p = getelementptr inbounds half, ptr %x, i64 %i    →    %o = mul i64 %i, 2
                                                             %p = getelementptr inbounds i8, ptr %x, i64 %o

LLVM's code for SPIR-V derives types of pointers from such instructions. Where those of one pointer differ, it counts
bytes in elements of another type.
"""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.codegen.llvm.ir import LONG, Instruction, IrValue, Type, address_steps
from motet.compiler.codegen.llvm.legalise.parts import PartWriter


def write_address(writer: PartWriter, made: Instruction, name: str, kind: Type, operands: Sequence[IrValue]) -> None:
    """Define `name` as the address that `made` computes of scalar `operands`, the first one a pointer."""
    base, *indices = operands
    known, scaled = address_steps(made.over, indices)
    offset: IrValue | None = None
    for index, size in scaled:
        part = index if index.type == LONG else writer.emit(LONG, f"sext {index} to i64")
        part = part if size == 1 else writer.emit(LONG, f"mul {part}, {size}")
        offset = part if offset is None else writer.emit(LONG, f"add {offset}, {part.text}")
    if offset is None:
        offset = IrValue(LONG, str(known))
    elif known:
        offset = writer.emit(LONG, f"add {offset}, {known}")
    words = made.words if "inbounds" in made.flags else made.opcode
    writer.emit(kind, f"{words} i8, {base}, {offset}", name)
