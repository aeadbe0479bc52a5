"""attention: `linalg.softmax`, whose rows are factors; the dimension that is normalised is needed as a whole. Attention
written as products, maxima and sums is divided by their rules: batches and heads are factors of all of them.
"""

from __future__ import annotations

from motet.compiler.ir._mlir import ir
from motet.compiler.sharding.rules.rule import Factors, ShardingRule, all_static, shape_of


def read_attention(operation: ir.Operation) -> ShardingRule | None:
    if operation.name != "linalg.softmax" or not len(operation.results) or not all_static(operation):
        return None
    shape = shape_of(operation.results[0]) or []
    along = ir.IntegerAttr(operation.attributes["dimension"]).value
    factors: Factors = tuple(None if place == along else place for place in range(len(shape)))
    return ShardingRule((factors, factors), (factors,), tuple(shape))
