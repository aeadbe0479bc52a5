"""repeat-element-wise: repeats cheap element-wise operations for each reduction that reads their result, where it is
also read otherwise.

    %c = linalg.generic … %x - %mean                  %c = linalg.generic … %x - %mean
    %v = linalg.generic … sum of %c² over columns  →  %d = linalg.generic … %x - %mean
    %y = linalg.generic … %c * %scale                 %v = linalg.generic … sum of %d² over columns
                                                      %y = linalg.generic … %c * %scale

A reduction along other dimensions than the last is a kernel that its readers do not join. Without a result of their
own, the operations join both kernels, and `%c` is never stored: `%x`, which is in memory anyway, is read instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from motet.compiler.ir._mlir import ir
from motet.compiler.kernels.roles import Role, computes_its_points, role_of, structure_of
from motet.compiler.passes.base import FunctionPass
from motet.compiler.passes.fuse.marks import HELD, MARK
from motet.compiler.passes.fuse.rules import space_of

_MOST = 6  # operations repeated for a reduction
_CHEAP = frozenset((
    "arith.addf", "arith.subf", "arith.mulf", "arith.negf", "arith.maximumf", "arith.minimumf", "arith.maxnumf",
    "arith.minnumf", "arith.truncf", "arith.extf", "arith.constant", "arith.cmpf", "arith.select", "math.absf",
    "math.fpowi", "linalg.yield",
))


@dataclass(frozen=True)
class RepeatElementWise(FunctionPass):
    """Considers operations with one operand of the result's extents, and smaller ones."""

    name = "repeat-element-wise"

    def run_on(self, function: ir.Operation) -> bool:
        changed = False
        for block in function.regions[0].blocks:
            for reduction in [entry.operation for entry in block.operations if _is_candidate(entry.operation)]:
                for number in range(_inputs(reduction)):
                    changed |= _repeat(*_shared_chain(reduction, number))
        return changed


def _is_candidate(operation: ir.Operation) -> bool:
    """Whether an operation reduces other dimensions than the last ones, and its readers do not join it."""
    if operation.name != "linalg.generic" or role_of(operation) is not Role.REDUCTION or MARK in operation.attributes:
        return False
    structure = structure_of(operation)
    return structure is not None and not space_of(structure, HELD in operation.attributes).is_rows


def _inputs(generic: ir.Operation) -> int:
    return next(iter(ir.DenseI32ArrayAttr(generic.attributes["operandSegmentSizes"])))


def _shared_chain(reduction: ir.Operation, number: int) -> tuple[ir.Operation, list[ir.Operation]]:
    """The operations to repeat for operand `number` of `reduction`, last first, and the operation that reads the last
    one; no operations if all have one reader, or if what they read would only be stored for the repetition."""
    reader, value = reduction, reduction.operands[number]
    chain: list[ir.Operation] = []
    while (maker := _maker(value)) is not None and (source := _large_operand(maker)) is not None:
        chain.append(maker)
        value = source
    while chain and len({use.owner.operation for use in chain[0].results[0].uses}) == 1:
        reader = chain.pop(0)
    return reader, chain if len(chain) <= _MOST and _is_stored(value) else []


def _maker(value: ir.Value) -> ir.Operation | None:
    return None if isinstance(value.owner, ir.Block) else value.owner.operation


def _large_operand(operation: ir.Operation) -> ir.Value | None:
    """The only operand with as many elements as the result of a cheap element-wise operation; None for others."""
    if operation.name != "linalg.generic" or len(operation.results) != 1 or MARK in operation.attributes:
        return None
    if role_of(operation) is not Role.ELEMENTWISE or not computes_its_points(operation):
        return None
    if any(entry.operation.name not in _CHEAP for entry in operation.regions[0].blocks[0].operations):
        return None
    result = ir.RankedTensorType(operation.results[0].type)
    operands = list(operation.operands)[: _inputs(operation)]
    tensors = [operand for operand in operands if isinstance(operand.type, ir.RankedTensorType)]
    if not all(ir.RankedTensorType(each.type).has_static_shape for each in (*tensors, operation.results[0])):
        return None
    large = [each for each in tensors if prod(ir.RankedTensorType(each.type).shape) == prod(result.shape)]
    return large[0] if len(large) == 1 else None


def _is_stored(value: ir.Value) -> bool:
    """Whether a tensor is in memory, whatever joins the kernels of its readers."""
    if isinstance(value.owner, ir.Block):
        return True
    return any(role_of(use.owner.operation) is not Role.ELEMENTWISE for use in value.uses)


def _repeat(reader: ir.Operation, chain: list[ir.Operation]) -> bool:
    """Let `reader` read the result of a copy of `chain`, whose operations are in reverse order; returns whether it has
    any."""
    for operation in chain:  # each copy is the reader of the next
        copy = operation.clone(ip=ir.InsertionPoint(reader))
        for number, operand in enumerate(reader.operands):
            if operand == operation.results[0]:
                reader.operands[number] = copy.results[0]
        reader = copy
    return bool(chain)
