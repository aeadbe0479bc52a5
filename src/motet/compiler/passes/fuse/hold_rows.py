"""hold-rows: marks reductions along leading or middle dimensions whose elements one program of a GPU holds.

    linalg.generic … maximum of %x over its rows      →      linalg.generic {motet.held} … maximum of %x over its rows

A softmax or a normalisation over such dimensions is then one kernel, as one over the last dimensions is: its program
reads short lines of neighbouring columns once, and keeps them in registers. Gathers are marked, too: those of one
element for each row, as the loss of a class, are then part of the kernel that reduces the rows, and others one kernel
with the element-wise operations on their points and the gathers that share these.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from motet.compiler.ir._mlir import ir
from motet.compiler.kernels.roles import Role, Structure, role_of, structure_of
from motet.compiler.passes.base import OperationPass
from motet.compiler.passes.fuse.inline_indices import gathers
from motet.compiler.passes.fuse.marks import HELD, MARK
from motet.compiler.passes.fuse.rules import space_of

_COLUMNS = 4096  # elements of a column: with 32 bytes of each row, half of the registers of an SM
_ROW = 32768  # elements that a program keeps of rows in pieces
_FEWEST = 64  # rows of any length that keep a GPU busy
_LEAST = 16  # rows: the reductions of fewer are split over many programs


@dataclass(frozen=True)
class HoldRows(OperationPass):
    """Considers reductions of known extents."""

    name = "hold-rows"

    def rewrite(self, operation: ir.Operation) -> bool:
        if HELD in operation.attributes or not _is_held(operation):
            return False
        operation.attributes[HELD] = ir.UnitAttr.get()
        return True


def _is_held(operation: ir.Operation) -> bool:
    if operation.name != "linalg.generic" or MARK in operation.attributes:
        return False
    structure = structure_of(operation)
    if structure is None or any(size is None for size in structure.sizes):
        return False
    if gathers(operation):
        return not structure.reduced
    if role_of(operation) is not Role.REDUCTION or space_of(structure).is_trailing:
        return False
    length = prod(structure.sizes[d] or 0 for d in structure.reduced)
    count = prod(size or 0 for d, size in enumerate(structure.sizes) if d not in structure.reduced)
    if count < _LEAST:
        return False
    if _last(structure) in structure.reduced:
        return length <= _ROW or count >= _FEWEST
    return length <= _COLUMNS


def _last(structure: Structure) -> int | None:
    """The loop along which the largest operand lies in memory."""
    largest = max(structure.maps[:-1], key=len, default=structure.maps[-1])
    kept = [entry.single for entry in largest if entry.single is None or structure.sizes[entry.single] != 1]
    return kept[-1] if kept else None
