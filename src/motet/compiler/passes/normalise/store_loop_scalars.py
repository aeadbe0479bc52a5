"""store-loop-scalars: stores scalars that a loop returns in memory, as kernels only exchange data in memory.

    %s = scf.for … -> f32                 %s = scf.for … -> f32
    %r = math.sqrt %s                →    %t = tensor.from_elements %s : tensor<f32>
                                          %u = tensor.extract %t[]
                                          %r = math.sqrt %u

Upstream's canonicalisation would undo it: this is the last step before grouping.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.passes.base import FunctionPass

LOOPS = ("scf.for", "scf.while", "scf.parallel")


@dataclass(frozen=True)
class StoreLoopScalars(FunctionPass):
    """Results that are not read are left unchanged."""

    name = "store-loop-scalars"

    def run_on(self, function: ir.Operation) -> bool:
        changed = False
        operations = [entry.operation for entry in function.regions[0].blocks[0].operations]
        for operation, following in itertools.pairwise(operations):
            if operation.name in LOOPS:
                with ir.InsertionPoint(following), operation.location:
                    for result in operation.results:
                        if not isinstance(result.type, ir.RankedTensorType) and any(result.uses):
                            _store(result)
                            changed = True
        return changed


def is_stored_scalar(operation: ir.Operation) -> bool:
    """Whether an operation stores a scalar that a loop returns; it belongs to the loop's kernel."""
    operands = list(operation.operands)
    if operation.name != "tensor.from_elements" or len(operands) != 1 or isinstance(operands[0].owner, ir.Block):
        return False
    return operands[0].owner.operation.name in LOOPS


def _store(number: ir.Value) -> None:
    kind = ir.RankedTensorType.get([], number.type)
    users = [(use.owner.operation, use.operand_number) for use in number.uses]
    kept = ir.Operation.create("tensor.from_elements", results=[kind], operands=[number]).result
    again = ir.Operation.create("tensor.extract", results=[number.type], operands=[kept]).result
    for user, position in users:
        user.operands[position] = again
