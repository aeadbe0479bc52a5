"""Rematerialization: recomputes cheap values (constants, sizes) instead of transferring them.

    %0 = arith.constant dense<…>                     →     %1 = arith.constant {motet.affinity = "gpu"} dense<…>
    %1 = "motet.transfer"(%0) {to = "gpu"}
"""

from __future__ import annotations

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.devices import AFFINITY, TO, TRANSFER_OP
from motet.compiler.ir.program import parameters_of
from motet.compiler.placement.affinity_analysis import is_replicable


def rematerialize(function: ir.Operation) -> None:
    """Rewrites a function in place. Parameters are available on every device that reads them."""
    block = function.regions[0].blocks[0]
    constants = set(parameters_of(function))
    for transfer in [entry.operation for entry in block.operations if entry.operation.name == TRANSFER_OP]:
        value = transfer.operands[0]
        if isinstance(value.owner, ir.Block):
            if value not in constants:
                continue
        elif is_replicable(value.owner.operation):
            source = value.owner.operation
            copy = source.clone(ir.InsertionPoint(transfer))
            copy.attributes[AFFINITY] = transfer.attributes[TO]
            value = copy.results[list(source.results).index(value)]
        else:
            continue
        transfer.results[0].replace_all_uses_with(value)
        transfer.erase()
