"""store-scalar-results: stores scalars that loops and branches return in memory, since kernels exchange no other data.

    %s = scf.for … -> f32                 %s = scf.for … -> f32
    %r = math.sqrt %s                →    %t = tensor.from_elements %s : tensor<f32>
                                          %u = tensor.extract %t[]
                                          %r = math.sqrt %u

Upstream's canonicalisation would undo it: this is the last step before grouping.
"""

from __future__ import annotations

from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.passes.base import OperationPass

STORED = ("scf.for", "scf.while", "scf.parallel", "scf.if", "scf.index_switch", "scf.execute_region")


@dataclass(frozen=True)
class StoreScalarResults(OperationPass):
    """Results that are not read are left unchanged."""

    name = "store-scalar-results"
    takes = STORED

    def rewrite(self, operation: ir.Operation) -> bool:
        return bool(store_scalars(operation))


def store_scalars(operation: ir.Operation) -> list[ir.Operation]:
    """Stores the scalars among the results of an operation after it; returns the new operations."""
    made: list[ir.Operation] = []
    for number in [each for each in operation.results if not isinstance(each.type, ir.RankedTensorType)]:
        readers = [(use.owner.operation, use.operand_number) for use in number.uses]
        if not readers:
            continue
        with ir.InsertionPoint.after(made[-1] if made else operation), operation.location:
            kind = ir.RankedTensorType.get([], number.type)
            kept = ir.Operation.create("tensor.from_elements", results=[kind], operands=[number])
            again = ir.Operation.create("tensor.extract", results=[number.type], operands=[kept.result])
        for reader, position in readers:
            reader.operands[position] = again.result
        made += [kept, again]
    return made


def is_stored_scalar(operation: ir.Operation) -> bool:
    """Whether an operation stores a scalar that a loop or branch returns; it belongs to that one's kernel."""
    operands = list(operation.operands)
    if operation.name != "tensor.from_elements" or len(operands) != 1 or isinstance(operands[0].owner, ir.Block):
        return False
    return operands[0].owner.operation.name in STORED
