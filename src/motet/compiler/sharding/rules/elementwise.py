"""elementwise: every dimension of the result is a factor; operands have those that they are read along.

    linalg.add, linalg.broadcast, linalg.fill, linalg.generic without reductions, tensor.empty, tensor.splat, arith and
    math on tensors
"""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.ir._mlir import ir
from motet.compiler.sharding.rules.loops import captures, factors_without, read_loops
from motet.compiler.sharding.rules.rule import ShardingRule, all_static, keep_attributes, shape_of


def read_elementwise(operation: ir.Operation) -> ShardingRule | None:
    if operation.name in ("tensor.empty", "tensor.splat") or operation.name.startswith(("arith.", "math.")):
        return _whole_tensors(operation)
    loops = read_loops(operation)
    if loops is None or loops.reductions or captures(operation):
        return None
    operands = factors_without(loops, loops.mixed)
    return ShardingRule(operands, operands[loops.inputs :], loops.extents, resize=keep_attributes)


def _whole_tensors(operation: ir.Operation) -> ShardingRule | None:
    """Operations on tensors of one shape, and those that fill one."""
    if len(operation.results) != 1 or not all_static(operation) or operation.name == "arith.constant":
        return None
    shape = shape_of(operation.results[0])
    if shape is None:
        return None
    factors = tuple(range(len(shape)))
    operands = tuple(factors if shape_of(value) is not None else () for value in operation.operands)
    return ShardingRule(operands, (factors,), tuple(shape), resize=_resize)


def _resize(operation: ir.Operation, shape: Sequence[int]) -> None:
    """The result's type is all that these operations say of their shape."""
