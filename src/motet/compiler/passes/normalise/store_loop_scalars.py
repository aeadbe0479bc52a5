"""keep-scalars: numbers that a loop ends with lie in memory, as all else does that goes from kernel to kernel.

    %s = scf.for … -> f32                 %s = scf.for … -> f32
    %r = math.sqrt %s                →    %t = tensor.from_elements %s : tensor<f32>
                                          %u = tensor.extract %t[]
                                          %r = math.sqrt %u

Upstream's canonicalisation takes it back: this is the last step before kernels are chosen.
"""

from __future__ import annotations

import itertools

from motet.compiler.ir._mlir import ir

LOOPS = ("scf.for", "scf.while", "scf.parallel")


def keep_scalars(function: ir.Operation) -> None:
    """In place, in a public function."""
    block = function.regions[0].blocks[0]
    operations = [entry.operation for entry in block.operations]
    for operation, following in itertools.pairwise(operations):
        if operation.name in LOOPS:
            with ir.InsertionPoint(following), operation.location:
                for result in operation.results:
                    if not isinstance(result.type, ir.RankedTensorType) and any(result.uses):
                        _keep(result)


def is_kept(operation: ir.Operation) -> bool:
    """Whether this puts a loop's number into memory: it is done where the loop is."""
    operands = list(operation.operands)
    if operation.name != "tensor.from_elements" or len(operands) != 1 or isinstance(operands[0].owner, ir.Block):
        return False
    return operands[0].owner.operation.name in LOOPS


def _keep(number: ir.Value) -> None:
    kind = ir.RankedTensorType.get([], number.type)
    users = [(use.owner.operation, use.operand_number) for use in number.uses]
    kept = ir.Operation.create("tensor.from_elements", results=[kind], operands=[number]).result
    again = ir.Operation.create("tensor.extract", results=[number.type], operands=[kept]).result
    for user, position in users:
        user.operands[position] = again
