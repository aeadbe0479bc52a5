"""inline-gathers: merges gathers into the simple element-wise operation that alone reads them.

    %a = linalg.generic ins(%i) { tensor.extract %x[%in, index 1] }         linalg.generic ins(%i, %j) {
    %b = linalg.generic ins(%j) { tensor.extract %x[%in, index 1] }   →       %a = tensor.extract %x[%in, index 1]
    linalg.generic ins(%a, %b) { mulf }                                       %b = tensor.extract %x[%in_0, index 1]
                                                                              mulf %a, %b }

What was gathered is then not written to memory and read again. Operations that no vectoriser takes together with a
gather, and those that would no longer be computed together with their other operands, stay separate.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.erase import erase_unused
from motet.compiler.ir.functions import public_functions
from motet.compiler.ir.program import Program
from motet.compiler.kernels.roles import Role, role_of, structure_of
from motet.compiler.passes.base import Pass
from motet.compiler.passes.fuse.inline_indices import gathers, merged
from motet.compiler.passes.fuse.marks import MARK

_MOST = 8  # operations of the reader
_SIMPLE = (
    "arith.addf", "arith.subf", "arith.mulf", "arith.addi", "arith.subi", "arith.muli", "arith.maximumf",
    "arith.minimumf", "arith.extf", "arith.sitofp", "arith.extsi", "arith.extui", "arith.constant", "arith.select",
    "linalg.yield",
)


@dataclass(frozen=True)
class InlineGathers(Pass):
    """Gathers with other readers are left unchanged."""

    name = "inline-gathers"

    def run(self, program: Program) -> bool:
        found = False
        for function in public_functions(program.module):
            operations = [each.operation for each in function.regions[0].blocks[0].operations]
            if not any(map(gathers, operations)):
                continue
            inlined = [_reads(each) and _inline(each) for each in operations]  # an inlined one was visited before
            if any(inlined):
                found = True
                erase_unused(function)
        return found


def _reads(operation: ir.Operation) -> bool:
    """Whether an operation may have gathers merged into it: it is simple, and no other operands are computed for it
    alone."""
    if operation.name != "linalg.generic" or MARK in operation.attributes or len(operation.results) != 1:
        return False
    body = [each.operation for each in operation.regions[0].blocks[0].operations]
    if role_of(operation) is not Role.ELEMENTWISE or len(body) > _MOST or any(o.name not in _SIMPLE for o in body):
        return False
    count = next(iter(ir.DenseI32ArrayAttr(operation.attributes["operandSegmentSizes"])))
    inputs = list(operation.operands)[:count]
    return all(_is_gathered(operation, k) or not _is_own(value) for k, value in enumerate(inputs))


def _is_own(value: ir.Value) -> bool:
    """Whether `value` is computed by loops for one reader."""
    if isinstance(value.owner, ir.Block) or len(list(value.uses)) != 1:
        return False
    return value.owner.name == "linalg.generic" and role_of(value.owner.operation) is not Role.VIEW


def _is_gathered(reader: ir.Operation, k: int) -> bool:
    """Whether operand `k` is a gather over the reader's own points, without another reader."""
    value = reader.operands[k]
    if not _is_own(value):
        return False
    maker = value.owner.operation
    reading, making = structure_of(reader), structure_of(maker)
    if reading is None or making is None or making.reduced or MARK in maker.attributes or len(maker.results) != 1:
        return False
    rank = list(range(len(making.sizes)))
    plain = [each.single for each in making.maps[-1]] == rank and [each.single for each in reading.maps[k]] == rank
    linear = all(each.single is not None or each.is_constant for map_ in making.maps for each in map_)
    output = maker.regions[0].blocks[0].arguments[len(maker.operands) - 1]
    alone = gathers(maker) and not any(True for _ in output.uses)
    return plain and linear and len(reading.sizes) == len(rank) and alone


def _inline(reader: ir.Operation) -> bool:
    done = False
    while True:
        count = next(iter(ir.DenseI32ArrayAttr(reader.attributes["operandSegmentSizes"])))
        found = next((k for k in range(count) if _is_gathered(reader, k)), None)
        if found is None:
            return done
        reader, done = merged(reader, found, reader.operands[found].owner.operation), True
