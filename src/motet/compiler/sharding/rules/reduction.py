"""reduction: one tensor reduced along dimensions. All dimensions are factors; parts of reduced ones are combined among
devices, if the reduction is one that collectives have.

    linalg.reduce, linalg.generic with reductions
"""

from __future__ import annotations

from motet.compiler.ir._mlir import ir
from motet.compiler.sharding.rules.loops import captures, combiner, factors_without, read_loops
from motet.compiler.sharding.rules.rule import ShardingRule


def read_reduction(operation: ir.Operation) -> ShardingRule | None:
    loops = read_loops(operation)
    if loops is None or not loops.reductions or captures(operation):
        return None
    kind = combiner(operation) if len(operation.results) == 1 and not loops.mixed else None
    left = loops.mixed if kind is not None else loops.mixed | loops.reductions
    operands = factors_without(loops, left)
    reduced = {} if kind is None else dict.fromkeys(loops.reductions, kind)
    return ShardingRule(operands, operands[loops.inputs :], loops.extents, reduced, initial=loops.inputs)
