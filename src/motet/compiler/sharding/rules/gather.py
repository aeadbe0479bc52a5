"""gather: reads of tensors at computed indices, such as rows of an embedding. Loops are factors; a dimension of the
read tensor is one, too, if its index is that of a loop alone. Other dimensions are needed as a whole.

    linalg.generic outs(8x32) {                         →   factors i = 8, j = 32; result: (i, j)
      %row = tensor.extract %ids[linalg.index 0]            %ids: (i)
      tensor.extract %table[%row, linalg.index 1] }         %table: (·, j)
"""

from __future__ import annotations

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import find_operations
from motet.compiler.sharding.rules.loops import captures, factors_without, read_loops
from motet.compiler.sharding.rules.rule import Factors, ShardingRule, shape_of


def read_gather(operation: ir.Operation) -> ShardingRule | None:
    loops = read_loops(operation)
    found = captures(operation) if loops is not None else []
    if loops is None or not found or any(shape_of(value) is None for value in found):
        return None
    operands = factors_without(loops, loops.mixed | loops.reductions)
    reads = find_operations(operation, "tensor.extract")
    if any(op.name != "tensor.extract" for op in _readers(operation, found)):
        return None
    captured = {value: _factors(value, [op for op in reads if op.operands[0] == value], loops.extents)
                for value in found}
    return ShardingRule(operands, operands[loops.inputs :], loops.extents, captured=captured)


def _readers(operation: ir.Operation, values: list[ir.Value]) -> list[ir.Operation]:
    """The operations inside `operation` that read one of `values`."""
    inside = {id(op): op for op in _all_inside(operation)}
    return [op for op in inside.values() if any(operand in values for operand in op.operands)]


def _all_inside(operation: ir.Operation) -> list[ir.Operation]:
    found: list[ir.Operation] = []
    for region in operation.regions:
        for block in region.blocks:
            for entry in block.operations:
                found += [entry.operation, *_all_inside(entry.operation)]
    return found


def _factors(value: ir.Value, reads: list[ir.Operation], extents: tuple[int, ...]) -> Factors:
    """The loop that each dimension is read along, if that is the same in all reads."""
    shape = shape_of(value) or []
    found: list[int | None] = []
    for place, extent in enumerate(shape):
        loops = {loop_of(op.operands[1 + place]) for op in reads}
        loop = loops.pop() if len(loops) == 1 else None
        found.append(loop if loop is not None and extents[loop] == extent else None)
    return tuple(found)


def loop_of(index: ir.Value) -> int | None:
    """The loop whose index a value is; None for others."""
    if isinstance(index.owner, ir.Block) or index.owner.operation.name != "linalg.index":
        return None
    return ir.IntegerAttr(index.owner.operation.attributes["dim"]).value
