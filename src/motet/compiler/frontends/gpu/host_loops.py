"""Creates loops over the threads of a block, and comparisons, allocations and reductions into memory for them."""

from __future__ import annotations

from collections.abc import Sequence

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.attributes import integer_constant
from motet.compiler.ir.create import create, index_constant
from motet.compiler.ir.reductions import combine


def loop(extent: ir.Value, at: ir.Operation, location: ir.Location) -> tuple[ir.Operation, ir.Value]:
    """Creates a loop from 0 to `extent` before `at`; returns the end of its body, and its counter. No loop for extent
    1."""
    if integer_constant(extent) == 1:
        return at, index_constant(0, at)
    zero, one = index_constant(0, at), index_constant(1, at)
    operation = ir.Operation.create(
        "scf.for", operands=[zero, extent, one], regions=1, loc=location, ip=ir.InsertionPoint(at)
    )
    block = operation.regions[0].blocks.append(ir.IndexType.get(), arg_locs=[location])
    return ir.Operation.create("scf.yield", loc=location, ip=ir.InsertionPoint(block)), block.arguments[0]


def compare(predicate: str, left: ir.Value, right: ir.Value, at: ir.Operation) -> ir.Value:
    number = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), {"eq": 0, "ult": 6}[predicate])
    return create("arith.cmpi", [ir.IntegerType.get_signless(1)], [left, right], at, {"predicate": number}).result


def alloc(kind: ir.MemRefType, sizes: Sequence[ir.Value], at: ir.Operation) -> ir.Value:
    attributes = {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(sizes), 0])}
    return create("memref.alloc", [kind], sizes, at, attributes).result


def reduce_into(
    operation: ir.Operation, value: ir.Value, memory: ir.Value, place: ir.Value, position: ir.Value, at: ir.Operation
) -> None:
    """Combines `value` with element `place` of `memory`; for `position` 0 it initialises the element."""
    before = create("memref.load", [value.type], [memory, place], at).result
    combined = combine(operation, before, value, at)
    first = compare("eq", position, index_constant(0, at), at)
    chosen = create("arith.select", [value.type], [first, value, combined], at).result
    create("memref.store", [], [chosen, memory, place], at)


def alloca(memory: ir.Value, at: ir.Operation) -> ir.Operation:
    attributes = {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 0])}
    return create("memref.alloca", [memory.type], [], at, attributes)
