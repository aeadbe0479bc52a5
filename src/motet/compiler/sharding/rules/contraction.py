"""contraction: products that are summed. Rows, columns and batches are factors, and so are the summed dimensions, whose
parts are added among devices.

    linalg.matmul, linalg.batch_matmul, linalg.generic with a product and a sum
"""

from __future__ import annotations

from motet.compiler.ir._mlir import ir
from motet.compiler.sharding.rules.loops import captures, combiner, factors_without, read_loops
from motet.compiler.sharding.rules.rule import ShardingRule


def read_contraction(operation: ir.Operation) -> ShardingRule | None:
    loops = read_loops(operation)
    if loops is None or not loops.reductions or loops.mixed or loops.inputs < 2 or captures(operation):
        return None
    if combiner(operation) != "add":
        return None
    operands = factors_without(loops, frozenset())
    reduced = dict.fromkeys(loops.reductions, "add")
    return ShardingRule(operands, operands[loops.inputs :], loops.extents, reduced, initial=loops.inputs)
