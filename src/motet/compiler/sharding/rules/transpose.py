"""transpose: each dimension keeps its factor where it goes.

    linalg.transpose ins(%x: 8x16) permutation = [1, 0]   →   %x: (a, b), result: (b, a)
"""

from __future__ import annotations

from motet.compiler.ir._mlir import ir
from motet.compiler.sharding.rules.rule import ShardingRule, all_static, shape_of


def read_transpose(operation: ir.Operation) -> ShardingRule | None:
    if operation.name != "linalg.transpose" or not len(operation.results) or not all_static(operation):
        return None
    permutation = list(ir.DenseI64ArrayAttr(operation.attributes["permutation"]))
    shape = shape_of(operation.operands[0]) or []
    moved = tuple(permutation)
    return ShardingRule((tuple(range(len(shape))), moved), (moved,), tuple(shape))
